//! The table: names, numbers, functions.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use farside_card::interface::NAME_BYTES_MAX;

use super::{KernelArgs, KernelsError, builtin};
use crate::error::KernelError;
use crate::kernel::KernelContext;

/// What a kernel runs. It may run on several processing elements at once, and more than once.
pub type KernelFunction =
    Arc<dyn Fn(&mut KernelContext, &KernelArgs) -> Result<u64, KernelError> + Send + Sync>;

/// Kernels that a table holds at most.
const KERNELS_MAX: usize = 4096;
/// Names that an error message lists.
const LISTED_MAX: usize = 16;
/// Letters that may differ for a name to count as meant.
const ALIKE: usize = 3;

/// Number of a kernel in its table: 0, 1, 2 and so on, in the order in which they were added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KernelId(pub u32);

/// A kernel and its name.
#[derive(Clone)]
pub struct Kernel {
    name: Arc<str>,
    function: KernelFunction,
}

/// Kernels by name and by number. Never changes once it is made: [`Kernels::with`] and its like
/// give another table.
#[derive(Clone, Default)]
pub struct Kernels {
    kernels: Vec<Kernel>,
    by_name: HashMap<Arc<str>, KernelId>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel `{}`", self.name)
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl Kernel {
    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Runs it here, on the processing element of `context`, to its end.
    ///
    /// # Errors
    /// [`KernelError`], whatever ended it.
    pub fn run(&self, context: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
        (self.function)(context, args)
    }
}

impl Kernels {
    /// A table without any kernel.
    pub fn none() -> Kernels {
        Kernels::default()
    }

    /// The kernels that every card has: see [`builtin`].
    pub fn builtin() -> Kernels {
        builtin::all().into_iter().fold(Kernels::none(), |table, (name, function)| {
            table.with(name, function).expect("names of built-in kernels are sound and differ")
        })
    }

    /// The table with one more kernel. Names have 1 to 255 bytes; a name of the form
    /// `subject.kernel` keeps out of the way of others.
    ///
    /// # Errors
    /// [`KernelsError`] if the name is taken, empty or too long, or the table is full.
    pub fn with(
        self,
        name: &str,
        kernel: impl Fn(&mut KernelContext, &KernelArgs) -> Result<u64, KernelError>
        + Send
        + Sync
        + 'static,
    ) -> Result<Kernels, KernelsError> {
        self.with_function(name, Arc::new(kernel))
    }

    pub(super) fn with_function(
        mut self,
        name: &str,
        function: KernelFunction,
    ) -> Result<Kernels, KernelsError> {
        check_name(name)?;
        if self.by_name.contains_key(name) {
            return Err(KernelsError::Duplicate { name: name.to_owned() });
        }
        if self.kernels.len() >= KERNELS_MAX {
            return Err(KernelsError::Full { most: KERNELS_MAX });
        }
        let name: Arc<str> = name.into();
        let id = KernelId(self.kernels.len() as u32);
        self.by_name.insert(Arc::clone(&name), id);
        self.kernels.push(Kernel { name, function });
        Ok(self)
    }

    /// Number of kernels; ids are below it.
    pub fn len(&self) -> usize {
        self.kernels.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    /// The names, in the order of the ids.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.kernels.iter().map(|kernel| &*kernel.name)
    }

    /// The kernel of a number.
    pub fn get(&self, id: KernelId) -> Option<&Kernel> {
        self.kernels.get(id.0 as usize)
    }

    /// The number of a name.
    pub fn id(&self, name: &str) -> Option<KernelId> {
        self.by_name.get(name).copied()
    }

    /// The kernel of a name.
    ///
    /// # Errors
    /// [`KernelsError::Unknown`] says which names are alike, or which there are.
    pub fn find(&self, name: &str) -> Result<(KernelId, &Kernel), KernelsError> {
        let found = self.id(name).and_then(|id| Some((id, self.get(id)?)));
        found.ok_or_else(|| KernelsError::Unknown {
            name: shown(name).to_owned(),
            hint: self.hint(name),
        })
    }

    /// What to say to somebody who asked for a name that there is not.
    fn hint(&self, name: &str) -> String {
        if self.is_empty() {
            return "the table is empty".to_owned();
        }
        let alike = self.nearest(name);
        if !alike.is_empty() {
            return format!("did you mean `{}`?", alike.join("` or `"));
        }
        let mut known: Vec<&str> = self.names().collect();
        known.sort_unstable();
        let more = known.len().saturating_sub(LISTED_MAX);
        known.truncate(LISTED_MAX);
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("there are {}{rest}", known.join(", "))
    }

    /// The names that are most like `asked`, if any is.
    fn nearest(&self, asked: &str) -> Vec<&str> {
        let scored: Vec<(usize, &str)> =
            self.names().filter_map(|known| Some((unlikeness(known, asked)?, known))).collect();
        let best = scored.iter().map(|(score, _)| *score).min();
        let names = scored.iter().filter(|(score, _)| Some(*score) == best);
        names.map(|(_, name)| *name).take(LISTED_MAX).collect()
    }
}

/// As much of a name as a message shows.
fn shown(name: &str) -> &str {
    let end =
        (0..=name.len().min(NAME_BYTES_MAX as usize)).rev().find(|&n| name.is_char_boundary(n));
    &name[..end.unwrap_or(0)]
}

fn check_name(name: &str) -> Result<(), KernelsError> {
    match name.len() {
        0 => Err(KernelsError::Empty),
        bytes if bytes > NAME_BYTES_MAX as usize => {
            Err(KernelsError::TooLong { start: name.chars().take(32).collect(), bytes })
        }
        _ => Ok(()),
    }
}

/// How unlike two names are; `None` if whoever wrote `asked` cannot have meant `known`. They are
/// alike if a few letters differ, or if the subject was left out.
fn unlikeness(known: &str, asked: &str) -> Option<usize> {
    if asked.is_empty() || asked.len() > NAME_BYTES_MAX as usize {
        return None;
    }
    if known.rsplit('.').next() == Some(asked) {
        return Some(0);
    }
    let distance = distance(known.as_bytes(), asked.as_bytes());
    (distance <= ALIKE.min(asked.len() / 2)).then_some(distance)
}

/// Bytes to be added, removed or replaced to make one name of the other.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &mut KernelContext, _: &KernelArgs) -> Result<u64, KernelError> {
        Ok(0)
    }

    fn table(names: &[&str]) -> Result<Kernels, KernelsError> {
        names.iter().try_fold(Kernels::none(), |table, name| table.with(name, nothing))
    }

    #[test]
    fn ids_count_up_and_names_lead_to_them() {
        let table = table(&["a.one", "a.two", "b"]).unwrap();
        assert_eq!(table.names().collect::<Vec<_>>(), ["a.one", "a.two", "b"]);
        for (i, name) in ["a.one", "a.two", "b"].into_iter().enumerate() {
            let (id, kernel) = table.find(name).unwrap();
            assert_eq!((id, &**kernel.name()), (KernelId(i as u32), name));
            assert_eq!(&**table.get(id).unwrap().name(), name);
        }
        assert!(table.get(KernelId(3)).is_none());
        assert!(table.get(KernelId(u32::MAX)).is_none());
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        assert_eq!(
            table(&["a", "b", "a"]).unwrap_err(),
            KernelsError::Duplicate { name: "a".into() }
        );
        assert_eq!(table(&[""]).unwrap_err(), KernelsError::Empty);
        let longest = "ä".repeat(127) + "x";
        assert!(table(&[&longest]).is_ok());
        let too_long = "ä".repeat(128);
        let refused = table(&[&too_long]).unwrap_err();
        assert!(matches!(refused, KernelsError::TooLong { bytes: 256, .. }), "{refused}");
    }

    #[test]
    fn a_table_has_a_limit() {
        let mut table = Kernels::none();
        for i in 0..KERNELS_MAX {
            table = table.with(&format!("k{i}"), nothing).unwrap();
        }
        let full = table.with("one more", nothing).unwrap_err();
        assert_eq!(full, KernelsError::Full { most: KERNELS_MAX });
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_that_help() {
        let told = |name: &str| Kernels::builtin().find(name).unwrap_err().to_string();
        assert!(told("farside.saxpi").contains("did you mean `farside.saxpy`?"));
        assert!(told("sum").contains("did you mean `farside.sum`?"));
        let all = told("something else");
        for name in Kernels::builtin().names() {
            assert!(all.contains(name), "{name} is not in: {all}");
        }
        assert!(told(&"x".repeat(100_000)).len() < 2000);
        assert!(told(&"ä".repeat(1000)).len() < 2000);
        assert!(told("").contains("there are "));
        assert!(Kernels::none().find("a").unwrap_err().to_string().contains("is empty"));
        let many: Vec<String> = (0..20).map(|i| format!("kernel number {i}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let some = table(&many).unwrap().find("z").unwrap_err().to_string();
        assert!(some.ends_with("and 4 more"), "{some}");
    }

    #[test]
    fn distances_count_edits() {
        for (a, b, edits) in [("", "", 0), ("", "abc", 3), ("abc", "abd", 1), ("abc", "bc", 1)] {
            assert_eq!(distance(a.as_bytes(), b.as_bytes()), edits, "{a} {b}");
            assert_eq!(distance(b.as_bytes(), a.as_bytes()), edits, "{b} {a}");
        }
        assert_eq!(distance(b"kitten", b"sitting"), 3);
    }
}
