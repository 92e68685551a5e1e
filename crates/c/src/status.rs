//! How calls end.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use farside::{Error, KernelsError, LiveError, RequestError as Request, WindowError};

/// How a call ended. farside_last_error() says more of what is not FARSIDE_STATUS_OK or
/// FARSIDE_STATUS_RUNNING. Later versions may have more statuses.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// The kernel has not ended within the time that was given.
    Running = 1,
    /// An argument cannot be: a null pointer, a setting, a size, a text that is not UTF-8.
    BadArgument = 2,
    /// No such space or job, or it was closed or freed before.
    BadHandle = 3,
    /// An address that is in no memory of the space, or in memory that was freed.
    BadMemory = 4,
    /// Memory is held by a kernel that has not ended.
    Lent = 5,
    /// The space has no more addresses, or a card no more memory.
    NoMemory = 6,
    /// The space has no card of that number, or no longer.
    NoCard = 7,
    /// There is no kernel of that name, or a library of kernels or of a scheme cannot be used.
    NoKernel = 8,
    /// A kernel was refused, failed, was cancelled, or took too long.
    KernelFailed = 9,
    /// The space was opened by the process that this one was forked from.
    WrongProcess = 10,
    /// Something that the machine, a card or the driver could not do.
    Failed = 11,
    /// A mistake in Farside itself.
    Internal = 12,
}

/// Why a call was not done.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    text: String,
}

impl Failure {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Failure {
        Failure { status, text: text.into() }
    }

    pub(crate) fn argument(text: impl Into<String>) -> Failure {
        Failure::new(Status::BadArgument, text)
    }

    pub(crate) fn null(what: &str) -> Failure {
        Failure::argument(format!("{what} is a null pointer; pass one to where it shall be"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { status: status_of(&error), text: error.to_string() }
    }
}

fn status_of(error: &Error) -> Status {
    match error {
        Error::Cards { .. }
        | Error::Setting { .. }
        | Error::Scheme(_)
        | Error::OwnMemory(_)
        | Error::Uneven { .. } => Status::BadArgument,
        Error::Live(live) => match live {
            LiveError::WrongProcess { .. } => Status::WrongProcess,
            LiveError::NoSuchCard { .. } => Status::NoCard,
            LiveError::NotShared { .. } => Status::BadMemory,
            LiveError::Adopt(error) if error.is_of_the_memory() => Status::BadMemory,
            LiveError::File(error) if error.is_of_the_argument() => Status::BadArgument,
            LiveError::Request(request) => match request {
                Request::EmptyAllocation | Request::EmptyRange | Request::NotPinned { .. } => {
                    Status::BadArgument
                }
                Request::OutOfAddressSpace { .. } | Request::DoesNotFit { .. } => Status::NoMemory,
                Request::NotAnAllocation { .. }
                | Request::Unallocated { .. }
                | Request::InTheSpace { .. } => Status::BadMemory,
                Request::NoSuchMemory { .. } => Status::NoCard,
                _ => Status::Failed,
            },
            _ => Status::Failed,
        },
        Error::Window(WindowError::WrongProcess { .. }) => Status::WrongProcess,
        Error::Window(window) if window.is_full() => Status::NoMemory,
        Error::Window(window) if window.is_unknown_memory() => Status::BadArgument,
        Error::Kernels(KernelsError::Unknown { .. } | KernelsError::Library { .. })
        | Error::SchemeLibrary(_) => Status::NoKernel,
        Error::Kernels(_) => Status::BadArgument,
        Error::Kernel(_) | Error::Piece { .. } => Status::KernelFailed,
        Error::NotAllocated { .. } | Error::NoMemory { .. } => Status::BadMemory,
        Error::StaysOnCard { .. } => Status::BadMemory,
        Error::Lent { .. } => Status::Lent,
        Error::Closed => Status::BadHandle,
        Error::Window(_) | Error::Move(_) | Error::Recording { .. } | Error::Events { .. } => {
            Status::Failed
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs a call. What is wrong becomes its status, and the text of this thread's last error.
pub(crate) fn call(act: impl FnOnce() -> Result<Status, Failure>) -> Status {
    // Nothing of the caller's is seen in a state in between: what a call changes it changes under a lock of its own.
    let ended = catch_unwind(AssertUnwindSafe(act));
    let failure = match ended {
        Ok(Ok(status)) => return status,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::new(Status::Internal, said(&*panic)),
    };
    let text: Vec<u8> = failure.text.bytes().filter(|&byte| byte != 0).collect();
    // Where the thread is ending there is nobody left to ask.
    let _ = LAST.try_with(|last| last.replace(CString::new(text).unwrap_or_default()));
    failure.status
}

/// The same for a call that has nothing to give.
pub(crate) fn done(act: impl FnOnce() -> Result<(), Failure>) -> Status {
    call(|| act().map(|()| Status::Ok))
}

fn said(panic: &(dyn Any + Send)) -> String {
    let what = panic.downcast_ref::<String>().map(String::as_str);
    let what = what.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
    format!("a mistake in Farside, please report it: {what}")
}

/// What was wrong with the last call of this thread that failed, and what to do about it. The text is valid until the
/// thread's next call; it is empty if none has failed.
#[unsafe(no_mangle)]
pub extern "C" fn farside_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// What a status means, in general. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn farside_status_text(status: i32) -> *const c_char {
    let text = match status {
        0 => c"done",
        1 => c"the kernel still runs",
        2 => c"an argument cannot be",
        3 => c"no such space or job, or no longer",
        4 => c"no memory of the space, or no longer",
        5 => c"held by a kernel that has not ended",
        6 => c"no more addresses, or no more memory on the card",
        7 => c"no such card, or no longer",
        8 => c"no such kernel, or a library that cannot be used",
        9 => c"the kernel failed",
        10 => c"of the process that this one was forked from",
        11 => c"could not be done",
        12 => c"a mistake in Farside",
        _ => c"a status of a later version",
    };
    text.as_ptr()
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn a_panic_is_a_status_with_its_text_and_ends_nothing() {
        let status = call(|| panic!("the {} is on fire", "printer"));
        assert_eq!(status, Status::Internal);
        // SAFETY: the text of this thread's last error.
        let said = unsafe { CStr::from_ptr(farside_last_error()) }.to_str().unwrap();
        assert!(said.contains("please report it: the printer is on fire"), "{said}");
        assert_eq!(done(|| Ok(())), Status::Ok);
    }
}
