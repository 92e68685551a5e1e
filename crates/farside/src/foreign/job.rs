//! Launches with records in place of borrowed arguments.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use farside_softcard::KernelArgs;
use farside_softcard::kernels::{KernelArg, KernelFunction};

use crate::launch::Started;
use crate::{Error, Launch, Space};

/// A kernel that was launched with records, outside of any scope. It can be waited for by several, and more than
/// once. Dropped, it goes on.
#[derive(Debug)]
pub struct ForeignJob {
    pub(crate) job: Arc<farside_softcard::Job>,
    space: Space,
    value: Arc<Mutex<Option<u64>>>,
}

impl Launch<'_> {
    /// Launches the kernel of that name with records for its arguments, and does not wait for it.
    ///
    /// # Errors
    /// As [`Launch::call`], as far as it is known before the kernel runs.
    ///
    /// # Safety
    /// What the records name is lent until the job has ended: memory of a [`ArgKind::Read`](crate::ArgKind::Read) is
    /// written by nobody, memory of a [`ArgKind::Write`](crate::ArgKind::Write) is used by nobody else, memory of a
    /// [`ArgKind::Shared`](crate::ArgKind::Shared) only by atomic operations, and none of it is freed.
    pub unsafe fn launch_records(self, records: Vec<KernelArg>) -> Result<ForeignJob, Error> {
        let space = self.space.clone();
        // SAFETY: passed on to the caller.
        let args = unsafe { KernelArgs::new(Arc::clone(&self.name), records) }?;
        Ok(ForeignJob::new(space, self.start_args(args)?))
    }

    /// The same with a function that is in no table, on a card in this program.
    ///
    /// # Errors
    /// As [`Launch::launch_records`]; [`LiveError::ClosureElsewhere`](crate::LiveError::ClosureElsewhere) for a card in another process.
    ///
    /// # Safety
    /// As [`Launch::launch_records`].
    pub unsafe fn launch_function(
        self,
        function: KernelFunction,
        records: Vec<KernelArg>,
    ) -> Result<ForeignJob, Error> {
        let space = self.space.clone();
        // SAFETY: passed on to the caller.
        let args = unsafe { KernelArgs::new(Arc::clone(&self.name), records) }?;
        Ok(ForeignJob::new(space, self.start_function(function, args)?))
    }
}

impl ForeignJob {
    fn new(space: Space, (job, value): Started<u64>) -> ForeignJob {
        ForeignJob { job, space, value }
    }

    /// Waits for the end, at most so long (`None`: as long as it takes), and gives what the kernel returned; `None`
    /// if it still runs.
    ///
    /// # Errors
    /// The inner result: [`Error::Kernel`] if it failed, [`Error::Live`] in a child made by fork.
    pub fn wait(&self, limit: Option<Duration>) -> Option<Result<u64, Error>> {
        if let Err(error) = self.space.runtime().check_process() {
            return Some(Err(error.into()));
        }
        // A limit beyond the clock is none.
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let value = || *self.value.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = self.job.wait(deadline)?;
        Some(ended.map_err(Error::from).map(|()| value().unwrap_or_default()))
    }

    /// Tells it to stop, as [`Job::cancel`](crate::Job::cancel).
    pub fn cancel(&self) {
        self.space.runtime().cancel(&self.job);
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    use farside_softcard::kernels::{ArgKind, body_kernel};

    use super::*;
    use crate::{Buffer, KernelError};

    /// y += a x, and an error where x is negative.
    unsafe extern "C" fn saxpy(
        user: *mut c_void,
        pieces: *const *mut c_void,
        _first: u64,
        count: u64,
    ) -> i32 {
        // SAFETY: the tests lend x and y of f32, and give one value.
        unsafe {
            let a = user.cast::<f32>().read();
            let x = std::slice::from_raw_parts(pieces.read().cast::<f32>(), count as usize);
            let y =
                std::slice::from_raw_parts_mut(pieces.add(1).read().cast::<f32>(), count as usize);
            for (y, x) in y.iter_mut().zip(x) {
                *y += a * x;
            }
            i32::from(x.iter().any(|&x| x < 0.0))
        }
    }

    fn space() -> Space {
        Space::builder().cards(2).address_space(16 << 20).build().unwrap()
    }

    fn memory(kind: ArgKind, buffer: &Buffer<f32>) -> KernelArg {
        KernelArg { kind, element: 4, word: buffer.addr().0, bytes: size_of_val(&**buffer) as u64 }
    }

    fn value(bits: u32) -> KernelArg {
        KernelArg { kind: ArgKind::Value, element: 4, word: bits.into(), bytes: 0 }
    }

    /// Calls `saxpy` on card 1.
    fn call(space: &Space, records: Vec<KernelArg>) -> Result<u64, Error> {
        let launch = space.kernel("saxpy").on(space.card(1).unwrap());
        // SAFETY: the body is for these arguments; each test waits before it uses its buffers.
        let job = unsafe { launch.launch_function(body_kernel(saxpy), records) }?;
        job.wait(None).unwrap()
    }

    #[test]
    fn a_body_runs_over_all_pieces_of_what_it_is_lent() {
        let space = space();
        let (mut x, y) =
            (space.alloc::<f32>(100_000).unwrap(), space.alloc::<f32>(100_000).unwrap());
        x.fill(1.5);
        let args =
            vec![value(2f32.to_bits()), memory(ArgKind::Read, &x), memory(ArgKind::Write, &y)];
        assert_eq!(call(&space, args.clone()).unwrap(), 100_000);
        assert!(y.iter().all(|&y| y == 3.0));
        x[99_999] = -1.0;
        let failed = call(&space, args).unwrap_err();
        assert!(failed.to_string().contains("its body ended with 1"), "{failed}");
    }

    #[test]
    fn a_body_is_not_called_with_what_it_cannot_take() {
        let space = space();
        let (x, y) = (space.alloc::<f32>(100).unwrap(), space.alloc::<f32>(101).unwrap());
        let (read, write) = (memory(ArgKind::Read, &x), memory(ArgKind::Write, &y));
        let shared = memory(ArgKind::Shared, &x);
        for (args, why) in [
            (vec![value(0)], "lent 0"),
            (vec![read; 9], "lent 9"),
            (vec![read, write], "range 0 has 100 elements"),
            (vec![shared, shared], "shared words"),
        ] {
            match call(&space, args) {
                Err(Error::Kernel(error @ KernelError::BadRequest { .. })) => {
                    assert!(error.to_string().contains(why), "{error}");
                }
                other => panic!("{why}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_job_can_be_waited_for_again() {
        let space = space();
        let mut x = space.alloc::<f32>(10).unwrap();
        x.fill(2.0);
        let launch = space.kernel("farside.sum");
        let mut arg = memory(ArgKind::Read, &x);
        arg.element = 8;
        // SAFETY: nobody writes `x`, which outlives the job.
        let job = unsafe { launch.launch_records(vec![arg]) }.unwrap();
        let sum = job.wait(None).unwrap().unwrap();
        assert_eq!(job.wait(Some(Duration::ZERO)).unwrap().unwrap(), sum);
        // SAFETY: as above; no kernel has that name.
        let unknown = unsafe { space.kernel("no").launch_records(vec![arg]) };
        assert!(matches!(unknown, Err(Error::Kernels(_))));
    }
}
