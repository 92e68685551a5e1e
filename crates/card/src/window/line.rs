//! The lines of tables that a walker holds.

use std::collections::VecDeque;

/// One line: what a single read brings.
#[derive(Clone, Debug)]
struct Line {
    tag: u64,
    /// Walks that come may use it.
    known: bool,
    /// It was asked for, and has not come.
    on_its_way: bool,
    /// Walks that wait for a word of it.
    users: usize,
    /// `None`: it could not be read.
    words: Option<Vec<u64>>,
}

/// A ring of lines. The next one to be read takes the place of the oldest, once that has come and nobody
/// waits for its words; lines come in the order in which they were asked for.
///
/// A line is known from when it was asked for until it is dropped. What is dropped still serves those
/// who wait for it.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    places: Vec<Line>,
    next: usize,
    on_their_way: VecDeque<usize>,
}

impl Lines {
    /// A ring with so many places; one at least.
    pub(super) fn new(places: usize) -> Lines {
        let empty = Line { tag: 0, known: false, on_its_way: false, users: 0, words: None };
        Lines { places: vec![empty; places.max(1)], next: 0, on_their_way: VecDeque::new() }
    }

    /// The place of a known line.
    pub(super) fn find(&self, tag: u64) -> Option<usize> {
        self.places.iter().position(|line| line.known && line.tag == tag)
    }

    /// Asks for a line. Returns its place, or `None` if the oldest line is still needed.
    pub(super) fn ask(&mut self, tag: u64) -> Option<usize> {
        let place = self.next;
        let line = &mut self.places[place];
        if line.on_its_way || line.users != 0 {
            return None;
        }
        *line = Line { tag, known: true, on_its_way: true, users: 0, words: None };
        self.on_their_way.push_back(place);
        self.next = (place + 1) % self.places.len();
        Some(place)
    }

    /// Somebody waits for a word of the line at this place.
    pub(super) fn wait(&mut self, place: usize) {
        self.places[place].users += 1;
    }

    /// The line that was asked for first has come, or could not be read. Nothing happens if none was.
    pub(super) fn come(&mut self, words: Option<&[u64]>) {
        let Some(place) = self.on_their_way.pop_front() else { return };
        let line = &mut self.places[place];
        line.on_its_way = false;
        line.known &= words.is_some();
        line.words = words.map(<[u64]>::to_vec);
    }

    /// The word of this number in the line at this place, if that has come; of a line that could not be
    /// read there is none.
    pub(super) fn word(&self, place: usize, number: usize) -> Option<Option<u64>> {
        let line = &self.places[place];
        let word = || line.words.as_ref().and_then(|words| words.get(number).copied());
        (!line.on_its_way).then(word)
    }

    /// One of those who wait has its word, which was a fault.
    pub(super) fn done(&mut self, place: usize, fault: bool) {
        let line = &mut self.places[place];
        line.users = line.users.saturating_sub(1);
        line.known &= !fault;
    }

    /// No line is known any more.
    pub(super) fn drop_all(&mut self) {
        for line in &mut self.places {
            line.known = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_line_goes_once_nobody_needs_it() {
        let mut lines = Lines::new(2);
        assert_eq!((lines.ask(7), lines.ask(8), lines.ask(9)), (Some(0), Some(1), None));
        assert_eq!((lines.find(7), lines.find(9)), (Some(0), None));
        lines.wait(0);
        lines.come(Some(&[70, 71]));
        assert_eq!(lines.ask(9), None, "somebody waits for it");
        assert_eq!((lines.word(0, 1), lines.word(1, 0)), (Some(Some(71)), None));
        lines.done(0, false);
        assert_eq!(lines.ask(9), Some(0));
        assert_eq!((lines.find(7), lines.find(9)), (None, Some(0)));
        assert_eq!(lines.ask(10), None, "the oldest has not come");
    }

    #[test]
    fn what_is_dropped_serves_those_who_wait() {
        let mut lines = Lines::new(3);
        for tag in 1..=3 {
            let place = lines.ask(tag).unwrap();
            lines.wait(place);
        }
        lines.drop_all();
        assert_eq!(lines.find(1), None);
        lines.come(Some(&[4]));
        lines.come(None);
        assert_eq!((lines.word(0, 0), lines.word(1, 0)), (Some(Some(4)), Some(None)));
        assert_eq!((lines.find(1), lines.find(2)), (None, None));
        lines.done(0, false);
        assert_eq!(lines.ask(1), Some(0), "it is asked for again");
    }

    #[test]
    fn a_line_with_a_fault_or_an_error_is_forgotten() {
        let mut lines = Lines::new(2);
        lines.ask(1);
        lines.wait(0);
        lines.come(Some(&[0]));
        assert_eq!(lines.find(1), Some(0));
        lines.done(0, true);
        lines.ask(2);
        lines.come(None);
        assert_eq!((lines.find(1), lines.find(2)), (None, None));
        lines.come(Some(&[1]));
    }
}
