//! The nth call of a kind fails, as the kernel would fail it: calls of this process pass by a thread of
//! its own (seccomp's user notification), which counts them and answers one of them in the kernel's
//! place. What is tested is the program as it is, with nothing in it for the test.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering::SeqCst};

use farside_linux::uffd::abi::request;

/// A call of the kernel, told by its number and one argument.
#[derive(Debug)]
pub struct PagingCall {
    /// What people call it.
    pub name: &'static str,
    number: libc::c_long,
    /// Which argument, and its lower half.
    argument: u32,
    value: u32,
}

const fn ioctl(name: &'static str, request: libc::Ioctl) -> PagingCall {
    PagingCall { name, number: libc::SYS_ioctl, argument: 1, value: request as u32 }
}

const fn madvise(name: &'static str, advice: libc::c_int) -> PagingCall {
    PagingCall { name, number: libc::SYS_madvise, argument: 2, value: advice as u32 }
}

/// The calls by which pages are moved; those behind the sixth are of large pages, but for REGISTER
/// when a space opens, and those behind the eleventh of adopted memory alone.
pub const PAGING_CALLS: [PagingCall; 13] = [
    madvise("madvise(DONTNEED)", libc::MADV_DONTNEED),
    PagingCall {
        name: "fallocate(PUNCH_HOLE)",
        number: libc::SYS_fallocate,
        argument: 1,
        value: (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32,
    },
    ioctl("UFFDIO_CONTINUE", request::CONTINUE),
    ioctl("UFFDIO_ZEROPAGE", request::ZEROPAGE),
    ioctl("UFFDIO_WRITEPROTECT", request::WRITEPROTECT),
    ioctl("UFFDIO_POISON", request::POISON),
    ioctl("UFFDIO_REGISTER", request::REGISTER),
    ioctl("UFFDIO_UNREGISTER", request::UNREGISTER),
    madvise("madvise(HUGEPAGE)", libc::MADV_HUGEPAGE),
    madvise("madvise(COLLAPSE)", 25),
    madvise("madvise(POPULATE_WRITE)", libc::MADV_POPULATE_WRITE),
    ioctl("UFFDIO_MOVE", request::MOVE),
    ioctl("UFFDIO_COPY", request::COPY),
];

/// The kinds of pages of the space's own memory.
pub const OF_THE_ARENA: usize = 11;

/// The kinds without which no page moves, large or not.
pub const OF_ALL_PAGES: usize = 6;

#[derive(Debug)]
struct Plan {
    seen: [AtomicU64; PAGING_CALLS.len()],
    /// Which kind fails; beyond the end: none.
    which: AtomicUsize,
    /// So many of it do well before.
    left: AtomicU64,
    errno: AtomicI32,
}

/// See the module.
#[derive(Debug)]
pub struct NthCall(Arc<Plan>);

impl NthCall {
    /// From now on the calls of this thread, and of threads that it starts, pass by here. It cannot be
    /// taken back: for children.
    ///
    /// # Panics
    /// If the kernel has no user notification (Linux 5.0).
    pub fn install() -> NthCall {
        let plan = Arc::new(Plan {
            seen: [const { AtomicU64::new(0) }; PAGING_CALLS.len()],
            which: AtomicUsize::new(usize::MAX),
            left: AtomicU64::new(0),
            errno: AtomicI32::new(0),
        });
        // Its own calls do not pass by: it is there before the filter.
        let (give, take) = std::sync::mpsc::channel::<OwnedFd>();
        let answers = Arc::clone(&plan);
        std::thread::spawn(move || {
            take.recv().iter().for_each(|listener| answers.answer(listener))
        });
        give.send(listen()).expect("the thread waits for it");
        NthCall(plan)
    }

    /// The `nth` call of a kind from now on fails, and none after it. The first is number 1.
    pub fn fail(&self, kind: usize, nth: u64, errno: i32) {
        self.0.which.store(usize::MAX, SeqCst);
        self.0.left.store(nth, SeqCst);
        self.0.errno.store(errno, SeqCst);
        self.0.which.store(kind, SeqCst);
    }

    /// Nothing fails any more. Whether something has.
    pub fn end(&self) -> bool {
        self.0.which.store(usize::MAX, SeqCst);
        self.0.left.load(SeqCst) == 0
    }

    /// Calls of each kind until now.
    pub fn seen(&self) -> [u64; PAGING_CALLS.len()] {
        std::array::from_fn(|kind| self.0.seen[kind].load(SeqCst))
    }
}

impl Plan {
    /// Whether a call fails.
    fn errno_of(&self, call: &libc::seccomp_data) -> Option<i32> {
        let kind = PAGING_CALLS.iter().position(|known| {
            i64::from(call.nr) == known.number
                && call.args[known.argument as usize] as u32 == known.value
        })?;
        self.seen[kind].fetch_add(1, SeqCst);
        if self.which.load(SeqCst) != kind {
            return None;
        }
        let before = self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).ok()?;
        (before == 1).then(|| self.errno.load(SeqCst))
    }

    /// Answers until the process ends. Allocates nothing and waits for nobody else.
    fn answer(&self, listener: &OwnedFd) {
        let fd = listener.as_raw_fd();
        loop {
            let mut call = MaybeUninit::<libc::seccomp_notif>::zeroed();
            // SAFETY: the kernel fills the structure, which has to be zero.
            if unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_RECV, call.as_mut_ptr()) } != 0 {
                // The thread that made the call has ended meanwhile.
                continue;
            }
            // SAFETY: all zeros is a valid one, and the kernel has filled it.
            let call = unsafe { call.assume_init() };
            let errno = self.errno_of(&call.data);
            let flags = if errno.is_some() { 0 } else { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE };
            let mut answer = libc::seccomp_notif_resp {
                id: call.id,
                val: 0,
                error: -errno.unwrap_or(0),
                flags: flags as u32,
            };
            // SAFETY: the structure is initialised. It fails only where nobody waits any more.
            unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
        }
    }
}

/// Installs the filter for this thread and gives where its calls are told of.
fn listen() -> OwnedFd {
    let mut filter: Vec<libc::sock_filter> = Vec::new();
    let statement = |code: u32, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    let is = |k, otherwise| libc::sock_filter {
        jf: otherwise,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k)
    };
    let give = |k| statement(libc::BPF_RET | libc::BPF_K, k);
    for call in &PAGING_CALLS {
        filter.extend([
            load(0),
            is(call.number as u32, 3),
            load(16 + 8 * call.argument),
            is(call.value, 1),
            give(libc::SECCOMP_RET_USER_NOTIF),
        ]);
    }
    filter.push(give(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is well formed and lives as long as the calls; the descriptor is new.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        let set = libc::SECCOMP_SET_MODE_FILTER;
        let fd = libc::syscall(libc::SYS_seccomp, set, listener, &raw const program);
        assert!(fd >= 0, "no user notification: {}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd as i32)
    }
}
