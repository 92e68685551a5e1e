//! What memory a range is: `/proc/self/maps`.

use farside_types::{PAGE_SHIFT, PageNo, PageRange, VirtAddr};
use rustix::io::Errno;

use super::AdoptError;

/// A line of the map.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    start: u64,
    end: u64,
    rights: &'a str,
    inode: u64,
    name: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Line<'a>> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?;
        let rights = words.next()?;
        let (_offset, _device) = (words.next()?, words.next()?);
        let inode = words.next()?.trim().parse().ok()?;
        Some(Line { start, end, rights, inode, name: words.next().unwrap_or("").trim() })
    }

    /// Whether it is the program's own memory without a file behind it.
    fn is_anonymous(&self) -> bool {
        let named = ["[heap]", "[stack]"].contains(&self.name) || self.name.starts_with("[anon:");
        self.inode == 0 && (self.name.is_empty() || named)
    }
}

/// Checks that all of `bytes` bytes at `addr` are private anonymous memory that can be read and written.
///
/// # Errors
/// [`AdoptError`] names the first address where it is not so.
pub(crate) fn check_private(addr: VirtAddr, bytes: u64) -> Result<(), AdoptError> {
    check_in(&text()?, addr, bytes)
}

/// The pages from an address on that are of one mapping.
pub(super) fn pages_from(start: PageNo) -> Result<PageRange, AdoptError> {
    let at = start.addr().0;
    let text = text()?;
    let line =
        text.lines().filter_map(Line::parse).find(|line| (line.start..line.end).contains(&at));
    let count = line.map_or(0, |line| (line.end - at) >> PAGE_SHIFT);
    Ok(PageRange::new(start, count))
}

fn text() -> Result<String, AdoptError> {
    std::fs::read_to_string("/proc/self/maps").map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        AdoptError::Maps { errno }
    })
}

fn check_in(text: &str, addr: VirtAddr, bytes: u64) -> Result<(), AdoptError> {
    let (mut at, end) = (addr.0, addr.0 + bytes);
    for line in text.lines().filter_map(Line::parse) {
        if at >= end {
            break;
        }
        if line.end <= at {
            continue;
        }
        let addr = VirtAddr(at);
        if line.start > at {
            return Err(AdoptError::Hole { addr });
        }
        if !line.rights.ends_with('p') || !line.is_anonymous() {
            let shared = if line.rights.ends_with('p') { "" } else { "shared memory, " };
            let name = if line.name.is_empty() { "without a name" } else { line.name };
            return Err(AdoptError::NotPrivate { addr, what: format!("{shared}{name}") });
        }
        if !line.rights.starts_with("rw") {
            return Err(AdoptError::Rights { addr, rights: line.rights.to_owned() });
        }
        at = line.end;
    }
    if at < end { Err(AdoptError::Hole { addr: VirtAddr(at) }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "\
00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon
00e03000-00e24000 rw-p 00000000 00:00 0           [heap]
7f0000000000-7f0000010000 rw-p 00000000 00:00 0
7f0000010000-7f0000020000 r--p 00000000 00:00 0
7f0000020000-7f0000030000 rw-s 00000000 00:01 99                         /memfd:farside-arena (deleted)
7f0000040000-7f0000050000 rw-p 00000000 00:00 0                          [anon: glibc: malloc]
7f0000050000-7f0000060000 rw-p 00001000 08:02 135522                     /usr/lib/libc.so
7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0                          [stack]
";

    #[test]
    fn private_anonymous_memory_is_known_and_all_else_is_named_with_its_address() {
        let check = |addr, bytes| check_in(MAP, VirtAddr(addr), bytes);
        assert_eq!(check(0x00e03010, 0x100), Ok(()));
        assert_eq!(check(0x7f0000000000, 0x10000), Ok(()));
        assert_eq!(check(0x7f0000040000, 0x10000), Ok(()));
        assert_eq!(check(0x7ffe00001000, 8), Ok(()));
        let hole = |addr| Err(AdoptError::Hole { addr: VirtAddr(addr) });
        assert_eq!(check(0x7f0000030000, 1), hole(0x7f0000030000));
        assert_eq!(check(0x00e23fff, 2), hole(0x00e24000));
        assert_eq!(check(0x7ffe00020000, 0x2000), hole(0x7ffe00021000));
        let why = |addr, bytes| check(addr, bytes).unwrap_err().to_string();
        assert!(why(0x7f000000f000, 0x2000).contains("at 0x7f0000010000 is r--p"));
        assert!(why(0x7f0000020000, 1).contains("shared memory, /memfd:farside-arena"));
        assert!(why(0x7f000004ffff, 2).contains("at 0x7f0000050000 is /usr/lib/libc.so"));
        assert!(why(0x400000, 1).contains("/usr/bin/dbus-daemon"));
    }

    #[test]
    fn memory_of_this_process_is_what_it_is() {
        let heap = vec![1u8; 1 << 20];
        let on_stack = [0u8; 64];
        static CONSTANT: [u8; 64] = [7; 64];
        let check =
            |slice: &[u8]| check_private(VirtAddr(slice.as_ptr() as u64), slice.len() as u64);
        assert_eq!(check(&heap), Ok(()));
        assert_eq!(check(&on_stack), Ok(()));
        assert!(matches!(check(&CONSTANT), Err(AdoptError::NotPrivate { .. })));
    }
}
