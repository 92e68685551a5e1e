//! A child made by fork, whose calls are all refused. Alone in its program: nobody else holds a lock when it forks.

use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};

use farside_c::*;

#[test]
fn a_child_is_told_whose_the_space_is() {
    // SAFETY: numbers and pointers.
    let zeros: FarsideOptions = unsafe { std::mem::zeroed() };
    let options = FarsideOptions {
        size: size_of::<FarsideOptions>() as u32,
        address_space: 16 << 20,
        ..zeros
    };
    let (mut space, mut memory) = (null_mut(), null_mut());
    // SAFETY: a whole record, and places for results.
    unsafe {
        assert_eq!(farside_open(&options, &mut space), Status::Ok);
        assert_eq!(farside_malloc(space, 4096, null(), &mut memory), Status::Ok);
    }
    // SAFETY: the child calls what it may call and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends this process alone, should a call not return.
        unsafe { libc::alarm(20) };
        let bad = in_child(space, memory);
        // SAFETY: ends this process alone.
        unsafe { libc::_exit(bad) };
    }
    let mut ended = 0;
    // SAFETY: a place for the result.
    assert_eq!(unsafe { libc::waitpid(child, &mut ended, 0) }, child);
    assert!(libc::WIFEXITED(ended), "the child ended by signal {}", libc::WTERMSIG(ended));
    assert_eq!(libc::WEXITSTATUS(ended), 0, "the number of the call that was not refused");
    assert_eq!(farside_release(space, memory), Status::Ok);
    assert_eq!(farside_close(space), Status::Ok);
}

/// The number of the first call that is not refused as it should be; 0: none.
fn in_child(space: *mut farside_space, memory: *mut std::ffi::c_void) -> i32 {
    let argument = CArgument { kind: 1, element: 8, word: memory.addr() as u64, bytes: 4096 };
    let (mut other, mut text) = (null_mut(), [0 as c_char; 16]);
    // SAFETY: texts, records, and places for results; nothing touches the memory.
    let statuses = unsafe {
        [
            farside_malloc(space, 8, null(), &mut other),
            farside_call(space, c"farside.sum".as_ptr(), &argument, 1, null(), null_mut()),
            farside_migrate(space, memory, 4096, 0, null_mut()),
            farside_pin(space, memory, 4096, -1),
            farside_why(space, memory, text.as_mut_ptr(), text.len(), null_mut()),
            farside_malloc_on(space, 0, 0, 8, &mut other),
        ]
    };
    let wrong = statuses.iter().position(|status| *status != Status::WrongProcess);
    if let Some(at) = wrong {
        // SAFETY: the text of this thread's last error.
        let said = unsafe { CStr::from_ptr(farside_last_error()) };
        eprintln!("call {}: {:?}; last: {said:?}", at + 1, statuses[at]);
    }
    wrong.map_or(0, |at| at as i32 + 1)
}
