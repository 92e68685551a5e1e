//! The error numbers that replies carry.

use std::fmt;
use std::io;

/// An error number as it stands in the header of an error reply (Linux numbering).
///
/// Zero is possible on the wire: the other side reports an error without saying which.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(u32);

macro_rules! errnos {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = concat!("E", stringify!($name), ": ", $text, ".")]
            pub const $name: Errno = Errno($code);)*

            fn known(self) -> Option<(&'static str, &'static str)> {
                match self.0 {
                    $($code => Some((concat!("E", stringify!($name)), $text)),)*
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    PERM = 1, "operation not permitted";
    NOENT = 2, "no such entry";
    IO = 5, "input/output error";
    BADF = 9, "bad file descriptor";
    AGAIN = 11, "try again";
    NOMEM = 12, "out of memory";
    ACCES = 13, "permission denied";
    FAULT = 14, "bad address";
    BUSY = 16, "device or resource busy";
    EXIST = 17, "already exists";
    NODEV = 19, "no such device";
    INVAL = 22, "invalid argument";
    NOTTY = 25, "no such feature";
    NOSPC = 28, "no space left";
    PIPE = 32, "broken pipe";
    RANGE = 34, "out of range";
    PROTO = 71, "protocol error";
    MSGSIZE = 90, "message too long";
    NOTSUP = 95, "operation not supported";
    TIMEDOUT = 110, "timed out";
    CANCELED = 125, "canceled";
}

impl Errno {
    /// The error with this Linux number.
    #[must_use]
    pub const fn new(code: u32) -> Errno {
        Errno(code)
    }

    /// Its Linux number, 0 if the other side gave none.
    #[must_use]
    pub const fn code(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known() {
            Some((name, text)) => write!(f, "{text} ({name})"),
            None if self.0 == 0 => f.write_str("an error without a number"),
            None => write!(f, "error number {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known() {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl std::error::Error for Errno {}

impl From<io::Error> for Errno {
    /// The number of the system call's error; EIO if it has none.
    fn from(error: io::Error) -> Errno {
        match error.raw_os_error() {
            Some(code) if code > 0 => Errno(code.unsigned_abs()),
            _ => Errno::IO,
        }
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> io::Error {
        match i32::try_from(errno.0) {
            Ok(code) if code > 0 => io::Error::from_raw_os_error(code),
            _ => io::Error::other(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        assert_eq!(format!("{:?}", Errno::BUSY), "EBUSY");
        assert_eq!(format!("{}", Errno::BUSY), "device or resource busy (EBUSY)");
        assert_eq!(format!("{}", Errno::new(0)), "an error without a number");
        assert_eq!(format!("{:?}", Errno::new(4000)), "Errno(4000)");
    }

    #[test]
    fn there_and_back_through_io_error() {
        assert_eq!(Errno::from(io::Error::from(Errno::NOSPC)), Errno::NOSPC);
        assert_eq!(Errno::from(io::Error::from(Errno::new(0))), Errno::IO);
        assert_eq!(Errno::from(io::Error::from(Errno::new(u32::MAX))), Errno::IO);
    }
}
