//! A placement scheme of one's own for Farside, in Rust: `farside-scheme.h` as a trait. The header says what
//! each function is told and may answer, in which units, and by which rules.
//!
//! A library (`crate-type = ["cdylib"]`) implements [`Scheme`] and names it in [`export_scheme!`]. It depends on
//! nothing. A panic ends the process.

#![allow(dead_code)]

use std::ffi::{c_char, c_void, CStr};
use std::ptr::{null, null_mut};

/// Version of the interface.
const ABI_VERSION: u32 = 1;

/// The CPU, and host memory. Card n is n + 1.
pub const HOST: u32 = 0;
/// Where a page is that nobody has written.
pub const NOWHERE: u32 = 255;

/// A placement scheme.
pub trait Scheme: Send + Sized {
    /// As tables show it: letters, digits, `-` and `_`.
    const NAME: &'static CStr;
    /// What it does, in a line.
    const ABOUT: &'static CStr;
    /// What follows its name.
    const PARAMETERS: &'static [Parameter] = &[];
    /// Whether it wants a word of its own for each page, 0 when the page is allocated.
    const NOTES: bool = false;
    /// Pages of an aligned run for which an answer holds that are alike in all a fault says but its page and note.
    const GRAIN: u64 = 1;

    /// With the values of its parameters, or why it cannot be.
    fn new(values: &[u32]) -> Result<Self, &'static CStr>;

    /// An agent faulted. Without notes, `note` is a word that is forgotten.
    fn on_fault(&mut self, fault: &Fault, note: &mut u64) -> Decision;

    /// A card's accesses to a group reached the threshold: adds at most as many answers as the group has pages.
    fn on_counter(&mut self, notice: &Notice, notes: &mut [u64], answers: &mut Vec<Decision>) {
        let _ = (notice, notes, answers);
    }

    /// Pages were freed; their notes are gone.
    fn on_free(&mut self, first: u64, pages: u64) {
        let _ = (first, pages);
    }

    /// How a page is placed, for statistics.
    fn mode(&self, page: u64, note: u64) -> Mode {
        let _ = (page, note);
        Mode::OnTouch
    }
}

/// A parameter.
#[repr(C)]
pub struct Parameter {
    key: *const c_char,
    about: *const c_char,
    kind: u32,
    standard: u32,
    least: u32,
    most: u32,
}

impl Parameter {
    /// A whole number from `least` to `most`.
    pub const fn number(key: &'static CStr, about: &'static CStr, standard: u32, least: u32, most: u32) -> Parameter {
        Parameter { key: key.as_ptr(), about: about.as_ptr(), kind: 0, standard, least, most }
    }

    /// `on` (1) or `off` (0).
    pub const fn switch(key: &'static CStr, about: &'static CStr, standard: bool) -> Parameter {
        Parameter { key: key.as_ptr(), about: about.as_ptr(), kind: 1, standard: standard as u32, least: 0, most: 1 }
    }
}

/// A set of agents or of memories.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set(pub u32);

impl Set {
    /// Whether it has this one.
    pub fn has(self, member: u32) -> bool {
        self.0.checked_shr(member).is_some_and(|set| set & 1 == 1)
    }

    /// The set without this one.
    pub fn without(self, member: u32) -> Set {
        Set(self.0 & !1_u32.checked_shl(member).unwrap_or(0))
    }

    /// How many it has.
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A page at the moment an agent asks for it.
#[repr(C)]
#[derive(Debug)]
pub struct Fault {
    pub now_ns: u64,
    pub page: u64,
    pub object_first: u64,
    pub object_pages: u64,
    note: *mut u64,
    /// What it takes to bring a page now; 0: nobody knows, as on live machines.
    pub bring_ns: u64,
    /// An access to a line of another memory; 0: nobody knows.
    pub far_ns: u64,
    pub agent: u32,
    pub owner: u32,
    pub copies: Set,
    pub mappers: Set,
    pub room: u32,
    pub write: u8,
    pub protection: u8,
    pub again: u8,
    pub may_lend: u8,
}

/// A group that an agent has accessed over the bus as often as the threshold.
#[repr(C)]
#[derive(Debug)]
pub struct Notice {
    pub now_ns: u64,
    pub first: u64,
    pub pages: u64,
    notes: *mut u64,
    /// As of a fault.
    pub bring_ns: u64,
    /// As of a fault.
    pub far_ns: u64,
    pub agent: u32,
    pub count: u32,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Migrate,
    Duplicate,
    MapRemote,
    MapOnHost,
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Demand,
    Counter,
    Collapse,
    Prefetch,
    Thrash,
}

/// How a page is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    OnTouch,
    AccessCounter,
    Duplication,
}

/// An answer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    action: u32,
    scope: u32,
    reason: u32,
    flags: u32,
    first: u64,
    pages: u64,
}

impl Decision {
    /// For the page alone; of a notice, its group.
    pub fn page(action: Action, reason: Reason) -> Decision {
        Decision { action: action as u32, scope: 0, reason: reason as u32, flags: 0, first: 0, pages: 0 }
    }

    /// For its group of 16 pages.
    pub fn group(self) -> Decision {
        Decision { scope: 1, ..self }
    }

    /// For these pages, which are in the allocation.
    pub fn range(self, first: u64, pages: u64) -> Decision {
        Decision { scope: 2, first, pages, ..self }
    }

    /// For the whole allocation.
    pub fn object(self) -> Decision {
        Decision { scope: 3, ..self }
    }

    /// Pages beyond the one asked for also leave cards that run a kernel.
    pub fn firm(self) -> Decision {
        Decision { flags: self.flags | 1, ..self }
    }

    /// A page that is read comes with the right to write, where `may_lend`.
    pub fn lends(self) -> Decision {
        Decision { flags: self.flags | 2, ..self }
    }
}

type Create = unsafe extern "C" fn(*const u32, *mut *const c_char) -> *mut c_void;
type OnCounter = unsafe extern "C" fn(*mut c_void, *const Notice, *mut Decision, u32) -> u32;

/// `farside_scheme`. What is not offered here is NULL.
#[repr(C)]
pub struct Table {
    abi_version: u32,
    size: u32,
    name: *const c_char,
    about: *const c_char,
    parameters: *const Parameter,
    parameter_count: u32,
    notes: u32,
    grain: u64,
    create: Create,
    destroy: unsafe extern "C" fn(*mut c_void),
    on_fault: unsafe extern "C" fn(*mut c_void, *const Fault, *mut Decision),
    on_counter: OnCounter,
    on_alloc: *const c_void,
    on_free: unsafe extern "C" fn(*mut c_void, u64, u64),
    on_written: *const c_void,
    mode: unsafe extern "C" fn(*mut c_void, u64, *const u64) -> u32,
    sample_every_ns: *const c_void,
    on_samples: *const c_void,
    save: *const c_void,
    restore: *const c_void,
}

// SAFETY: all that it points to is constant.
unsafe impl Sync for Table {}

/// The table of a scheme.
pub const fn table<S: Scheme>() -> Table {
    Table {
        abi_version: ABI_VERSION,
        size: std::mem::size_of::<Table>() as u32,
        name: S::NAME.as_ptr(),
        about: S::ABOUT.as_ptr(),
        parameters: S::PARAMETERS.as_ptr(),
        parameter_count: S::PARAMETERS.len() as u32,
        notes: S::NOTES as u32,
        grain: S::GRAIN,
        create: create::<S>,
        destroy: destroy::<S>,
        on_fault: on_fault::<S>,
        on_counter: on_counter::<S>,
        on_alloc: null(),
        on_free: on_free::<S>,
        on_written: null(),
        mode: mode::<S>,
        sample_every_ns: null(),
        on_samples: null(),
        save: null(),
        restore: null(),
    }
}

// SAFETY, of all that follow: the host calls one at a time, with the state that `create` gave until `destroy`, and
// with records that live until the call returns. That is the header's promise.

unsafe extern "C" fn create<S: Scheme>(values: *const u32, why: *mut *const c_char) -> *mut c_void {
    let values = match S::PARAMETERS.len() {
        0 => &[],
        count => unsafe { std::slice::from_raw_parts(values, count) },
    };
    match S::new(values) {
        Ok(scheme) => Box::into_raw(Box::new(scheme)).cast(),
        Err(text) => {
            unsafe { *why = text.as_ptr() };
            null_mut()
        }
    }
}

unsafe extern "C" fn destroy<S: Scheme>(state: *mut c_void) {
    drop(unsafe { Box::from_raw(state.cast::<S>()) });
}

unsafe extern "C" fn on_fault<S: Scheme>(state: *mut c_void, fault: *const Fault, answer: *mut Decision) {
    let (scheme, fault) = unsafe { (&mut *state.cast::<S>(), &*fault) };
    let mut spare = 0;
    let note = unsafe { fault.note.as_mut() }.unwrap_or(&mut spare);
    unsafe { *answer = scheme.on_fault(fault, note) };
}

unsafe extern "C" fn on_counter<S: Scheme>(
    state: *mut c_void,
    notice: *const Notice,
    answers: *mut Decision,
    capacity: u32,
) -> u32 {
    let (scheme, notice) = unsafe { (&mut *state.cast::<S>(), &*notice) };
    let notes: &mut [u64] = match notice.notes.is_null() {
        true => &mut [],
        false => unsafe { std::slice::from_raw_parts_mut(notice.notes, notice.pages as usize) },
    };
    let mut given = Vec::new();
    scheme.on_counter(notice, notes, &mut given);
    for (index, decision) in given.iter().take(capacity as usize).enumerate() {
        unsafe { *answers.add(index) = *decision };
    }
    given.len() as u32
}

unsafe extern "C" fn on_free<S: Scheme>(state: *mut c_void, first: u64, pages: u64) {
    unsafe { &mut *state.cast::<S>() }.on_free(first, pages);
}

unsafe extern "C" fn mode<S: Scheme>(state: *mut c_void, page: u64, note: *const u64) -> u32 {
    let note = unsafe { note.as_ref() }.copied().unwrap_or(0);
    unsafe { &*state.cast::<S>() }.mode(page, note) as u32
}

/// Exports a scheme.
macro_rules! export_scheme {
    ($scheme:ty) => {
        static TABLE: $crate::farside_scheme::Table = $crate::farside_scheme::table::<$scheme>();

        #[no_mangle]
        pub extern "C" fn farside_scheme_export(
            abi_version: u32,
        ) -> Option<&'static $crate::farside_scheme::Table> {
            (abi_version == 1).then_some(&TABLE)
        }
    };
}
pub(crate) use export_scheme;
