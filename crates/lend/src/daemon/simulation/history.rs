//! Who held what, and when, by the true time; and whether two did at a time.

use std::collections::BTreeMap;

use super::clock::TrueTime;

/// Which side of a lease an interval is of. Each side is checked for itself: no device has two lender's
/// ends, nor two borrowers that may use it, at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Lender,
    Borrower,
}

/// A time during which a device was held.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) side: Side,
    /// DEVICE@HOST.
    pub(super) device: String,
    /// Of its lease.
    pub(super) epoch: u64,
    /// The host whose end it is.
    pub(super) by: String,
    pub(super) from: TrueTime,
    /// `None`: it has not ended.
    pub(super) until: Option<TrueTime>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct History(Vec<Held>);

impl History {
    /// Notes that it begins; gives its number.
    pub(super) fn begin(&mut self, held: Held) -> usize {
        self.0.push(held);
        self.0.len() - 1
    }

    /// Notes that it ends, at the latest; an earlier end stays.
    pub(super) fn end(&mut self, number: usize, at: TrueTime) {
        let held = &mut self.0[number];
        held.until = Some(held.until.map_or(at, |earlier| earlier.min(at)));
    }

    /// How many of one side there are.
    pub(super) fn count(&self, side: Side) -> usize {
        self.0.iter().filter(|held| held.side == side).count()
    }

    /// What was held twice at a time, in words.
    pub(super) fn held_twice(&self) -> Vec<String> {
        let mut by_device: BTreeMap<(Side, &str), Vec<&Held>> = BTreeMap::new();
        for held in &self.0 {
            by_device.entry((held.side, &held.device)).or_default().push(held);
        }
        let mut twice = Vec::new();
        for holders in by_device.values_mut() {
            holders.sort_by_key(|held| held.from);
            let mut last: Option<&Held> = None;
            for held in holders.iter() {
                let until = |held: &Held| held.until.unwrap_or(TrueTime::MAX);
                if let Some(last) = last.filter(|last| until(last) > held.from) {
                    twice.push(in_words(last, held));
                }
                if last.is_none_or(|last| until(held) > until(last)) {
                    last = Some(held);
                }
            }
        }
        twice
    }
}

fn in_words(first: &Held, second: &Held) -> String {
    let ms = |time: TrueTime| time / 1_000_000;
    let until = first.until.map_or("the end".to_owned(), |until| format!("{} ms", ms(until)));
    format!(
        "{} ({:?}): lease {} of {} from {} ms until {until}, and lease {} of {} from {} ms",
        first.device,
        first.side,
        first.epoch,
        first.by,
        ms(first.from),
        second.epoch,
        second.by,
        ms(second.from)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(intervals: &[(&str, Side, u64, Option<u64>)]) -> Vec<String> {
        let mut history = History::default();
        for (epoch, &(device, side, from, until)) in intervals.iter().enumerate() {
            let (device, by) = (device.to_owned(), "b".to_owned());
            let held = Held { side, device, epoch: epoch as u64, by, from, until: None };
            let number = history.begin(held);
            if let Some(until) = until {
                history.end(number, until);
                history.end(number, until + 7);
            }
        }
        history.held_twice()
    }

    #[test]
    fn one_after_the_other_is_not_twice_and_a_moment_together_is() {
        use Side::{Borrower, Lender};
        let fine = [("x", Lender, 0, Some(5)), ("x", Lender, 5, Some(9)), ("y", Lender, 3, None)];
        assert_eq!(history(&fine), [""; 0]);
        assert_eq!(history(&[("x", Lender, 0, Some(5)), ("x", Borrower, 3, None)]), [""; 0]);
        assert_eq!(history(&[("x", Lender, 4, Some(5)), ("x", Lender, 0, Some(5))]).len(), 1);
        // The long one is still there when the third comes.
        let long = [("x", Lender, 0, None), ("x", Lender, 1, Some(2)), ("x", Lender, 3, Some(4))];
        assert_eq!(history(&long).len(), 2);
    }
}
