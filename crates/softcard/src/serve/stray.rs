//! Accesses to bus addresses that no window covers.
//!
//! Nothing is mapped there. A kernel that still holds memory that its client has taken away would end
//! its worker with SIGSEGV; it may touch [`PAGES_MAX`] such pages, which become memory that nobody
//! else sees. This keeps a program's card alive while the windows of another of its cards change.
//! Whoever touches more of them ends its lease.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use farside_types::PAGE_SIZE;

/// Pages of that kind that a process may have.
pub(super) const PAGES_MAX: usize = 1024;

/// Stretches of address space at a time: one in a worker, some in tests.
const WATCHED_MAX: usize = 16;

struct Watched {
    start: AtomicUsize,
    end: AtomicUsize,
}

static WATCHED: [Watched; WATCHED_MAX] =
    [const { Watched { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; WATCHED_MAX];
static COUNT: AtomicUsize = AtomicUsize::new(0);
static PAGES: AtomicUsize = AtomicUsize::new(0);

/// Lets accesses to where nothing is mapped in `bus`, a reservation that lives as long as the process,
/// find empty pages.
///
/// # Errors
/// No more stretches, or those of `sigaction`.
pub(super) fn watch(bus: Range<usize>) -> io::Result<()> {
    let slot = COUNT.fetch_add(1, Ordering::SeqCst);
    let watched = WATCHED.get(slot).ok_or_else(|| io::Error::other("too many buses"))?;
    watched.end.store(bus.end, Ordering::SeqCst);
    watched.start.store(bus.start, Ordering::SeqCst);
    // SAFETY: the handler only reads atomics and calls `mprotect`, so it may run anywhere; the
    // structure is zero but for what is set.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as extern "C" fn(_, *mut libc::siginfo_t, _) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel gives the signal's own description.
    let address = unsafe { (*info).si_addr() } as usize;
    if !give_page(address) {
        // As if nobody had asked for it: the access is made again, and ends the process.
        // SAFETY: sets the default action, which may be done in a handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Makes the page at an address an empty one. A window that was put there meanwhile stays what it is.
fn give_page(address: usize) -> bool {
    let holds = |watched: &Watched| {
        (watched.start.load(Ordering::SeqCst)..watched.end.load(Ordering::SeqCst))
            .contains(&address)
    };
    if !WATCHED.iter().any(holds) || PAGES.fetch_add(1, Ordering::SeqCst) >= PAGES_MAX {
        return false;
    }
    let page = (address & !(PAGE_SIZE - 1)) as *mut libc::c_void;
    // SAFETY: the page lies in a reservation that is mapped as long as the process lives and that
    // only raw accesses are made to. Where a window is, it can be read and written already, or it is
    // private, and what is written then stays here.
    unsafe { libc::mprotect(page, PAGE_SIZE, libc::PROT_READ | libc::PROT_WRITE) == 0 }
}
