//! The records of `include/farside-scheme.h`, field by field.

use std::ffi::{c_char, c_void};

/// Version of the interface.
pub const ABI_VERSION: u32 = 1;

/// `FARSIDE_NOWHERE`.
pub(crate) const NOWHERE: u32 = 255;

/// `farside_parameter`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CParameter {
    pub(crate) key: *const c_char,
    pub(crate) about: *const c_char,
    pub(crate) kind: u32,
    pub(crate) standard: u32,
    pub(crate) least: u32,
    pub(crate) most: u32,
}

/// `farside_fault`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CFault {
    pub(crate) now_ns: u64,
    pub(crate) page: u64,
    pub(crate) object_first: u64,
    pub(crate) object_pages: u64,
    pub(crate) note: *mut u64,
    pub(crate) bring_ns: u64,
    pub(crate) far_ns: u64,
    pub(crate) agent: u32,
    pub(crate) owner: u32,
    pub(crate) copies: u32,
    pub(crate) mappers: u32,
    pub(crate) room: u32,
    pub(crate) write: u8,
    pub(crate) protection: u8,
    pub(crate) again: u8,
    pub(crate) may_lend: u8,
}

/// `farside_decision`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CDecision {
    pub(crate) action: u32,
    pub(crate) scope: u32,
    pub(crate) reason: u32,
    pub(crate) flags: u32,
    pub(crate) first: u64,
    pub(crate) pages: u64,
}

/// `farside_notice`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CNotice {
    pub(crate) now_ns: u64,
    pub(crate) first: u64,
    pub(crate) pages: u64,
    pub(crate) notes: *mut u64,
    pub(crate) bring_ns: u64,
    pub(crate) far_ns: u64,
    pub(crate) agent: u32,
    pub(crate) count: u32,
}

/// `farside_move`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CMove {
    pub(crate) first: u64,
    pub(crate) pages: u64,
    pub(crate) to: u32,
    pub(crate) reason: u32,
}

/// `farside_sample`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CSample {
    pub(crate) page: u64,
    pub(crate) agent: u32,
    pub(crate) accesses: u32,
}

pub(crate) type OnFault =
    unsafe extern "C" fn(state: *mut c_void, fault: *const CFault, answer: *mut CDecision);
pub(crate) type OnRange = unsafe extern "C" fn(state: *mut c_void, first: u64, pages: u64);

/// `farside_scheme`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CScheme {
    pub(crate) abi_version: u32,
    pub(crate) size: u32,
    pub(crate) name: *const c_char,
    pub(crate) about: *const c_char,
    pub(crate) parameters: *const CParameter,
    pub(crate) parameter_count: u32,
    pub(crate) notes: u32,
    pub(crate) grain: u64,
    pub(crate) create:
        Option<unsafe extern "C" fn(values: *const u32, why: *mut *const c_char) -> *mut c_void>,
    pub(crate) destroy: Option<unsafe extern "C" fn(state: *mut c_void)>,
    pub(crate) on_fault: Option<OnFault>,
    pub(crate) on_counter: Option<
        unsafe extern "C" fn(
            state: *mut c_void,
            notice: *const CNotice,
            answers: *mut CDecision,
            capacity: u32,
        ) -> u32,
    >,
    pub(crate) on_alloc: Option<OnRange>,
    pub(crate) on_free: Option<OnRange>,
    pub(crate) on_written:
        Option<unsafe extern "C" fn(state: *mut c_void, first: u64, pages: u64, written: u32)>,
    pub(crate) mode:
        Option<unsafe extern "C" fn(state: *mut c_void, page: u64, note: *const u64) -> u32>,
    pub(crate) sample_every_ns: Option<unsafe extern "C" fn(state: *mut c_void) -> u64>,
    pub(crate) on_samples: Option<
        unsafe extern "C" fn(
            state: *mut c_void,
            now_ns: u64,
            samples: *const CSample,
            count: u64,
            moves: *mut CMove,
            capacity: u32,
        ) -> u32,
    >,
    pub(crate) save:
        Option<unsafe extern "C" fn(state: *mut c_void, bytes: *mut u8, capacity: u64) -> u64>,
    pub(crate) restore:
        Option<unsafe extern "C" fn(state: *mut c_void, bytes: *const u8, count: u64) -> i32>,
}

/// `farside_scheme_export`.
pub(crate) type Export = unsafe extern "C" fn(abi_version: u32) -> *const CScheme;
