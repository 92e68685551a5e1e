//! Children made by fork.

use std::time::{Duration, Instant};

/// Runs `body` in a child made by fork; gives its exit code, or the signal that ended it, negative.
///
/// `body` should do little: other threads do not exist in the child, and their locks stay locked.
pub fn in_child(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child calls `body` and ends without running destructors of the parent's.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        let code = body();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let mut status = 0;
        // SAFETY: waits for the child just made.
        let done = unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) };
        if done == pid {
            let signalled = libc::WIFSIGNALED(status);
            return if signalled { -libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) };
        }
        if Instant::now() > end {
            // SAFETY: ends the child just made, which has not been waited for.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
