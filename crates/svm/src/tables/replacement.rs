//! Which pages of a full card stay: LIRS (Jiang and Zhang, SIGMETRICS 2002), by what a card can tell.
//!
//! A page is a **stayer** or a **newcomer**. Stayers fill the memory but for a small share; who comes
//! when that is taken is a newcomer, and newcomers leave first, in the order in which they came. So a
//! scan passes through the share of the newcomers and spares the others, and of a loop over more than
//! fits as much stays as fits.
//!
//! A newcomer becomes a stayer if its reuse distance, the time since it was last evicted, is shorter
//! than the time for which some stayer is known not to have been used; these two change places. Whether
//! a stayer was used is looked at in turns: a sweep over all frames goes on with what comes, so that a
//! card that rests ages nothing. Where LIRS keeps a stack of all accesses, a frame here has a byte.

use std::cmp::Reverse;
use std::collections::VecDeque;

use farside_types::FrameNo;
use serde::{Deserialize, Serialize};

/// Frames that are looked at together: a table of the card, so that an entry for all of its pages is not
/// asked twice.
pub(crate) const STRETCH: u32 = 512;
/// Frames looked at for each page that has to leave.
const LOOKS_PER_ARRIVAL: u32 = 2;
/// The share of newcomers is at least one part of so many, and at most one of four.
const LEAST_SHARE: u32 = 128;
const MOST_SHARE: u32 = 4;

const fn least_share(frames: u32) -> u32 {
    if frames > LEAST_SHARE { frames / LEAST_SHARE } else { 1 }
}

/// Replacement on one card. Times are in microseconds, as pages have them.
#[derive(Serialize, Deserialize)]
pub(crate) struct Replacement {
    marks: Vec<Mark>,
    stayers: u32,
    fresh: u32,
    /// Whoever is in front leaves first. Names each newcomer's frame once, and may name once a frame that was
    /// left since: whoever comes there has its place.
    newcomers: VecDeque<FrameNo>,
    /// Newcomers that were here before, since stayers were last looked at.
    challengers: Vec<Challenger>,
    sweep: Sweep,
    /// Stayers that were not used, for how long: only while a look is being entered.
    #[serde(skip)]
    idle: Vec<(u32, FrameNo)>,
    /// Challengers, the latest of a frame first: as `idle`.
    #[serde(skip)]
    latest: Vec<(FrameNo, Reverse<u32>, u32)>,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct Challenger {
    frame: FrameNo,
    reuse: u32,
}

/// Standing of a frame's page, and of a stayer for how many sweeps it was not used: 2 and 6 bits. The bits of a
/// frame without a page say whether the queue of newcomers names it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
struct Mark(u8);

impl Mark {
    const NONE: Mark = Mark(0);
    /// Of a frame without a page that the queue names.
    const NAMED: Mark = Mark(1 << 2);
    const STAYER: Mark = Mark(1);
    const NEWCOMER: Mark = Mark(2);
    const IDLE_MAX: u8 = 63;

    fn is(self, standing: Mark) -> bool {
        self.0 & 3 == standing.0
    }

    fn idle(self) -> u8 {
        self.0 >> 2
    }

    fn looked_at(self, used: bool) -> Mark {
        let idle = if used { 0 } else { Mark::IDLE_MAX.min(self.idle() + 1) };
        Mark(self.0 & 3 | idle << 2)
    }
}

/// How far the look at stayers has come.
#[derive(Default, Serialize, Deserialize)]
struct Sweep {
    hand: u32,
    /// Frames that may be looked at.
    credit: u32,
    /// When this sweep and those before it began, the latest in front.
    began: VecDeque<u32>,
    /// Most pages that were wanted at once in this sweep, and in the one before.
    wanted: u32,
    wanted_before: u32,
}

impl Sweep {
    /// None yet, with room for as many as are remembered.
    fn with_room() -> Sweep {
        Sweep {
            began: VecDeque::with_capacity(usize::from(Mark::IDLE_MAX) + 2),
            ..Sweep::default()
        }
    }

    /// For how long a page was not used that was found idle in so many sweeps in a row.
    fn idle_for(&self, sweeps: u8) -> u32 {
        let then = self.began.get(usize::from(sweeps)).or(self.began.back());
        match (self.began.front(), then) {
            (Some(now), Some(then)) => now.wrapping_sub(*then),
            _ => 0,
        }
    }

    fn begin(&mut self, now: u32) {
        self.began.push_front(now);
        self.began.truncate(usize::from(Mark::IDLE_MAX) + 1);
        self.wanted_before = std::mem::take(&mut self.wanted);
    }
}

impl Replacement {
    pub(crate) fn new(frames: u32) -> Replacement {
        Replacement {
            marks: vec![Mark::NONE; frames as usize],
            stayers: 0,
            fresh: 0,
            newcomers: VecDeque::with_capacity(frames as usize),
            challengers: Vec::with_capacity(STRETCH as usize),
            sweep: Sweep::with_room(),
            idle: Vec::with_capacity(STRETCH as usize),
            latest: Vec::with_capacity(STRETCH as usize),
        }
    }

    /// So many pages are wanted at once.
    pub(crate) fn want(&mut self, pages: u32) {
        self.sweep.wanted = self.sweep.wanted.max(pages);
    }

    /// Frames for newcomers: what each of `running` jobs works on, and what the next one wants.
    pub(crate) fn share(&self, running: u32) -> u32 {
        let total = self.marks.len() as u32;
        let wanted = self.wanted().saturating_mul(running.saturating_add(1));
        wanted.clamp(least_share(total), (total / MOST_SHARE).max(1))
    }

    /// Pages that leave at once, of those that no running job works on.
    pub(crate) fn batch(&self, running: u32) -> u32 {
        let busy = self.wanted().saturating_mul(running);
        (self.share(running).saturating_sub(busy) / 2).max(1)
    }

    fn wanted(&self) -> u32 {
        self.sweep.wanted.max(self.sweep.wanted_before)
    }

    /// Pages have come into frames that were free. `reuse` says of each for how long it was elsewhere, if it
    /// was in use before.
    pub(crate) fn arrived(
        &mut self,
        frame: FrameNo,
        count: u32,
        share: u32,
        reuse: impl Fn(u32) -> Option<u32>,
    ) {
        let total = self.marks.len() as u32;
        let stay = total.saturating_sub(share).saturating_sub(self.stayers).min(count);
        let marks = &mut self.marks[frame.0 as usize..(frame.0 + count) as usize];
        debug_assert!(marks.iter().all(|mark| mark.is(Mark::NONE)), "{frame:?} is not free");
        let any_named = marks[..stay as usize].contains(&Mark::NAMED);
        marks[..stay as usize].fill(Mark::STAYER);
        self.stayers += stay;
        if any_named {
            self.drop_stale_names();
        }
        (stay..count).for_each(|index| self.comes(frame.offset(index), reuse(index)));
    }

    /// A newcomer.
    fn comes(&mut self, frame: FrameNo, reuse: Option<u32>) {
        if self.marks[frame.0 as usize] != Mark::NAMED {
            self.newcomers.push_back(frame);
        }
        self.mark(frame, Mark::NEWCOMER);
        self.fresh += 1;
        // Where nobody has to leave, nobody looks.
        if let Some(reuse) = reuse.filter(|_| self.challengers.len() < STRETCH as usize) {
            self.challengers.push(Challenger { frame, reuse });
        }
    }

    /// The queue names newcomers' frames and no others.
    fn drop_stale_names(&mut self) {
        let marks = &mut self.marks;
        self.newcomers.retain(|frame| {
            let mark = &mut marks[frame.0 as usize];
            if mark.is(Mark::NONE) {
                *mark = Mark::NONE;
            }
            mark.is(Mark::NEWCOMER)
        });
    }

    /// Frames hold nothing any more, or something else. They may have held nothing before: frames that were taken and not
    /// used, or were out of use.
    pub(crate) fn left(&mut self, frame: FrameNo, count: u32) {
        let marks = &mut self.marks[frame.0 as usize..(frame.0 + count) as usize];
        let of =
            |standing| marks.iter().map(|mark: &Mark| u32::from(mark.is(standing))).sum::<u32>();
        self.stayers -= of(Mark::STAYER);
        self.fresh -= of(Mark::NEWCOMER);
        for mark in marks {
            // What the queue names without a page it names still.
            *mark = match *mark {
                Mark::NAMED => Mark::NAMED,
                newcomer if newcomer.is(Mark::NEWCOMER) => Mark::NAMED,
                _ => Mark::NONE,
            };
        }
    }

    /// Newcomers that were not taken yet, and stale names of frames.
    pub(crate) fn queued(&self) -> usize {
        self.newcomers.len()
    }

    /// The newcomer whose turn it is to leave; if it cannot, it is the last to be asked again.
    pub(crate) fn rotate(&mut self) -> Option<FrameNo> {
        loop {
            let frame = self.newcomers.pop_front()?;
            if self.is_newcomer(frame) {
                self.newcomers.push_back(frame);
                return Some(frame);
            }
            // It was left.
            debug_assert_eq!(self.marks[frame.0 as usize], Mark::NAMED, "{frame:?} is named");
            self.mark(frame, Mark::NONE);
        }
    }

    /// So many pages have to leave. The frames to look at next, if it is time.
    pub(crate) fn look(&mut self, leave: u32, now: u32) -> Option<std::ops::Range<u32>> {
        let total = self.marks.len() as u32;
        // A small card has few newcomers at a time to change places with.
        let stretch =
            if total > STRETCH { STRETCH } else { LOOKS_PER_ARRIVAL * least_share(total) };
        let credit = self.sweep.credit.saturating_add(leave.saturating_mul(LOOKS_PER_ARRIVAL));
        self.sweep.credit = credit.min(total);
        if self.sweep.credit < stretch || total == 0 {
            return None;
        }
        self.sweep.credit -= stretch;
        if self.sweep.hand >= total || self.sweep.began.is_empty() {
            self.sweep.hand = 0;
            self.sweep.begin(now);
        }
        let start = self.sweep.hand;
        self.sweep.hand = (start + stretch).min(total);
        Some(start..self.sweep.hand)
    }

    pub(crate) fn is_stayer(&self, frame: FrameNo) -> bool {
        self.is(frame, Mark::STAYER)
    }

    pub(crate) fn is_newcomer(&self, frame: FrameNo) -> bool {
        self.is(frame, Mark::NEWCOMER)
    }

    /// Newcomers' frames among these.
    pub(crate) fn newcomers_in(&self, frame: FrameNo, count: u32) -> u32 {
        (0..count).map(|index| u32::from(self.is_newcomer(frame.offset(index)))).sum()
    }

    /// A stayer that was used when it was last looked at.
    pub(crate) fn is_in_use(&self, frame: FrameNo) -> bool {
        self.is_stayer(frame) && self.marks[frame.0 as usize].idle() == 0
    }

    /// Stayers were looked at. Those that were not used for longer than newcomers' reuse distances change
    /// places with them.
    pub(crate) fn looked_at(&mut self, seen: impl Iterator<Item = (FrameNo, bool)>) {
        let mut idle = std::mem::take(&mut self.idle);
        for (frame, used) in seen {
            if !self.is(frame, Mark::STAYER) {
                continue;
            }
            let mark = self.marks[frame.0 as usize].looked_at(used);
            self.marks[frame.0 as usize] = mark;
            if mark.idle() > 0 {
                idle.push((self.sweep.idle_for(mark.idle()), frame));
            }
        }
        let mut challengers = self.settle_challengers();
        idle.sort_unstable_by_key(|&(time, frame)| (Reverse(time), frame));
        challengers.sort_unstable_by_key(|challenger| (challenger.reuse, challenger.frame));
        // A look is a moment, and a page that is used once in a loop is idle for nearly all of it.
        let gives_way = |&(&(time, _), challenger): &(&(u32, FrameNo), &Challenger)| {
            time > challenger.reuse.saturating_add(challenger.reuse / 4)
        };
        let pairs = || idle.iter().zip(&challengers).take_while(gives_way);
        pairs().for_each(|(_, challenger)| self.mark(challenger.frame, Mark::STAYER));
        if pairs().next().is_some() {
            self.drop_stale_names();
        }
        for (&(_, stayer), _) in pairs() {
            self.mark(stayer, Mark::NEWCOMER);
            self.newcomers.push_front(stayer);
        }
        challengers.clear();
        idle.clear();
        (self.challengers, self.idle) = (challengers, idle);
    }

    /// Takes the challengers that are newcomers still, one for each frame.
    fn settle_challengers(&mut self) -> Vec<Challenger> {
        let mut challengers = std::mem::take(&mut self.challengers);
        let mut latest = std::mem::take(&mut self.latest);
        let newcomers = challengers.iter().filter(|it| self.is(it.frame, Mark::NEWCOMER));
        latest.extend((0u32..).zip(newcomers).map(|(at, it)| (it.frame, Reverse(at), it.reuse)));
        latest.sort_unstable();
        // Of several in one frame the last is there.
        latest.dedup_by_key(|(frame, ..)| *frame);
        challengers.clear();
        challengers.extend(latest.drain(..).map(|(frame, _, reuse)| Challenger { frame, reuse }));
        self.latest = latest;
        challengers
    }

    fn is(&self, frame: FrameNo, standing: Mark) -> bool {
        self.marks[frame.0 as usize].is(standing)
    }

    fn mark(&mut self, frame: FrameNo, mark: Mark) {
        self.marks[frame.0 as usize] = mark;
    }

    /// Bytes for frames below `untouched`.
    pub(crate) fn bytes(&self, untouched: u32) -> usize {
        untouched as usize * size_of::<Mark>()
            + self.newcomers.len() * size_of::<FrameNo>()
            + self.challengers.len() * size_of::<Challenger>()
    }

    /// That the queue names once each frame that it has to, and no other.
    fn check_queue(&self) -> Result<(), String> {
        let of = |(frame, mark): (FrameNo, &Mark)| {
            (mark.is(Mark::NEWCOMER) || *mark == Mark::NAMED).then_some(frame)
        };
        let wanted: Vec<_> = (0..).map(FrameNo).zip(&self.marks).filter_map(of).collect();
        let mut named: Vec<_> = self.newcomers.iter().copied().collect();
        named.sort_unstable();
        (named == wanted).then_some(()).ok_or_else(|| {
            format!("the queue of newcomers names {named:?}, and frames have marks of {wanted:?}")
        })
    }

    /// That every frame with a page, and no other, has a standing, and the queue its names.
    ///
    /// # Errors
    /// What is not so.
    pub(crate) fn check(&self, holds: impl Fn(FrameNo) -> bool) -> Result<(), String> {
        let (mut stayers, mut fresh) = (0, 0);
        for (frame, mark) in (0..).map(FrameNo).zip(&self.marks) {
            stayers += u32::from(mark.is(Mark::STAYER));
            fresh += u32::from(mark.is(Mark::NEWCOMER));
            if mark.is(Mark::NONE) == holds(frame) {
                return Err(format!(
                    "{frame:?} holds a page: {}, its mark is {mark:?}",
                    holds(frame)
                ));
            }
        }
        self.check_queue()?;
        if (stayers, fresh) != (self.stayers, self.fresh) {
            let counted = (self.stayers, self.fresh);
            return Err(format!("{stayers} stayers and {fresh} newcomers, counted {counted:?}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: u32 = 64;

    /// A chain that failed: its newcomers' frames are kept out of use and freed later, or taken and given back unused. Each
    /// time they are left once more.
    #[test]
    fn regression_a_frame_that_is_left_twice_is_named_still() {
        let mut order = Replacement::new(FRAMES);
        order.arrived(FrameNo(0), FRAMES, 8, |_| None);
        let newcomer = order.rotate().expect("a card has newcomers");
        order.left(newcomer, 1);
        order.left(newcomer, 1);
        order.check(|frame| frame != newcomer).unwrap();
        // A page that stays leaves room for a stayer in the newcomer's frame, which the queue named.
        order.left(FrameNo(0), 1);
        order.arrived(newcomer, 1, 8, |_| None);
        assert!(order.is_stayer(newcomer));
        order.check(|frame| frame != FrameNo(0)).unwrap();
        (0..2 * FRAMES).for_each(|_| assert_ne!(order.rotate(), Some(newcomer)));
        order.check(|frame| frame != FrameNo(0)).unwrap();
    }

    /// A full memory, of which one page after the other leaves and another comes into its frame.
    #[test]
    fn regression_the_queue_of_newcomers_names_each_frame_once_however_long_pages_come_and_go() {
        let mut order = Replacement::new(FRAMES);
        order.arrived(FrameNo(0), FRAMES, order.share(0), |_| None);
        for round in 0..10_000u32 {
            let frame = order.rotate().unwrap_or(FrameNo(0));
            order.left(frame, 1);
            order.arrived(frame, 1, order.share(0), |_| Some(round % 7));
            if let Some(stretch) = order.look(1, round * 10) {
                let seen: Vec<_> = stretch.map(|frame| (FrameNo(frame), frame % 3 == 0)).collect();
                order.looked_at(seen.into_iter());
            }
            if round % 100 == 0 {
                // A page of those that stay leaves, and comes again.
                order.left(FrameNo(round / 100 % FRAMES), 1);
                order.arrived(FrameNo(round / 100 % FRAMES), 1, order.share(1), |_| None);
            }
            assert!(order.queued() <= FRAMES as usize, "{} names, round {round}", order.queued());
            let mut names: Vec<_> = order.newcomers.iter().collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), order.queued(), "a frame is named twice, round {round}");
            order.check(|_| true).unwrap();
        }
        assert!(order.fresh > 0 && order.stayers > 0);
    }
}
