//! Names of allocations and kernels, each kept once.

use std::collections::HashMap;
use std::sync::Arc;

/// A name's number; [`Name::NONE`] is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub u32);

impl Name {
    /// No name.
    pub const NONE: Name = Name(u32::MAX);
}

/// Names by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Names {
    list: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Names {
    /// The number of a name.
    pub fn number(&mut self, name: &str) -> Name {
        if name.is_empty() {
            return Name::NONE;
        }
        if let Some(&number) = self.numbers.get(name) {
            return Name(number);
        }
        let (name, number) = (Arc::<str>::from(name), self.list.len() as u32);
        self.list.push(Arc::clone(&name));
        self.numbers.insert(name, number);
        Name(number)
    }

    /// Takes the names that another has more.
    pub(crate) fn follow(&mut self, other: &Names) {
        for name in other.list.get(self.list.len()..).unwrap_or_default() {
            self.number(name);
        }
    }

    /// The name of a number; empty for [`Name::NONE`].
    pub fn get(&self, name: Name) -> &str {
        self.list.get(name.0 as usize).map_or("", |name| name)
    }
}
