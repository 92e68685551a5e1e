//! Arrays by number, of which most may be absent: tables with a part for each block of the arena. Room
//! for those to come can be made beforehand, so that what enters one later does not allocate it.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Most arrays that room is made for beforehand: what nobody touches of it takes addresses only, but
/// there may be a limit to those.
const ROOM_MOST: usize = 1 << 13;

/// Arrays of `N` by number.
#[derive(Clone, Debug)]
pub(crate) struct Blocks<T, const N: usize> {
    /// By number: its place among the arrays, counted from 1; 0 is absent.
    places: Vec<u32>,
    arrays: Vec<[T; N]>,
}

impl<T, const N: usize> Blocks<T, N> {
    pub(crate) const fn new() -> Blocks<T, N> {
        Blocks { places: Vec::new(), arrays: Vec::new() }
    }

    /// One above the highest number that there was room for.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// How many are not absent.
    #[cfg(test)]
    pub(crate) fn present(&self) -> usize {
        self.arrays.len()
    }

    /// Makes room for all those below number `end`.
    pub(crate) fn make_room(&mut self, end: usize) {
        if self.places.len() < end {
            self.places.resize(end, 0);
        }
        let absent = self.places.len() - self.arrays.len();
        // Without it there is room for them when they come.
        let _ = self.arrays.try_reserve(absent.min(ROOM_MOST));
    }

    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<&[T; N]> {
        let place = *self.places.get(number)?;
        self.arrays.get((place as usize).wrapping_sub(1))
    }

    /// Array `number`; if it is absent it is made by `make`.
    #[inline]
    pub(crate) fn get_or_make(
        &mut self,
        number: usize,
        make: impl FnOnce() -> [T; N],
    ) -> &mut [T; N] {
        if self.places.get(number).is_none_or(|&place| place == 0) {
            self.put_in(number, make());
        }
        &mut self.arrays[self.places[number] as usize - 1]
    }

    fn put_in(&mut self, number: usize, array: [T; N]) {
        if self.places.len() <= number {
            self.places.resize(number + 1, 0);
        }
        self.arrays.push(array);
        self.places[number] = self.arrays.len() as u32;
    }

    /// Those that are not absent, with their numbers.
    fn numbered(&self) -> impl Iterator<Item = (usize, &[T; N])> {
        (0..self.places.len()).filter_map(|number| Some((number, self.get(number)?)))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.places.len() * size_of::<u32>() + self.arrays.len() * size_of::<[T; N]>()
    }
}

/// As a list of those that are not absent, with their numbers.
impl<T: Serialize, const N: usize> Serialize for Blocks<T, N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let present = self.numbered().map(|(number, array)| (number, array.as_slice()));
        // Compact formats need to know beforehand how many there are.
        serializer.collect_seq(present.collect::<Vec<_>>())
    }
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for Blocks<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Blocks<T, N>, D::Error> {
        let mut blocks = Blocks::new();
        for (number, entries) in Vec::<(usize, Vec<T>)>::deserialize(deserializer)? {
            let array: [T; N] = entries
                .try_into()
                .map_err(|_| D::Error::custom(format!("block {number} has not {N} entries")))?;
            if number >= 1 << 23 || blocks.get(number).is_some() {
                return Err(D::Error::custom(format!(
                    "there is no block {number}, or there are two"
                )));
            }
            blocks.put_in(number, array);
        }
        Ok(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_room_for_is_made_where_it_stays() {
        let mut blocks = Blocks::<u8, 4>::new();
        blocks.make_room(20);
        assert_eq!((blocks.len(), blocks.present()), (20, 0));
        blocks.get_or_make(7, || [1; 4])[2] = 9;
        let there = blocks.get(7).unwrap().as_ptr();
        (0..20).for_each(|number| _ = blocks.get_or_make(number, || [0; 4]));
        assert_eq!(blocks.get(7).unwrap().as_ptr(), there);
        assert_eq!(blocks.get(7), Some(&[1, 1, 9, 1]));
        assert!(blocks.get(20).is_none() && blocks.get(100).is_none());
        blocks.get_or_make(100, || [5; 4]);
        assert_eq!((blocks.len(), blocks.present()), (101, 21));
    }

    #[test]
    fn is_stored_as_a_list_and_nonsense_is_refused() {
        let mut blocks = Blocks::<u8, 2>::new();
        blocks.get_or_make(5, || [1, 2]);
        blocks.get_or_make(3, || [3, 4]);
        let text = serde_json::to_string(&blocks).unwrap();
        assert_eq!(text, "[[3,[3,4]],[5,[1,2]]]");
        let again: Blocks<u8, 2> = serde_json::from_str(&text).unwrap();
        assert_eq!(again.get(5), Some(&[1, 2]));
        for bad in ["[[3,[3]]]", "[[8388608,[1,2]]]", "[[3,[1,2]],[3,[1,2]]]"] {
            assert!(serde_json::from_str::<Blocks<u8, 2>>(bad).is_err(), "{bad}");
        }
    }
}
