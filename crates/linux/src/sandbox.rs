//! What a process that serves a stranger may ask of the system: what serving needs, and nothing that
//! reaches further.
//!
//! No file can be opened, no socket made, no process started, signalled or looked into, but for what a
//! process names as [`More`]. A call that is not allowed fails with EPERM, so that the C library can do
//! without it.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// Allowed whatever their arguments are.
const ALLOWED: &[c_long] = &[
    // The connection, the doorbell, interrupts, the log.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_ppoll,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_ctl,
    libc::SYS_close,
    libc::SYS_writev,
    // A client's files: their kinds and sizes.
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_lseek,
    // Memory. What may be mapped is what has been sent.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    // Threads, their signals and their waiting.
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_getcpu,
    libc::SYS_getrandom,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Those that only some processors have.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[c_long] = &[libc::SYS_poll, libc::SYS_epoll_wait, libc::SYS_time];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[c_long] = &[];

/// What may be asked of a descriptor.
const FCNTL: &[i32] = &[
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GET_SEALS,
];

/// What a process needs beside serving whoever is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// This call, whatever its arguments are.
    Call(c_long),
    /// This call, where the argument of this index is this value.
    With(c_long, u8, u64),
}

/// Gives up every right but these, for this thread and those that it will start.
///
/// # Errors
/// The kernel takes no filter: whoever needs one must not go on.
pub fn enter(more: &[More]) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let filters = [
        // glibc tries `clone3`, whose flags a filter cannot see, and takes `clone` where it is not
        // there.
        filter(
            BTreeMap::from([(libc::SYS_clone3, Vec::new())]),
            SeccompAction::Allow,
            SeccompAction::Errno(libc::ENOSYS as u32),
            arch,
        )?,
        filter(rules(more)?, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow, arch)?,
    ];
    for filter in filters {
        apply_filter(&BpfProgram::try_from(filter)?)?;
    }
    Ok(())
}

fn filter(
    rules: BTreeMap<c_long, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
    arch: TargetArch,
) -> Result<SeccompFilter, seccompiler::BackendError> {
    SeccompFilter::new(rules, otherwise, matched, arch)
}

fn rules(more: &[More]) -> Result<BTreeMap<c_long, Vec<SeccompRule>>, seccompiler::BackendError> {
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
        ALLOWED.iter().chain(ALLOWED_HERE).map(|&call| (call, Vec::new())).collect();
    // Threads, not processes.
    let thread = (libc::CLONE_THREAD | libc::CLONE_VM) as u64;
    rules.insert(libc::SYS_clone, vec![argument(0, SeccompCmpOp::MaskedEq(thread), thread)?]);
    rules.insert(libc::SYS_clone3, Vec::new());
    // Memory that is no code.
    let code = libc::PROT_EXEC as u64;
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![argument(2, SeccompCmpOp::MaskedEq(code), 0)?]);
    }
    // Flags, duplicates and seals of descriptors. Not whom they send signals to.
    let fcntl = FCNTL.iter().map(|&what| argument(1, SeccompCmpOp::Eq, what as u64));
    rules.insert(libc::SYS_fcntl, fcntl.collect::<Result<_, _>>()?);
    // A thread's name.
    let set_name = libc::PR_SET_NAME as u64;
    rules.insert(libc::SYS_prctl, vec![argument(0, SeccompCmpOp::Eq, set_name)?]);
    for more in more {
        match *more {
            More::Call(call) => {
                rules.insert(call, Vec::new());
            }
            More::With(call, index, value) => {
                let rule = argument(index, SeccompCmpOp::Eq, value)?;
                rules.entry(call).or_default().push(rule);
            }
        }
    }
    Ok(rules)
}

fn argument(
    index: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::BackendError> {
    let condition = SeccompCondition::new(index, SeccompCmpArgLen::Qword, operator, value)?;
    SeccompRule::new(vec![condition])
}
