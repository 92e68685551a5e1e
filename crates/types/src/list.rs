//! Lists that are shared, and allocate nothing once there were enough of them: a few elements lie in the
//! list itself, and more on a **shelf**, where the memory of a list that nobody has any more waits for
//! the next one.
//!
//! Whoever serves a page fault must not need the allocator: the thread that waits for the page may be
//! inside it (a signal handler), and then nobody would ever go on. What travels from the driver to those
//! who carry out its commands, and is let go of by whichever of them is last, is therefore made of these.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Room for elements in a list that is made because the shelf is empty.
const FIRST_ROOM: usize = 16;

/// Elements of lists, and where lists of them leave their memory.
pub trait Shelved: Copy + Default + Send + Sync + 'static {
    /// The shelf of this type.
    fn shelf() -> &'static Shelf<Self>;
}

impl Shelved for u32 {
    fn shelf() -> &'static Shelf<u32> {
        static SHELF: Shelf<u32> = Shelf::new();
        &SHELF
    }
}

impl Shelved for u64 {
    fn shelf() -> &'static Shelf<u64> {
        static SHELF: Shelf<u64> = Shelf::new();
        &SHELF
    }
}

/// Where the memory of lists waits for the next ones.
pub struct Shelf<T>(Mutex<Idle<T>>);

struct Idle<T> {
    lists: Vec<Arc<Stored<T>>>,
    /// Lists that there are, here and in use: the shelf has room for all of them.
    made: usize,
}

/// A list that does not lie in its holders.
struct Stored<T> {
    /// Who has it. Whoever lets go of it last puts it back.
    holders: AtomicUsize,
    items: Vec<T>,
}

impl<T> Stored<T> {
    fn new(room: usize) -> Arc<Stored<T>> {
        Arc::new(Stored { holders: AtomicUsize::new(1), items: Vec::with_capacity(room) })
    }
}

impl<T> Shelf<T> {
    /// An empty shelf.
    #[allow(clippy::new_without_default, reason = "it is made for a static")]
    pub const fn new() -> Shelf<T> {
        Shelf(Mutex::new(Idle { lists: Vec::new(), made: 0 }))
    }

    /// Makes lists until there are `lists` with room for `room` elements each, so that nobody has to
    /// make them later. What nobody uses of it takes addresses, and no memory.
    pub fn stock(&self, lists: usize, room: usize) {
        let mut idle = self.lock();
        while idle.made < lists {
            idle.made += 1;
            let made = idle.made;
            let here = idle.lists.len();
            idle.lists.reserve(made - here);
            idle.lists.push(Stored::new(room));
        }
    }

    /// A list that nobody else has, empty.
    fn take(&self) -> Arc<Stored<T>> {
        let mut idle = self.lock();
        for at in (0..idle.lists.len()).rev() {
            // Another one who had it may be on the point of letting go.
            if let Some(stored) = Arc::get_mut(&mut idle.lists[at]) {
                stored.items.clear();
                *stored.holders.get_mut() = 1;
                return idle.lists.swap_remove(at);
            }
        }
        idle.made += 1;
        let (made, here) = (idle.made, idle.lists.len());
        idle.lists.reserve(made - here);
        drop(idle);
        Stored::new(FIRST_ROOM)
    }

    fn put_back(&self, list: Arc<Stored<T>>) {
        self.lock().lists.push(list);
    }

    fn lock(&self) -> MutexGuard<'_, Idle<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One holder of a stored list.
struct Holder<T: Shelved>(Arc<Stored<T>>);

impl<T: Shelved> Holder<T> {
    fn taken() -> Holder<T> {
        Holder(T::shelf().take())
    }

    /// The elements, to be changed: a copy of them if others have the list too.
    fn own(&mut self) -> &mut Vec<T> {
        // A plain load: to ask `Arc::get_mut` for that as well would take twice as long, at every element.
        if Arc::strong_count(&self.0) > 1 {
            let mut copy = Holder::taken();
            copy.own().extend_from_slice(&self.0.items);
            *self = copy;
        }
        let stored = Arc::get_mut(&mut self.0);
        &mut stored.expect("a list with one holder, or just taken").items
    }
}

impl<T: Shelved> Clone for Holder<T> {
    fn clone(&self) -> Holder<T> {
        // Whoever clones has it, so it is not being put back.
        self.0.holders.fetch_add(1, Ordering::Relaxed);
        Holder(Arc::clone(&self.0))
    }
}

impl<T: Shelved> Drop for Holder<T> {
    fn drop(&mut self) {
        // The elements are handed on by the count of `Arc`; this only says who is the last.
        if self.0.holders.fetch_sub(1, Ordering::Relaxed) == 1 {
            T::shelf().put_back(Arc::clone(&self.0));
        }
    }
}

/// A list of which clones are cheap: up to `FEW` elements lie in it, more are shared by all clones.
/// Whoever changes it has a list of its own afterwards.
#[derive(Clone)]
pub struct List<T: Shelved, const FEW: usize = 2>(Held<T, FEW>);

#[derive(Clone)]
enum Held<T: Shelved, const FEW: usize> {
    Few(u8, [T; FEW]),
    Many(Holder<T>),
}

impl<T: Shelved, const FEW: usize> List<T, FEW> {
    /// An empty list.
    pub fn new() -> List<T, FEW> {
        const { assert!(FEW < 256, "their number is a byte") };
        List(Held::Few(0, [T::default(); FEW]))
    }

    /// Appends an element.
    pub fn push(&mut self, item: T) {
        match &mut self.0 {
            Held::Few(len, items) if usize::from(*len) < FEW => {
                items[usize::from(*len)] = item;
                *len += 1;
            }
            Held::Few(_, items) => {
                let mut many = Holder::taken();
                let all = many.own();
                all.extend_from_slice(items);
                all.push(item);
                self.0 = Held::Many(many);
            }
            Held::Many(many) => many.own().push(item),
        }
    }

    /// Leaves the first `len` elements.
    pub fn truncate(&mut self, len: usize) {
        match &mut self.0 {
            Held::Few(now, _) => *now = usize::from(*now).min(len) as u8,
            Held::Many(many) if many.0.items.len() > len => many.own().truncate(len),
            Held::Many(_) => {}
        }
    }
}

impl<T: Shelved, const FEW: usize> Default for List<T, FEW> {
    fn default() -> List<T, FEW> {
        List::new()
    }
}

impl<T: Shelved, const FEW: usize> Deref for List<T, FEW> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            Held::Few(len, items) => &items[..usize::from(*len)],
            Held::Many(many) => &many.0.items,
        }
    }
}

impl<T: Shelved, const FEW: usize> DerefMut for List<T, FEW> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            Held::Few(len, items) => &mut items[..usize::from(*len)],
            Held::Many(many) => many.own(),
        }
    }
}

impl<T: Shelved, const FEW: usize> Extend<T> for List<T, FEW> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        let mut items = items.into_iter();
        while let Some(item) = items.next() {
            self.push(item);
            if let Held::Many(many) = &mut self.0 {
                return many.own().extend(items);
            }
        }
    }
}

impl<T: Shelved, const FEW: usize> FromIterator<T> for List<T, FEW> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> List<T, FEW> {
        let mut list = List::new();
        list.extend(items);
        list
    }
}

impl<T: Shelved, const FEW: usize> From<&[T]> for List<T, FEW> {
    fn from(items: &[T]) -> List<T, FEW> {
        items.iter().copied().collect()
    }
}

impl<T: Shelved, const FEW: usize, const N: usize> From<[T; N]> for List<T, FEW> {
    fn from(items: [T; N]) -> List<T, FEW> {
        items.as_slice().into()
    }
}

impl<'a, T: Shelved, const FEW: usize> IntoIterator for &'a List<T, FEW> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> std::slice::Iter<'a, T> {
        self.iter()
    }
}

impl<T: Shelved + PartialEq, const FEW: usize> PartialEq for List<T, FEW> {
    fn eq(&self, other: &List<T, FEW>) -> bool {
        **self == **other
    }
}

impl<T: Shelved + Eq, const FEW: usize> Eq for List<T, FEW> {}

impl<T: Shelved + PartialEq, const FEW: usize, const N: usize> PartialEq<[T; N]> for List<T, FEW> {
    fn eq(&self, other: &[T; N]) -> bool {
        **self == *other
    }
}

impl<T: Shelved + fmt::Debug, const FEW: usize> fmt::Debug for List<T, FEW> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: Shelved + Serialize, const FEW: usize> Serialize for List<T, FEW> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, T: Shelved + Deserialize<'de>, const FEW: usize> Deserialize<'de> for List<T, FEW> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<List<T, FEW>, D::Error> {
        Vec::deserialize(deserializer).map(|items: Vec<T>| items.as_slice().into())
    }
}

#[cfg(test)]
mod tests;
