//! The event queue: earliest first, and among equals the one that was entered first.
//!
//! That second rule makes a run repeat itself to the bit: the order never depends on the layout
//! of the queue or on addresses.
//!
//! It is a calendar queue (Brown, "Calendar Queues", CACM 31, 1988) of a fixed width: nearly all
//! events of a machine lie a few microseconds ahead, thousands of them. Each day of a nanosecond has
//! an unsorted list; a day is sorted when it comes, and is then short. What lies further ahead than
//! the calendar reaches waits in a heap until its day has come. What is entered for the very moment comes
//! after all that was entered for it before, so it has a list of its own in that order: a GPU that goes on
//! has thousands of wavefronts go on at once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use farside_types::Time;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::state::{Reader, Refused, State, Writer};

/// log2 of a day, in picoseconds.
const DAY_SHIFT: u32 = 10;
/// Days of the calendar: about four microseconds.
const DAYS: usize = 1 << 12;
/// Days of a word of the marks.
const WORD: usize = u64::BITS as usize;
/// The end of a list.
const NONE: u32 = u32::MAX;

/// What waits to happen, in (time, sequence) order. Times are integer picoseconds.
#[derive(Debug)]
pub struct Queue<T> {
    /// All events, and the places that are free.
    places: Vec<Place<T>>,
    free: u32,
    /// The day that has come, counted from time zero.
    today: u64,
    /// What is left of today, the next one last.
    now_due: Vec<Due>,
    /// What was entered for this moment since it has come, first come first.
    at_once: VecDeque<u32>,
    /// The first place of each later day that the calendar reaches.
    days: Box<[u32; DAYS]>,
    /// A bit for each day that has events.
    marks: Box<[u64; DAYS / WORD]>,
    /// What lies beyond the calendar when it is entered.
    far: BinaryHeap<Reverse<Due>>,
    len: usize,
    sequence: u64,
    now: Time,
}

/// When an event is due, and its place. The sequence decides among equals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Time,
    sequence: u64,
    place: u32,
}

#[derive(Debug)]
struct Place<T> {
    at: Time,
    sequence: u64,
    /// The next place of the same day, or the next that is free.
    next: u32,
    /// Nothing if the place is free.
    what: Option<T>,
}

fn day(at: Time) -> u64 {
    at.0 >> DAY_SHIFT
}

impl<T> Queue<T> {
    /// An empty queue whose clock stands at `now`.
    pub fn new(now: Time) -> Queue<T> {
        Queue {
            places: Vec::new(),
            free: NONE,
            today: day(now),
            now_due: Vec::new(),
            at_once: VecDeque::new(),
            days: Box::new([NONE; DAYS]),
            marks: Box::new([0; DAYS / WORD]),
            far: BinaryHeap::new(),
            len: 0,
            sequence: 0,
            now,
        }
    }

    /// The time of the event that was taken last.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Enters `what` for `at`. A time that has passed already counts as now.
    pub fn push(&mut self, at: Time, what: T) {
        let sequence = self.sequence;
        self.sequence += 1;
        self.enter(at.max(self.now), sequence, what);
    }

    /// Takes the next event and moves the clock to it.
    pub fn pop(&mut self) -> Option<T> {
        let place = self.next_place()?;
        self.len -= 1;
        let held = &mut self.places[place as usize];
        held.next = self.free;
        self.free = place;
        held.what.take()
    }

    /// What waits to happen, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.dues().filter_map(|due| self.places[due.place as usize].what.as_ref())
    }

    /// Events that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The place of the next event, to which the clock moves.
    fn next_place(&mut self) -> Option<u32> {
        if self.now_due.last().is_none_or(|due| due.at != self.now) {
            if let Some(place) = self.at_once.pop_front() {
                return Some(place);
            }
        }
        if self.now_due.is_empty() {
            self.next_day()?;
        }
        let Due { at, place, .. } = self.now_due.pop()?;
        self.now = at;
        Some(place)
    }

    fn enter(&mut self, at: Time, sequence: u64, what: T) {
        let place = self.put(Place { at, sequence, next: NONE, what: Some(what) });
        self.len += 1;
        if at == self.now {
            self.at_once.push_back(place);
            return;
        }
        let due = Due { at, sequence, place };
        let ahead = day(at) - self.today;
        if ahead == 0 {
            let later = self.now_due.partition_point(|held| *held > due);
            self.now_due.insert(later, due);
        } else if ahead < DAYS as u64 {
            let index = day(at) as usize % DAYS;
            self.places[place as usize].next = self.days[index];
            self.days[index] = place;
            self.marks[index / WORD] |= 1 << (index % WORD);
        } else {
            self.far.push(Reverse(due));
        }
    }

    fn put(&mut self, place: Place<T>) -> u32 {
        match self.free {
            NONE => {
                self.places.push(place);
                self.places.len() as u32 - 1
            }
            free => {
                let slot = &mut self.places[free as usize];
                self.free = slot.next;
                *slot = place;
                free
            }
        }
    }

    /// Goes on to the next day on which something is due, and sorts that day.
    fn next_day(&mut self) -> Option<()> {
        let near = self.next_marked();
        let far = self.far.peek().map(|Reverse(due)| day(due.at));
        self.today = near.into_iter().chain(far).min()?;
        let index = self.today as usize % DAYS;
        let mut place = std::mem::replace(&mut self.days[index], NONE);
        self.marks[index / WORD] &= !(1 << (index % WORD));
        while place != NONE {
            let &Place { at, sequence, next, .. } = &self.places[place as usize];
            self.now_due.push(Due { at, sequence, place });
            place = next;
        }
        while self.far.peek().is_some_and(|Reverse(due)| day(due.at) == self.today) {
            self.now_due.extend(self.far.pop().map(|Reverse(due)| due));
        }
        self.now_due.sort_unstable_by(|a, b| b.cmp(a));
        Some(())
    }

    /// The next day after today, within the calendar, that has events.
    fn next_marked(&self) -> Option<u64> {
        let first = self.today as usize % DAYS;
        let words = DAYS / WORD;
        // The word of today comes twice: first its later bits, at last its earlier ones.
        for step in 0..=words {
            let word = (first / WORD + step) % words;
            let within = match step {
                0 => !0 << (first % WORD),
                _ if step == words => !(!0 << (first % WORD)),
                _ => !0,
            };
            let marks = self.marks[word] & within;
            if marks != 0 {
                let index = word * WORD + marks.trailing_zeros() as usize;
                return Some(self.today + (index + DAYS - first) as u64 % DAYS as u64);
            }
        }
        None
    }

    /// When everything is due, in no particular order.
    fn dues(&self) -> impl Iterator<Item = Due> {
        let place = |index: u32| (index != NONE).then_some(index);
        let days = self.days.iter().flat_map(move |&first| {
            std::iter::successors(place(first), move |&held| place(self.places[held as usize].next))
        });
        let listed = self.at_once.iter().copied().chain(days).map(|place| {
            let &Place { at, sequence, .. } = &self.places[place as usize];
            Due { at, sequence, place }
        });
        let far = self.far.iter().map(|Reverse(due)| *due);
        self.now_due.iter().copied().chain(listed).chain(far)
    }
}

/// In the order in which it will happen, whatever the layout of the queue.
impl<T: Serialize + DeserializeOwned> State for Queue<T> {
    fn save(&self, to: &mut Writer) -> Result<(), Refused> {
        let mut dues: Vec<Due> = self.dues().collect();
        dues.sort_unstable();
        let what = |due: &Due| self.places[due.place as usize].what.as_ref();
        let entries = dues.iter().filter_map(|due| Some((due.at, due.sequence, what(due)?)));
        to.value(&(self.now, self.sequence))?;
        to.value(&entries.collect::<Vec<_>>())
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), Refused> {
        let (now, count): (Time, u64) = from.value()?;
        let entries: Vec<(Time, u64, T)> = from.value()?;
        if entries.iter().any(|&(at, sequence, _)| at < now || sequence >= count) {
            return Err(Refused::new("an event comes before the time, or after the last number"));
        }
        *self = Queue::new(now);
        entries.into_iter().for_each(|(at, sequence, what)| self.enter(at, sequence, what));
        self.sequence = count;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_of_one_time_come_in_the_order_they_were_entered() {
        let mut queue = Queue::new(Time::ZERO);
        for name in ["a", "b", "c", "d", "e"] {
            queue.push(Time(7), name);
        }
        queue.push(Time(3), "first");
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, ["first", "a", "b", "c", "d", "e"]);
        assert_eq!(queue.now(), Time(7));
    }

    #[test]
    fn the_clock_never_goes_back() {
        let mut queue = Queue::new(Time::ZERO);
        queue.push(Time(10), 1);
        assert_eq!(queue.pop(), Some(1));
        queue.push(Time(4), 2);
        assert_eq!(queue.pop(), Some(2));
        assert_eq!(queue.now(), Time(10));
    }

    /// Times of the same day, of later days, around the end of the calendar and far beyond.
    fn ahead() -> impl Strategy<Value = u64> {
        let day = 1u64 << DAY_SHIFT;
        let end = DAYS as u64 * day;
        prop_oneof![0..4u64, 0..4 * day, 0..end, end - 2 * day..end + 2 * day, 0..9 * end]
    }

    proptest! {
        /// Against a list that is searched for the earliest; entered and taken in any order, and
        /// stored and taken over in between.
        #[test]
        fn order_is_that_of_a_stable_sort(
            steps in prop::collection::vec((ahead(), 0u8..3, any::<bool>()), 0..300),
            begin in 0u64..1 << 40,
        ) {
            let mut queue = Queue::new(Time(begin));
            let (mut list, mut now) = (Vec::new(), begin);
            for (index, (ahead, takes, stored)) in steps.into_iter().enumerate() {
                queue.push(Time(now + ahead), index);
                list.push((now + ahead, index));
                if stored {
                    let mut to = Writer::default();
                    queue.save(&mut to).unwrap();
                    let bytes = to.into_bytes();
                    queue = Queue::new(Time::ZERO);
                    queue.load(&mut Reader::new(&bytes)).unwrap();
                }
                for _ in 0..takes {
                    let expected = list.iter().copied().min();
                    list.retain(|held| Some(*held) != expected);
                    prop_assert_eq!(queue.pop(), expected.map(|(_, index)| index));
                    now = expected.map_or(now, |(at, _)| at);
                    prop_assert_eq!(queue.now(), Time(now));
                }
                prop_assert_eq!(queue.len(), list.len());
                prop_assert_eq!(queue.iter().count(), list.len());
            }
        }
    }
}
