//! Calls that cannot be: each is refused with its status and a text, and nothing is lost.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

use farside_c::*;

const READ: u32 = 1;
const WRITE: u32 = 2;

fn said() -> String {
    // SAFETY: the text of this thread's last error.
    unsafe { CStr::from_ptr(farside_last_error()) }.to_str().unwrap().to_owned()
}

/// That a call was refused with a status and with these words.
#[track_caller]
fn refused(status: Status, expected: Status, words: &str) {
    assert_eq!(status, expected, "{}", said());
    assert!(said().contains(words), "`{}` says nothing of `{words}`", said());
}

#[track_caller]
fn well(status: Status) {
    assert_eq!(status, Status::Ok, "{}", said());
}

fn options() -> FarsideOptions {
    // SAFETY: numbers and pointers.
    let zeros = unsafe { std::mem::zeroed() };
    FarsideOptions { size: size_of::<FarsideOptions>() as u32, ..zeros }
}

fn how() -> FarsideLaunch {
    // SAFETY: numbers and pointers.
    let zeros = unsafe { std::mem::zeroed() };
    FarsideLaunch { size: size_of::<FarsideLaunch>() as u32, ..zeros }
}

fn open(options: &FarsideOptions) -> *mut farside_space {
    let mut space = null_mut();
    // SAFETY: a whole record, and a place for the result.
    well(unsafe { farside_open(options, &mut space) });
    space
}

fn small() -> *mut farside_space {
    open(&FarsideOptions { address_space: 16 << 20, card_window: 1 << 20, ..options() })
}

fn malloc(space: *mut farside_space, bytes: usize) -> *mut c_void {
    let mut memory = null_mut();
    // SAFETY: no name, and a place for the result.
    well(unsafe { farside_malloc(space, bytes, null(), &mut memory) });
    memory
}

fn lend(kind: u32, memory: *mut c_void, bytes: u64) -> CArgument {
    CArgument { kind, element: 8, word: memory.addr() as u64, bytes }
}

fn call(space: *mut farside_space, name: &CStr, arguments: &[CArgument]) -> Status {
    let (first, count) = (arguments.as_ptr(), arguments.len() as u32);
    // SAFETY: a text, records, and no place for a result.
    unsafe { farside_call(space, name.as_ptr(), first, count, null(), null_mut()) }
}

/// Holds what it is lent until the word that `user` points to is not 0.
unsafe extern "C" fn hold(user: *mut c_void, _: *const *mut c_void, _: u64, _: u64) -> i32 {
    // SAFETY: the tests pass the address of a flag that lives on.
    let flag = unsafe { &*(*user.cast::<usize>() as *const std::sync::atomic::AtomicU32) };
    while flag.load(std::sync::atomic::Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    0
}

#[test]
fn a_space_that_cannot_be_is_not_opened() {
    let mut space = null_mut();
    let mut refuse = |options: &FarsideOptions, words: &str| {
        // SAFETY: a record, and a place for the result.
        refused(unsafe { farside_open(options, &mut space) }, Status::BadArgument, words);
    };
    refuse(&FarsideOptions { cards: 17, ..options() }, "1 to 16 cards");
    refuse(&FarsideOptions { card_memory: 4097, ..options() }, "multiple of 4096");
    refuse(&FarsideOptions { processing_elements: 70_000, ..options() }, "1 to 1024");
    refuse(&FarsideOptions { size: 0, ..options() }, "FARSIDE_OPTIONS_INIT");
    refuse(&FarsideOptions { size: 3, ..options() }, "FARSIDE_OPTIONS_INIT");
    refuse(&FarsideOptions { size: u32::MAX, ..options() }, "FARSIDE_OPTIONS_INIT");
    refuse(&FarsideOptions { placement: c"nonsense".as_ptr(), ..options() }, "nonsense");
    refuse(&FarsideOptions { cards_at: c"tcp:?".as_ptr(), ..options() }, "tcp:?");
    let missing = FarsideOptions { placement: c"/nowhere.so:a=1".as_ptr(), ..options() };
    // SAFETY: a record, and a place for the result.
    let opened = unsafe { farside_open(&missing, &mut null_mut()) };
    refused(opened, Status::NoKernel, "/nowhere.so");
    let latin = [0xe4u8 as c_char, 0];
    refuse(&FarsideOptions { placement: latin.as_ptr(), ..options() }, "not UTF-8");
    let libraries = [c"/nowhere.so".as_ptr(), null()];
    let lacking = FarsideOptions { kernel_libraries: libraries.as_ptr(), ..options() };
    // SAFETY: a record, and a place for the result; then none.
    unsafe {
        refused(farside_open(&lacking, &mut space), Status::NoKernel, "/nowhere.so");
        refused(farside_open(null(), null_mut()), Status::BadArgument, "null pointer");
    }
    assert!(space.is_null());
}

#[test]
fn records_of_other_versions_are_read_as_far_as_they_are_known() {
    #[repr(C)]
    struct Later(FarsideOptions, u64);
    let size = size_of::<Later>() as u32;
    let mut later = Later(FarsideOptions { size, cards: 3, ..options() }, 0);
    let (mut space, mut cards) = (null_mut(), 0);
    // SAFETY: records as long as they say, and places for results.
    unsafe {
        well(farside_open(&later.0, &mut space));
        well(farside_cards(space, &mut cards));
        assert_eq!(cards, 3);
        well(farside_close(space));
        later.1 = 1;
        refused(farside_open(&later.0, &mut space), Status::BadArgument, "later version");
        // An earlier one has two members.
        let earlier = [8u32, 4];
        well(farside_open(earlier.as_ptr().cast(), &mut space));
        well(farside_cards(space, &mut cards));
        assert_eq!(cards, 4);
        well(farside_close(space));
    }
}

#[test]
fn handles_that_are_none_are_refused() {
    let space = small();
    let memory = malloc(space, 64);
    well(farside_close(space));
    refused(farside_close(space), Status::BadHandle, "given back before");
    refused(farside_release(space, memory), Status::BadHandle, "no space");
    let made_up = std::ptr::without_provenance_mut(0x1000);
    refused(farside_release(made_up, memory), Status::BadHandle, "0x1000");
    refused(farside_release(null(), memory), Status::BadHandle, "null pointer");
    // SAFETY: places for results.
    unsafe {
        refused(farside_cards(space, null_mut()), Status::BadHandle, "no space");
        refused(farside_job_wait(null(), 0, null_mut()), Status::BadHandle, "job");
        // A space is no job.
        refused(farside_job_wait(space.cast(), 0, null_mut()), Status::BadHandle, "job");
    }
    well(farside_close(null_mut()));
    well(farside_job_free(null_mut()));
    let other = small();
    assert_ne!(other, space, "a handle is not given twice");
    well(farside_release(other, null_mut()));
    well(farside_close(other));
}

#[test]
fn memory_is_allocated_lent_and_released_or_it_is_said_why_not() {
    let (space, other) = (small(), small());
    let mut memory = null_mut();
    // SAFETY: no name, places for results.
    unsafe {
        let nothing = farside_malloc(space, 0, null(), &mut memory);
        refused(nothing, Status::BadArgument, "0 bytes");
        let much = farside_malloc(space, usize::MAX, null(), &mut memory);
        refused(much, Status::NoMemory, "contiguous pages");
        let nowhere = farside_malloc(space, 8, null(), null_mut());
        refused(nowhere, Status::BadArgument, "null pointer");
        refused(farside_malloc_on(space, 0, 0, 2 << 20, &mut memory), Status::NoMemory, "card 0");
        refused(farside_malloc_on(space, 9, 0, 1, &mut memory), Status::NoCard, "card 9");
        refused(farside_take_over(space, 0, 0x1000, 8, &mut memory), Status::Failed, "0x1000");
        well(farside_malloc_on(space, 1, 0, 4096, &mut memory));
        let mut free = 0;
        well(farside_own_memory_free(space, 1, 0, &mut free));
        assert_eq!(free, (1 << 20) - 4096);
        let moved = farside_migrate(space, memory, 4096, 0, null_mut());
        refused(moved, Status::BadMemory, "stays where it is");
        let mut bytes = [1u8; 16];
        memory.cast::<u8>().add(8).write(7);
        well(farside_copy_out(space, memory.byte_add(4), 16, bytes.as_mut_ptr().cast()));
        assert_eq!((bytes[3], bytes[4], bytes[5]), (0, 7, 0));
        let beyond = farside_copy_out(space, memory.byte_add(4090), 16, bytes.as_mut_ptr().cast());
        refused(beyond, Status::BadMemory, "no memory of this space");
        well(farside_release(space, memory));
    }
    let (here, there) = (malloc(space, 4096), malloc(other, 4096));
    refused(farside_release(space, there), Status::BadMemory, "no memory of this space");
    let inside = here.wrapping_byte_add(8);
    refused(farside_release(space, inside), Status::BadMemory, "inside the allocation");
    let sum = c"farside.sum";
    refused(call(space, sum, &[lend(READ, there, 8)]), Status::BadMemory, "no memory");
    well(call(space, sum, &[lend(READ, here, 4096)]));
    well(farside_release(space, here));
    refused(farside_release(space, here), Status::BadMemory, "no memory of this space");
    refused(call(space, sum, &[lend(READ, here, 8)]), Status::BadMemory, "no memory");
    well(farside_close(space));
    well(farside_close(other));
}

#[test]
fn a_cards_memories_are_chosen_by_their_numbers_and_names() {
    let window = |kind: &CStr, bytes| FarsideWindow { kind: kind.as_ptr(), bytes };
    let windows = [window(c"ddr", 1 << 20), window(c"hbm", 64 << 10)];
    let told = FarsideOptions { windows: windows.as_ptr(), window_count: 2, ..options() };
    let space = open(&FarsideOptions { address_space: 16 << 20, ..told });
    let (mut number, mut memory, mut free) = (0, null_mut(), [0; 2]);
    // SAFETY: texts, and places for results.
    unsafe {
        well(farside_memory_number(space, 1, c"hbm".as_ptr(), &mut number));
        assert_eq!(number, 1);
        well(farside_malloc_on(space, 1, number, 48 << 10, &mut memory));
        for (number, free) in free.iter_mut().enumerate() {
            well(farside_own_memory_free(space, 1, number as u32, free));
        }
        assert_eq!(free, [1 << 20, 16 << 10]);
        let mut more = null_mut();
        refused(farside_malloc_on(space, 1, 1, 32 << 10, &mut more), Status::NoMemory, "hbm");
        well(farside_malloc_on(space, 1, 0, 32 << 10, &mut more));
        refused(
            farside_malloc_on(space, 1, 2, 1, &mut more),
            Status::BadArgument,
            "0 (ddr0), 1 (hbm0)",
        );
        refused(farside_malloc_on(space, 1, 256, 1, &mut more), Status::BadArgument, "number 256");
        let beyond = farside_own_memory_free(space, 1, 2, &mut free[0]);
        refused(beyond, Status::BadArgument, "number 2");
        let unknown = farside_memory_number(space, 1, c"bram".as_ptr(), &mut number);
        refused(unknown, Status::BadArgument, "ddr0, hbm0");
        let nameless = farside_memory_number(space, 1, null(), &mut number);
        refused(nameless, Status::BadArgument, "name is a null");
        let mut none = null_mut();
        let wrong = [window(c"gold", 1 << 20)];
        let told = FarsideOptions { windows: wrong.as_ptr(), window_count: 1, ..options() };
        refused(farside_open(&told, &mut none), Status::BadArgument, "gold");
        let told = FarsideOptions { window_count: usize::MAX, ..told };
        refused(farside_open(&told, &mut none), Status::BadArgument, "at most 15");
        let told = FarsideOptions { windows: null(), window_count: 1, ..told };
        refused(farside_open(&told, &mut none), Status::BadArgument, "windows is a null");
    }
    well(farside_close(space));
}

#[test]
fn kernels_that_cannot_be_are_not_launched() {
    let space = small();
    let memory = malloc(space, 4096);
    let good = lend(READ, memory, 4096);
    refused(call(space, c"farside.sun", &[good]), Status::NoKernel, "farside.sum");
    refused(call(space, c"farside.sum", &[]), Status::KernelFailed, "farside.sum");
    refused(
        call(space, c"farside.sum", &[CArgument { kind: 9, ..good }]),
        Status::BadArgument,
        "kind 9",
    );
    let mut job = null_mut();
    let text = c"farside.sum".as_ptr();
    // SAFETY: texts, records and places for results, or null pointers.
    unsafe {
        let launch = |name, arguments, count, how: &FarsideLaunch, job| {
            farside_launch_kernel(space, name, arguments, count, how, job)
        };
        let job = &raw mut job;
        refused(launch(text, &good, 1, &how(), null_mut()), Status::BadArgument, "job is a null");
        refused(launch(null(), &good, 1, &how(), job), Status::BadArgument, "name is a null");
        refused(launch(text, null(), 1, &how(), job), Status::BadArgument, "arguments is a null");
        refused(launch(text, &good, u32::MAX, &how(), job), Status::BadArgument, "4294967295");
        let nowhere = FarsideLaunch { card: 2, ..how() };
        refused(launch(text, &good, 1, &nowhere, job), Status::NoCard, "card 2");
        let after = FarsideLaunch { after_count: 1, ..how() };
        refused(launch(text, &good, 1, &after, job), Status::BadArgument, "after is a null");
        let nobody = [null::<farside_job>()];
        let after = FarsideLaunch { after: nobody.as_ptr(), ..after };
        refused(launch(text, &good, 1, &after, job), Status::BadHandle, "null pointer");
        let stream = FarsideLaunch { stream: u64::MAX, ..how() };
        refused(launch(text, &good, 1, &stream, job), Status::BadArgument, "farside_stream");
        let unsized_ = FarsideLaunch { size: 0, ..how() };
        refused(launch(text, &good, 1, &unsized_, job), Status::BadArgument, "FARSIDE_LAUNCH_INIT");
    }
    assert!(job.is_null());
    well(farside_close(space));
}

#[test]
fn what_a_kernel_holds_is_not_released_and_not_lent() {
    let space = small();
    let memory = malloc(space, 8192);
    let flag = std::sync::atomic::AtomicU32::new(0);
    let address =
        CArgument { kind: 0, element: 8, word: (&raw const flag).addr() as u64, bytes: 0 };
    let arguments = [address, lend(WRITE, memory, 4096)];
    let holding = FarsideLaunch { body: Some(hold), ..how() };
    let (mut job, mut result) = (null_mut(), 7);
    // SAFETY: records and places for results; the flag lives on, and nobody uses the memory meanwhile.
    unsafe {
        well(farside_launch_kernel(space, null(), arguments.as_ptr(), 2, &holding, &mut job));
        assert_eq!(farside_job_wait(job, 0, &mut result), Status::Running);
        assert_eq!(farside_job_wait(job, 1_000_000, null_mut()), Status::Running);
        refused(farside_release(space, memory), Status::Lent, "a function");
        refused(call(space, c"farside.sum", &[lend(READ, memory, 8192)]), Status::Lent, "lent to");
        assert_eq!(result, 7);
        flag.store(1, std::sync::atomic::Ordering::SeqCst);
        well(farside_job_wait(job, -1, &mut result));
        assert_eq!(result, 512);
        well(call(space, c"farside.sum", &[lend(READ, memory, 8192)]));
        well(farside_release(space, memory));
        well(farside_close(space));
        // A job can be asked when its space is closed.
        well(farside_job_wait(job, 0, &mut result));
        well(farside_job_free(job));
        refused(farside_job_free(job), Status::BadHandle, "no job");
    }
}

#[test]
fn placement_is_asked_for_memory_that_there_is() {
    let space = small();
    let memory = malloc(space, 8192);
    let (mut pages, mut count) = (0, 0);
    // SAFETY: places for results.
    unsafe {
        let mut parts: [FarsidePlacement; 2] = std::mem::zeroed();
        well(farside_where(space, memory, 8192, null_mut(), 0, &mut count));
        assert_eq!(count, 1);
        memory.cast::<u64>().write(1);
        well(farside_migrate(space, memory, 4096, 1, &mut pages));
        assert_eq!(pages, 1);
        well(farside_where(space, memory, 8192, parts.as_mut_ptr(), 2, &mut count));
        let word = |word: &[c_char]| CStr::from_ptr(word.as_ptr()).to_str().unwrap().to_owned();
        assert_eq!((count, parts[0].memory, parts[0].copies, parts[0].bytes), (2, 1, 1 << 2, 4096));
        assert_eq!((word(&parts[0].state), word(&parts[0].reason)), ("card".into(), "user".into()));
        assert_eq!((parts[1].memory, word(&parts[1].state)), (-2, "fresh".into()));
        refused(farside_migrate(space, memory, 8192, 5, null_mut()), Status::NoCard, "card 5");
        refused(farside_prefetch(space, memory, 8192, -5, null_mut()), Status::NoCard, "-5");
        let far = memory.wrapping_byte_add(1 << 20);
        refused(farside_migrate(space, far, 8, 0, null_mut()), Status::BadMemory, "no memory");
        refused(
            farside_where(space, memory, 8, null_mut(), 1, &mut count),
            Status::BadArgument,
            "parts",
        );
        let mut text = [1 as c_char; 8];
        let mut length = 0;
        well(farside_why(space, memory, text.as_mut_ptr(), 8, &mut length));
        assert_eq!((text[7], length > 20), (0, true));
        refused(
            farside_why(space, far, null_mut(), 0, null_mut()),
            Status::BadMemory,
            "no allocation",
        );
        well(farside_report(space, 1, null_mut(), 0, &mut length));
        let mut report = vec![1u8; length + 1];
        well(farside_report(space, 1, report.as_mut_ptr().cast(), report.len(), null_mut()));
        let report = CString::from_vec_with_nul(report).unwrap().into_string().unwrap();
        serde_json::from_str::<serde_json::Value>(&report).expect("JSON");
    }
    refused(farside_unpin(space, memory, 4096), Status::BadArgument, "not pinned");
    well(farside_pin(space, memory, 4096, -1));
    // SAFETY: no place for a result.
    let moved = unsafe { farside_migrate(space, memory, 4096, 1, null_mut()) };
    refused(moved, Status::Failed, "pinned");
    well(farside_unpin(space, memory, 4096));
    refused(farside_advise(space, memory, 4096, 9, 1, 0), Status::BadArgument, "no advice 9");
    for advice in 1..=4 {
        well(farside_advise(space, memory, 4096, advice, 1, 0));
        well(farside_advise(space, memory, 4096, advice, 0, 0));
    }
    well(farside_set_read_only(space, memory, 4096, 1));
    refused(call(space, c"farside.fill", &[lend(WRITE, memory, 4096)]), Status::KernelFailed, "");
    well(farside_close(space));
}

#[test]
fn statuses_have_texts_and_names_of_kernels_end_where_they_should() {
    for status in 0..20 {
        // SAFETY: texts of the library.
        assert!(!unsafe { CStr::from_ptr(farside_status_text(status)) }.is_empty());
    }
    assert_eq!(farside_abi(), 1);
    let space = small();
    let (mut count, mut name, mut length) = (0, [1 as c_char; 5], 0);
    // SAFETY: places for results.
    unsafe {
        well(farside_kernel_count(space, &mut count));
        well(farside_kernel_name(space, 0, name.as_mut_ptr(), 5, &mut length));
        assert_eq!(CStr::from_ptr(name.as_ptr()).to_str(), Ok("fars"));
        let beyond = farside_kernel_name(space, count, name.as_mut_ptr(), 5, &mut length);
        refused(beyond, Status::BadArgument, "no kernel");
    }
    well(farside_close(space));
}

#[test]
fn memory_of_the_program_is_shared_and_released() {
    let space = open(&FarsideOptions { address_space: 16 << 20, ..options() });
    let mut own = vec![1u64; 5000];
    let start = own.as_mut_ptr().cast::<c_void>();
    // SAFETY: no name; the memory lives until it was released.
    unsafe {
        refused(farside_adopt(space, null_mut(), 8, null()), Status::BadArgument, "memory");
        well(farside_adopt(space, start, 5000 * 8, null()));
        let again = farside_adopt(space, start.wrapping_byte_add(8192), 8192, null());
        refused(again, Status::BadMemory, "memory of the space already");
    }
    let name = CString::new("farside.increment").unwrap();
    let arguments = [lend(WRITE, start, 5000 * 8)];
    let mut job = null_mut();
    // SAFETY: whole records, which live as long as the call, and a place for the result.
    unsafe {
        let launch = how();
        let launched = farside_launch_kernel(
            space,
            name.as_ptr(),
            arguments.as_ptr(),
            arguments.len() as u32,
            &launch,
            &mut job,
        );
        well(launched);
        well(farside_job_wait(job, -1, null_mut()));
        well(farside_job_free(job));
    }
    well(farside_release(space, start));
    assert!(own.iter().all(|&word| word == 2));
    refused(farside_release(space, start), Status::BadMemory, "no memory of this space");
    // Memory that is a file's, that may not be written, and that is not there.
    static CONSTANT: [u64; 4096] = [7; 4096];
    let code = CONSTANT.as_ptr().cast_mut().cast::<c_void>();
    let nowhere = std::ptr::without_provenance_mut::<c_void>(0x10000);
    // SAFETY: no name; nothing is touched that is refused.
    unsafe {
        refused(
            farside_adopt(space, code, 4096 * 8, null()),
            Status::BadMemory,
            "cannot be adopted",
        );
        refused(
            farside_adopt(space, nowhere, 4096, null()),
            Status::BadMemory,
            "cannot be adopted",
        );
        refused(farside_adopt(space, start, usize::MAX, null()), Status::BadMemory, "");
        refused(farside_adopt(space, start, 0, null()), Status::BadMemory, "");
    }
    well(farside_close(space));
}

#[test]
fn a_kernel_that_was_told_to_stop_has_failed_and_streams_are_numbers() {
    let space = small();
    let memory = malloc(space, 8192);
    let flag = std::sync::atomic::AtomicU32::new(0);
    let address =
        CArgument { kind: 0, element: 8, word: (&raw const flag).addr() as u64, bytes: 0 };
    let one = [address, lend(READ, memory, 4096)];
    let other = [address, lend(READ, memory.wrapping_byte_add(4096), 4096)];
    let (mut job, mut stream) = (null_mut(), 0);
    // SAFETY: records and places for results; the flag lives on.
    unsafe {
        refused(farside_stream(space, null_mut()), Status::BadArgument, "stream is a null");
        well(farside_stream(space, &mut stream));
        let first = FarsideLaunch { body: Some(hold), stream, ..how() };
        well(farside_launch_kernel(space, null(), one.as_ptr(), 2, &first, &mut job));
        let (mut second, mut result) = (null_mut(), 0);
        well(farside_launch_kernel(space, null(), other.as_ptr(), 2, &first, &mut second));
        well(farside_job_cancel(second));
        refused(farside_job_wait(second, -1, &mut result), Status::KernelFailed, "cancelled");
        flag.store(1, std::sync::atomic::Ordering::SeqCst);
        well(farside_job_wait(job, -1, null_mut()));
        well(farside_job_free(second));
        well(farside_job_free(job));
    }
    refused(farside_job_cancel(job), Status::BadHandle, "no job");
    well(farside_close(space));
}

#[test]
fn a_file_is_memory_that_kernels_use_until_it_is_released() {
    let path = std::env::temp_dir().join(format!("farside-c-file-{}", std::process::id()));
    let words: Vec<u8> = (0..50_000u64).flat_map(u64::to_ne_bytes).collect();
    std::fs::write(&path, &words).unwrap();
    let name = CString::new(path.to_str().unwrap()).unwrap();
    let space = small();
    let (mut memory, mut bytes) = (null_mut(), 0);
    // SAFETY: a text, and places for results.
    unsafe {
        let (at, size) = (&raw mut memory, &raw mut bytes);
        refused(farside_map_file(space, null(), 0, at, size), Status::BadArgument, "path is a");
        refused(
            farside_map_file(space, name.as_ptr(), 0, null_mut(), size),
            Status::BadArgument,
            "memory is a null",
        );
        refused(
            farside_map_file(space, name.as_ptr(), 0, at, null_mut()),
            Status::BadArgument,
            "bytes is a null",
        );
        refused(
            farside_map_file(space, name.as_ptr(), 1, at, size),
            Status::BadArgument,
            "are the least",
        );
        refused(
            farside_map_file(space, c"/nowhere".as_ptr(), 0, at, size),
            Status::Failed,
            "/nowhere",
        );
        refused(
            farside_map_file(space, c"/dev".as_ptr(), 0, at, size),
            Status::BadArgument,
            "no regular file",
        );
        well(farside_map_file(space, name.as_ptr(), 0, at, size));
        refused(farside_map_file(space, name.as_ptr(), 0, at, size), Status::Failed, "locked");
    }
    assert_eq!(bytes, words.len() as u64);
    let mut job = null_mut();
    let argument = [lend(WRITE, memory, bytes)];
    // SAFETY: records, and a place for the job.
    unsafe {
        well(farside_launch_kernel(
            space,
            c"farside.increment".as_ptr(),
            argument.as_ptr(),
            1,
            null(),
            &mut job,
        ));
        well(farside_job_wait(job, -1, null_mut()));
    }
    well(farside_job_free(job));
    well(farside_sync_file(space, memory));
    let incremented: Vec<u8> = (1..=50_000u64).flat_map(u64::to_ne_bytes).collect();
    assert_eq!(std::fs::read(&path).unwrap(), incremented);
    let inside = memory.wrapping_byte_add(4096);
    refused(farside_sync_file(space, inside), Status::BadMemory, "inside the allocation");
    let other = malloc(space, 4096);
    refused(farside_sync_file(space, other), Status::BadMemory, "no file's");
    // SAFETY: the file's memory, which nobody else uses.
    unsafe { memory.cast::<u64>().write(77) };
    well(farside_release(space, memory));
    assert_eq!(std::fs::read(&path).unwrap()[..8], 77u64.to_ne_bytes());
    refused(farside_sync_file(space, memory), Status::BadMemory, "no memory of this space");
    refused(farside_release(space, memory), Status::BadMemory, "no memory of this space");
    well(farside_close(space));
    std::fs::remove_file(path).unwrap();
}
