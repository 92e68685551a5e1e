//! What vertices are called, and the table that numbers them while a file is read.

use std::borrow::Cow;
use std::collections::HashMap;

use super::VERTICES_MAX;

/// The names of a graph's vertices, in the order of their numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VertexNames {
    /// Vertex `v` is called `first + v`.
    Counted {
        /// The name of vertex 0.
        first: u64,
        /// How many vertices there are.
        count: u32,
    },
    /// Each vertex has a number of its own from the input, rising but with gaps.
    Numbers(Vec<u64>),
    /// Each vertex has a name from the input.
    Listed(Vec<String>),
}

impl VertexNames {
    /// How many vertices are named.
    pub fn len(&self) -> usize {
        match self {
            VertexNames::Counted { count, .. } => *count as usize,
            VertexNames::Numbers(numbers) => numbers.len(),
            VertexNames::Listed(names) => names.len(),
        }
    }

    /// Whether there is no vertex.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of `vertex`; `None` beyond the last one.
    pub fn get(&self, vertex: u32) -> Option<Cow<'_, str>> {
        let index = vertex as usize;
        match self {
            VertexNames::Counted { first, count } => {
                // Wider arithmetic: `first` comes from a file and may be the largest number there is.
                (vertex < *count)
                    .then(|| (u128::from(*first) + u128::from(vertex)).to_string().into())
            }
            VertexNames::Numbers(numbers) => numbers.get(index).map(|n| n.to_string().into()),
            VertexNames::Listed(names) => names.get(index).map(|name| name.as_str().into()),
        }
    }

    /// The vertex called `name`. Takes time linear in the number of vertices where names are listed.
    pub fn find(&self, name: &str) -> Option<u32> {
        match self {
            VertexNames::Counted { first, count } => {
                let offset = name.parse::<u64>().ok()?.checked_sub(*first)?;
                u32::try_from(offset).ok().filter(|v| v < count)
            }
            VertexNames::Numbers(numbers) => {
                let index = numbers.binary_search(&name.parse().ok()?).ok()?;
                u32::try_from(index).ok()
            }
            VertexNames::Listed(names) => {
                let index = names.iter().position(|listed| listed == name)?;
                u32::try_from(index).ok()
            }
        }
    }
}

/// There is no number left for another vertex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Full;

/// Numbers names in the order in which they first appear.
pub(super) struct Interner {
    numbers: HashMap<Box<str>, u32>,
    vertices_max: u32,
}

impl Interner {
    pub(super) fn new() -> Interner {
        Interner::with_limit(VERTICES_MAX)
    }

    fn with_limit(vertices_max: u32) -> Interner {
        Interner { numbers: HashMap::new(), vertices_max }
    }

    /// How many names there are.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The number of `name`, a new one if it was not seen before.
    pub(super) fn number(&mut self, name: &str) -> Result<u32, Full> {
        if let Some(&number) = self.numbers.get(name) {
            return Ok(number);
        }
        // The limit is itself a `u32`, so a count below it is one, too.
        let number = u32::try_from(self.numbers.len()).map_err(|_| Full)?;
        if number >= self.vertices_max {
            return Err(Full);
        }
        self.numbers.insert(name.into(), number);
        Ok(number)
    }

    /// All names, by number.
    pub(super) fn into_names(self) -> Vec<String> {
        let mut pairs: Vec<(u32, Box<str>)> =
            self.numbers.into_iter().map(|(name, number)| (number, name)).collect();
        pairs.sort_unstable_by_key(|pair| pair.0);
        pairs.into_iter().map(|(_, name)| name.into_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again() {
        let counted = VertexNames::Counted { first: 5, count: 3 };
        let numbers = VertexNames::Numbers(vec![2, 9, u64::MAX]);
        let listed = VertexNames::Listed(vec!["a".into(), "b".into()]);
        for names in [&counted, &numbers, &listed] {
            for vertex in 0..names.len() as u32 {
                let name = names.get(vertex).expect("a vertex below the length has a name");
                assert_eq!(names.find(&name), Some(vertex));
            }
            assert_eq!(names.get(names.len() as u32), None);
            assert_eq!(names.find("no such vertex"), None);
        }
        assert_eq!(counted.find("4"), None);
        assert_eq!(counted.find("8"), None);
        assert_eq!(counted.get(2).as_deref(), Some("7"));
    }

    #[test]
    fn the_largest_first_name_does_not_overflow() {
        let names = VertexNames::Counted { first: u64::MAX, count: 2 };
        assert_eq!(names.get(1).as_deref(), Some("18446744073709551616"));
    }

    #[test]
    fn numbers_follow_first_appearance() {
        let mut table = Interner::new();
        assert_eq!(table.number("b"), Ok(0));
        assert_eq!(table.number("a"), Ok(1));
        assert_eq!(table.number("b"), Ok(0));
        assert_eq!(table.len(), 2);
        assert_eq!(table.into_names(), ["b", "a"]);
    }

    #[test]
    fn a_full_table_takes_no_new_name_but_knows_the_old_ones() {
        let mut table = Interner::with_limit(2);
        assert_eq!(table.number("a"), Ok(0));
        assert_eq!(table.number("b"), Ok(1));
        assert_eq!(table.number("c"), Err(Full));
        assert_eq!(table.number("a"), Ok(0));
    }
}
