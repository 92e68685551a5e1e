//! Keeping the program's signals away from the runtime's threads.
//!
//! A signal handler of the program may touch shared memory. Run on the thread that resolves
//! faults, it would wait for itself. So the runtime's threads block all signals except those that
//! an instruction of their own raises (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP), which cannot be
//! put off.

use core::marker::PhantomData;
use core::mem::MaybeUninit;

const SYNCHRONOUS: [libc::c_int; 5] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

/// The calling thread takes no asynchronous signal while this lives. Signals sent meanwhile go to
/// another thread, or wait.
#[derive(Debug)]
#[must_use = "the signals are let in again when this is dropped"]
pub struct BlockedSignals {
    before: libc::sigset_t,
    /// The mask belongs to the thread that made it.
    _thread: PhantomData<*const ()>,
}

impl BlockedSignals {
    /// Blocks them. Also the way to start a thread without signals: a new thread inherits the
    /// mask of the one that starts it.
    pub fn block() -> BlockedSignals {
        let mut before = empty_set();
        set_mask(libc::SIG_BLOCK, &asynchronous(), Some(&mut before));
        BlockedSignals { before, _thread: PhantomData }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        set_mask(libc::SIG_SETMASK, &self.before, None);
    }
}

/// Blocks all asynchronous signals for the rest of the calling thread's life.
pub fn block_for_whole_thread() {
    set_mask(libc::SIG_BLOCK, &asynchronous(), None);
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set it is given, and cannot fail for a valid pointer.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn asynchronous() -> libc::sigset_t {
    let mut set = empty_set();
    // SAFETY: the set is initialised and the signal numbers are valid.
    unsafe {
        libc::sigfillset(&mut set);
        for signal in SYNCHRONOUS {
            libc::sigdelset(&mut set, signal);
        }
    }
    set
}

fn set_mask(how: libc::c_int, set: &libc::sigset_t, before: Option<&mut libc::sigset_t>) {
    let before = before.map_or(core::ptr::null_mut(), core::ptr::from_mut);
    // SAFETY: both sets are initialised; `before` may be null.
    let errno = unsafe { libc::pthread_sigmask(how, set, before) };
    // The call fails only for a `how` that does not exist.
    debug_assert_eq!(errno, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked(signal: libc::c_int) -> bool {
        let mut now = empty_set();
        set_mask(libc::SIG_BLOCK, &empty_set(), Some(&mut now));
        // SAFETY: the set is initialised.
        unsafe { libc::sigismember(&now, signal) == 1 }
    }

    #[test]
    fn asynchronous_signals_are_blocked_and_let_in_again() {
        assert!(!blocked(libc::SIGUSR1));
        {
            let _guard = BlockedSignals::block();
            assert!(blocked(libc::SIGUSR1) && blocked(libc::SIGINT) && blocked(libc::SIGALRM));
            for signal in SYNCHRONOUS {
                assert!(!blocked(signal), "signal {signal}");
            }
        }
        assert!(!blocked(libc::SIGUSR1));
    }

    #[test]
    fn guards_nest() {
        let outer = BlockedSignals::block();
        drop(BlockedSignals::block());
        assert!(blocked(libc::SIGTERM));
        drop(outer);
        assert!(!blocked(libc::SIGTERM));
    }

    #[test]
    fn a_thread_inherits_the_mask_and_can_keep_it() {
        let guard = BlockedSignals::block();
        assert!(std::thread::spawn(|| blocked(libc::SIGUSR1)).join().unwrap());
        drop(guard);
        let kept = std::thread::spawn(|| {
            block_for_whole_thread();
            blocked(libc::SIGUSR1)
        });
        assert!(kept.join().unwrap());
        assert!(!blocked(libc::SIGUSR1));
    }
}
