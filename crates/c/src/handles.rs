//! What programs hold of spaces and jobs: numbers that look like addresses and are none. One that was closed or freed, or
//! never was, is not found; none is given twice.

use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::status::{Failure, Status};

/// A space. Opaque.
#[allow(non_camel_case_types, missing_debug_implementations)] // its name in C
pub struct farside_space {
    _private: [u8; 0],
}

/// A kernel that was launched. Opaque.
#[allow(non_camel_case_types, missing_debug_implementations)] // its name in C
pub struct farside_job {
    _private: [u8; 0],
}

/// The handles of one kind. A child made by fork begins with none: its parent's lock may have been held just then.
pub(crate) struct Handles<T: 'static> {
    what: &'static str,
    /// Where their numbers begin: no address of a program on x86-64 or AArch64.
    base: usize,
    /// How many were made, in this process and in those that it was forked from: none of their numbers is given again.
    made: AtomicUsize,
    table: AtomicPtr<Table<T>>,
}

struct Table<T> {
    process: u32,
    /// How many were made in processes that this one was forked from.
    inherited: usize,
    held: Mutex<HashMap<usize, Arc<T>>>,
}

impl<T> Handles<T> {
    /// Handles of a kind, the `kind`th.
    pub(crate) const fn new(what: &'static str, kind: usize) -> Handles<T> {
        let base = 0xfa5d_0000_0000_0000 + (kind << 48);
        let table = AtomicPtr::new(ptr::null_mut());
        Handles { what, base, made: AtomicUsize::new(0), table }
    }

    /// The table of this process, made where there is none yet.
    fn table(&self) -> &Table<T> {
        let process = std::process::id();
        let mut known = self.table.load(Ordering::Acquire);
        // SAFETY: tables are made below and never freed: one for each process of a line of forks.
        while unsafe { known.as_ref() }.is_none_or(|table| table.process != process) {
            let held = Mutex::new(HashMap::new());
            let inherited = self.made.load(Ordering::Relaxed);
            let table = Box::into_raw(Box::new(Table { process, inherited, held }));
            let ordering = (Ordering::AcqRel, Ordering::Acquire);
            match self.table.compare_exchange(known, table, ordering.0, ordering.1) {
                Ok(_) => known = table,
                Err(other) => {
                    // SAFETY: just made, and nobody has got it.
                    drop(unsafe { Box::from_raw(table) });
                    known = other;
                }
            }
        }
        // SAFETY: not null, and never freed.
        unsafe { &*known }
    }

    fn with<R>(&self, act: impl FnOnce(&mut HashMap<usize, Arc<T>>) -> R) -> R {
        act(&mut self.table().held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A handle of a thing.
    pub(crate) fn add<H>(&self, thing: T) -> *mut H {
        // What is made before this process has a table counts as made in another.
        self.table();
        let number = self.base + (self.made.fetch_add(1, Ordering::Relaxed) + 1) * 16;
        self.with(|held| held.insert(number, Arc::new(thing)));
        ptr::without_provenance_mut(number)
    }

    /// The thing of a handle.
    ///
    /// # Errors
    /// [`Status::BadHandle`], [`Status::WrongProcess`]
    pub(crate) fn get<H>(&self, handle: *const H) -> Result<Arc<T>, Failure> {
        let thing = self.with(|held| held.get(&handle.addr()).map(Arc::clone));
        thing.ok_or_else(|| self.unknown(handle))
    }

    /// Takes a handle back.
    ///
    /// # Errors
    /// [`Status::BadHandle`], [`Status::WrongProcess`]
    pub(crate) fn remove<H>(&self, handle: *const H) -> Result<Arc<T>, Failure> {
        let thing = self.with(|held| held.remove(&handle.addr()));
        thing.ok_or_else(|| self.unknown(handle))
    }

    fn unknown<H>(&self, handle: *const H) -> Failure {
        let (what, number) = (self.what, handle.addr());
        let inherited = self.base + self.table().inherited * 16;
        if number > self.base && number <= inherited && number % 16 == 0 {
            let text = format!(
                "{number:#x} is a {what} of the process that this one was forked from, which has no access to it; open a space here"
            );
            return Failure::new(Status::WrongProcess, text);
        }
        let text = if number == 0 {
            format!("the {what} is a null pointer; pass one that this library gave")
        } else {
            format!(
                "{number:#x} is no {what} of this process: it was given back before, or never given; pass one that this \
                 library gave"
            )
        };
        Failure::new(Status::BadHandle, text)
    }
}
