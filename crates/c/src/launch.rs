//! Kernels.

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

use farside::foreign::{ForeignJob, ForeignLaunch, LaunchId};
use farside::{ArgKind, CBody, KernelArg, Stream, body_kernel};

use crate::handles::{Handles, farside_job, farside_space};
use crate::record::{self, Record};
use crate::space::{Held, SPACES, put};
use crate::status::{Failure, Status, call, done};
use crate::text;

/// Arguments of a kernel, at most.
const ARGUMENTS_MAX: u32 = 4096;
/// Jobs that one comes after, at most.
const AFTER_MAX: usize = 1 << 20;

/// `farside_body` of farside-kernel.h; may be null.
pub type Body = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        pieces: *const *mut c_void,
        first: u64,
        count: u64,
    ) -> i32,
>;

/// `farside_argument` of farside-kernel.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CArgument {
    /// FARSIDE_VALUE and so on.
    pub kind: u32,
    /// Bytes of one element; of the value itself for a value.
    pub element: u32,
    /// Address of the first byte; the value's bits, the lowest first.
    pub word: u64,
    /// Length of the memory; of a value FARSIDE_INTEGER or FARSIDE_FLOAT, or 0 where that is not said.
    pub bytes: u64,
}

/// How a kernel is launched. Begin it with FARSIDE_LAUNCH_INIT; 0 and null mean the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FarsideLaunch {
    /// sizeof(farside_launch)
    pub size: u32,
    /// The card.
    pub card: u32,
    /// A stream of farside_stream: launches of one run in the order in which they were made. 0: of none.
    pub stream: u64,
    /// Nanoseconds that it may take, waiting included; 0: as many as it wants.
    pub time_limit_ns: u64,
    /// Jobs of the same space that must have ended before it begins.
    pub after: *const *const farside_job,
    /// How many.
    pub after_count: usize,
    /// A function that is in no table, for a card in the program: it gets the memory of the arguments in pieces, and in
    /// `user` the values among them as words of eight bytes, in their order.
    pub body: Body,
}

// SAFETY: numbers and pointers, for which zeros are values, without padding.
unsafe impl Record for FarsideLaunch {
    const NAME: &'static str = "farside_launch";
}

/// A job, and its number in the order of launches.
pub(crate) struct HeldJob {
    id: LaunchId,
    job: Arc<ForeignJob>,
}

static JOBS: Handles<HeldJob> = Handles::new("job", 1);

/// A new stream.
///
/// # Safety
/// `stream` is null or points to where its number is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_stream(space: *const farside_space, stream: *mut u64) -> Status {
    done(|| {
        let made = SPACES.get(space)?.foreign.open()?.stream();
        // SAFETY: the caller's.
        unsafe { put(stream, "stream", u64::from(made.number()) + 1) }
    })
}

/// Launches a kernel and does not wait for it. `how` may be null: on card 0. Free the job with farside_job_free. What
/// memory the arguments name is lent until the job has ended: the program does not write what is lent as FARSIDE_READ, leaves
/// alone what is lent as FARSIDE_WRITE, and uses what is lent as FARSIDE_SHARED by atomic operations. That no other
/// kernel contradicts is checked.
///
/// # Safety
/// `kernel` ends with a zero, `arguments` has `count` records, `how` is null or as FARSIDE_LAUNCH_INIT begins it, and
/// its body keeps the rules of farside_body; `job` is null or points to where it is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_launch_kernel(
    space: *const farside_space,
    kernel: *const c_char,
    arguments: *const CArgument,
    count: u32,
    how: *const FarsideLaunch,
    job: *mut *mut farside_job,
) -> Status {
    done(|| {
        if job.is_null() {
            return Err(Failure::null("job"));
        }
        let held = SPACES.get(space)?;
        // SAFETY: passed on to the caller.
        let (id, launched) = unsafe { launch(&held, kernel, arguments, count, how) }?;
        // SAFETY: not null, and the caller's.
        unsafe { job.write(JOBS.add(HeldJob { id, job: launched })) };
        Ok(())
    })
}

/// Launches a kernel and waits for its end. `result` may be null; it gets what the kernel returned.
///
/// # Safety
/// As farside_launch_kernel; `result` is null or points to where the number is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_call(
    space: *const farside_space,
    kernel: *const c_char,
    arguments: *const CArgument,
    count: u32,
    how: *const FarsideLaunch,
    result: *mut u64,
) -> Status {
    done(|| {
        let held = SPACES.get(space)?;
        // SAFETY: passed on to the caller.
        let (_, job) = unsafe { launch(&held, kernel, arguments, count, how) }?;
        // Without a limit it has ended.
        let value = job.wait(None).transpose()?.unwrap_or_default();
        if !result.is_null() {
            // SAFETY: the caller's.
            unsafe { result.write(value) };
        }
        Ok(())
    })
}

/// Waits for a job's end, at most so many nanoseconds (none if negative is as long as it takes), and gives what the kernel
/// returned; FARSIDE_STATUS_RUNNING if it has not ended. It can be called again, and by several threads. `result` may be
/// null.
///
/// # Safety
/// `result` is null or points to where the number is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_job_wait(
    job: *const farside_job,
    limit_ns: i64,
    result: *mut u64,
) -> Status {
    call(|| {
        let held = JOBS.get(job)?;
        let limit = u64::try_from(limit_ns).ok().map(Duration::from_nanos);
        let Some(value) = held.job.wait(limit).transpose()? else { return Ok(Status::Running) };
        if !result.is_null() {
            // SAFETY: the caller's.
            unsafe { result.write(value) };
        }
        Ok(Status::Ok)
    })
}

/// Tells a kernel to stop. It ends as failed, unless it has ended before.
#[unsafe(no_mangle)]
pub extern "C" fn farside_job_cancel(job: *const farside_job) -> Status {
    done(|| {
        JOBS.get(job)?.job.cancel();
        Ok(())
    })
}

/// Gives a job back. Its kernel goes on, and what it is lent stays lent. Nothing happens for a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn farside_job_free(job: *mut farside_job) -> Status {
    done(|| {
        if job.is_null() {
            return Ok(());
        }
        JOBS.remove(job).map(drop)
    })
}

/// Launches a kernel.
///
/// # Safety
/// As [`farside_launch_kernel`].
unsafe fn launch(
    held: &Held,
    kernel: *const c_char,
    arguments: *const CArgument,
    count: u32,
    how: *const FarsideLaunch,
) -> Result<(LaunchId, Arc<ForeignJob>), Failure> {
    // SAFETY: the caller's text.
    let kernel = unsafe { text::optional(kernel, "the kernel's name") }?;
    // SAFETY: the caller's record.
    let how = unsafe { record::read(how) }?;
    // SAFETY: zeros are a value of a `Record`.
    let how = how.unwrap_or_else(|| unsafe { std::mem::zeroed::<FarsideLaunch>() });
    // SAFETY: the caller's records.
    let records = unsafe { records(arguments, count) }?;
    // SAFETY: the caller's list.
    let after = unsafe { after(&how) }?;
    let stream = stream(how.stream)?;
    let kernel = match (kernel, how.body) {
        (Some(name), _) => name,
        (None, Some(_)) => "a function",
        (None, None) => return Err(Failure::null("the kernel's name")),
    };
    let launch = ForeignLaunch {
        kernel,
        // SAFETY: the caller answers for the body.
        function: how.body.map(|body: CBody| unsafe { body_kernel(body) }),
        records,
        card: how.card as usize,
        stream,
        limit: (how.time_limit_ns > 0).then(|| Duration::from_nanos(how.time_limit_ns)),
        after: &after,
        kept: None,
    };
    // SAFETY: the caller uses meanwhile what is lent as the header says.
    Ok(unsafe { held.foreign.launch(launch) }?)
}

fn stream(number: u64) -> Result<Option<Stream>, Failure> {
    let Some(number) = number.checked_sub(1) else { return Ok(None) };
    let number = u32::try_from(number);
    let stream = number.map(|number| Some(Stream::of_number(number)));
    stream.map_err(|_| Failure::argument("there is no such stream; farside_stream makes them"))
}

/// # Safety
/// `arguments` has `count` records.
unsafe fn records(arguments: *const CArgument, count: u32) -> Result<Vec<KernelArg>, Failure> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if arguments.is_null() {
        return Err(Failure::null("arguments"));
    }
    if count > ARGUMENTS_MAX {
        let text =
            format!("{count} arguments are more than the {ARGUMENTS_MAX} that a kernel takes");
        return Err(Failure::argument(text));
    }
    // SAFETY: the caller's, and not null.
    let arguments = unsafe { std::slice::from_raw_parts(arguments, count as usize) };
    arguments.iter().enumerate().map(|(place, argument)| record_of(place, argument)).collect()
}

fn record_of(place: usize, argument: &CArgument) -> Result<KernelArg, Failure> {
    let &CArgument { kind, element, word, bytes } = argument;
    let kind = match kind {
        0 => ArgKind::Value,
        1 => ArgKind::Read,
        2 => ArgKind::Write,
        3 => ArgKind::Shared,
        other => {
            let text = format!(
                "argument {place} is of kind {other}; FARSIDE_VALUE to FARSIDE_SHARED are 0 to 3"
            );
            return Err(Failure::argument(text));
        }
    };
    Ok(KernelArg { kind, element, word, bytes })
}

/// # Safety
/// `after` has `after_count` pointers.
unsafe fn after(how: &FarsideLaunch) -> Result<Vec<(LaunchId, Arc<ForeignJob>)>, Failure> {
    if how.after_count == 0 {
        return Ok(Vec::new());
    }
    if how.after.is_null() {
        return Err(Failure::null("after"));
    }
    if how.after_count > AFTER_MAX {
        return Err(Failure::argument(format!("after_count is {}", how.after_count)));
    }
    // SAFETY: the caller's, and not null.
    let jobs = unsafe { std::slice::from_raw_parts(how.after, how.after_count) };
    let job =
        |&job: &*const farside_job| JOBS.get(job).map(|held| (held.id, Arc::clone(&held.job)));
    jobs.iter().map(job).collect()
}
