//! The window table against a table that is as simple as can be, and at its edges.

use farside_fabric::{Access, InsertError, Refusal, Rights, WINDOWS_MAX, Windows};
use proptest::prelude::*;

/// Windows in no order; an access is looked at byte by byte.
#[derive(Default)]
struct Naive {
    windows: Vec<(u64, u64, Rights, u32)>,
    is_closed: bool,
}

impl Naive {
    fn window_at(&self, byte: u64) -> Option<&(u64, u64, Rights, u32)> {
        self.windows.iter().find(|(start, bytes, ..)| byte >= *start && byte - start < *bytes)
    }

    fn insert(&mut self, start: u64, bytes: u64, rights: Rights, place: u32) -> bool {
        let end = u128::from(start) + u128::from(bytes);
        let overlaps = |&(other, length, ..): &(u64, u64, Rights, u32)| {
            u128::from(start) < u128::from(other) + u128::from(length) && u128::from(other) < end
        };
        let fits =
            !self.is_closed && bytes > 0 && end <= 1 << 64 && !self.windows.iter().any(overlaps);
        if fits {
            self.windows.push((start, bytes, rights, place));
        }
        fits
    }

    fn remove(&mut self, start: u64, bytes: u64) -> Vec<u32> {
        let end = u128::from(start) + u128::from(bytes);
        let inside = |window: &(u64, u64, Rights, u32)| {
            window.0 >= start && u128::from(window.0) + u128::from(window.1) <= end
        };
        let mut gone: Vec<_> = self.windows.iter().copied().filter(inside).collect();
        self.windows.retain(|window| !inside(window));
        gone.sort_unstable_by_key(|window| window.0);
        gone.into_iter().map(|window| window.3).collect()
    }

    fn look_up(
        &self,
        is_epoch: bool,
        access: Access,
        address: u64,
        bytes: u64,
    ) -> Result<(u32, u64), Refusal> {
        if self.is_closed {
            return Err(Refusal::Closed);
        }
        if !is_epoch {
            return Err(Refusal::Epoch);
        }
        let window = self.window_at(address).filter(|_| bytes > 0).ok_or(Refusal::Outside)?;
        for byte in 1..bytes {
            let at = address.checked_add(byte).and_then(|byte| self.window_at(byte));
            if at.map(|at| at.0) != Some(window.0) {
                return Err(Refusal::BeyondEnd);
            }
        }
        if !window.2.allows(access) {
            return Err(Refusal::Rights);
        }
        Ok((window.3, address - window.0))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u64, Rights),
    Remove(u64, u64),
    LookUp(bool, Access, u64, u64),
    Close,
}

/// Addresses near each other, at both ends of the bus.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![0..48u64, u64::MAX - 24..=u64::MAX]
}

fn step() -> impl Strategy<Value = Step> {
    let rights = any::<(bool, bool)>().prop_map(|(read, write)| Rights { read, write });
    let access = any::<bool>().prop_map(|write| if write { Access::Write } else { Access::Read });
    let epoch = prop_oneof![9 => Just(true), 1 => Just(false)];
    prop_oneof![
        30 => (address(), 0..14u64, rights).prop_map(|(at, bytes, rights)| {
            Step::Insert(at, bytes, rights)
        }),
        10 => (address(), 0..24u64).prop_map(|(at, bytes)| Step::Remove(at, bytes)),
        60 => (epoch, access, address(), 0..14u64).prop_map(|(epoch, access, at, bytes)| {
            Step::LookUp(epoch, access, at, bytes)
        }),
        1 => Just(Step::Close),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn the_table_does_what_one_of_bytes_does(steps in proptest::collection::vec(step(), 0..80)) {
        let mut table = Windows::new(7);
        let mut naive = Naive::default();
        let mut refused = 0;
        for (place, step) in steps.into_iter().enumerate() {
            let place = place as u32;
            match step {
                Step::Insert(start, bytes, rights) => {
                    let done = table.insert(start, bytes, rights, place).is_ok();
                    prop_assert_eq!(done, naive.insert(start, bytes, rights, place));
                }
                Step::Remove(start, bytes) => {
                    prop_assert_eq!(table.remove(start, bytes), naive.remove(start, bytes));
                }
                Step::LookUp(is_epoch, access, address, bytes) => {
                    let epoch = if is_epoch { 7 } else { 6 };
                    let found = table.look_up(epoch, access, address, bytes);
                    let found = found.map(|found| (*found.place, found.offset, found.room));
                    let wanted = naive.look_up(is_epoch, access, address, bytes);
                    refused += u64::from(wanted.is_err());
                    prop_assert_eq!(found.map(|(place, offset, _)| (place, offset)), wanted);
                    prop_assert!(found.is_err() || found.is_ok_and(|(.., room)| room >= bytes));
                }
                Step::Close => {
                    let mut places = table.close();
                    places.sort_unstable();
                    let mut wanted: Vec<u32> = naive.windows.drain(..).map(|it| it.3).collect();
                    wanted.sort_unstable();
                    naive.is_closed = true;
                    prop_assert_eq!(places, wanted);
                }
            }
            prop_assert_eq!(table.len(), naive.windows.len());
        }
        prop_assert_eq!(table.refusals().total(), refused);
    }
}

#[test]
fn every_refusal_has_its_reason_and_is_counted() {
    let mut table = Windows::new(7);
    table.insert(0x1000, 0x1000, Rights::READ, "a").unwrap();
    let mut refused = |epoch, access, address, bytes| {
        table.look_up(epoch, access, address, bytes).map(|found| found.offset)
    };
    assert_eq!(refused(7, Access::Read, 0x1ff0, 16), Ok(0xff0));
    assert_eq!(refused(6, Access::Read, 0x1000, 1), Err(Refusal::Epoch));
    assert_eq!(refused(7, Access::Read, 0xfff, 1), Err(Refusal::Outside));
    assert_eq!(refused(7, Access::Read, 0x2000, 1), Err(Refusal::Outside));
    assert_eq!(refused(7, Access::Read, 0x1ff0, 17), Err(Refusal::BeyondEnd));
    assert_eq!(refused(7, Access::Read, 0x1ff0, u64::MAX), Err(Refusal::BeyondEnd));
    assert_eq!(refused(7, Access::Write, 0x1000, 1), Err(Refusal::Rights));
    assert_eq!(table.close(), ["a"]);
    assert!(table.look_up(7, Access::Read, 0x1000, 1).is_err());
    let counts: Vec<u64> = table.refusals().by_reason().map(|(_, count)| count).collect();
    assert_eq!(counts, [1, 1, 2, 2, 1]);
    assert_eq!(table.insert(0x5000, 1, Rights::BOTH, "b"), Err(InsertError::Closed));
}

#[test]
fn windows_side_by_side_are_not_one() {
    let mut table = Windows::new(1);
    table.insert(0, 16, Rights::BOTH, 0).unwrap();
    table.insert(16, 16, Rights::BOTH, 1).unwrap();
    let crossing = table.look_up(1, Access::Write, 8, 16).map(|found| *found.place);
    assert_eq!(crossing, Err(Refusal::BeyondEnd));
}

#[test]
fn a_table_has_an_end() {
    let mut table = Windows::new(1);
    for at in 0..WINDOWS_MAX as u64 {
        table.insert(at * 2, 1, Rights::BOTH, at).unwrap();
    }
    assert_eq!(table.insert(1, 1, Rights::BOTH, 0), Err(InsertError::Full));
    assert_eq!(table.remove(4, 1), [2]);
    assert_eq!(table.insert(1, 1, Rights::BOTH, 0), Ok(()));
    let last = table.look_up(1, Access::Read, (WINDOWS_MAX as u64 - 1) * 2, 1);
    assert_eq!(last.map(|found| *found.place), Ok(WINDOWS_MAX as u64 - 1));
}
