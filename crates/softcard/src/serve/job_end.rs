//! How a job ended, in the words of the card interface.

use farside_card::JobEnd;
use farside_card::interface::{Status, reason_to_word};
use farside_types::Access;

use crate::error::KernelError;
use crate::job::Job;

/// A job's result in the words of the card interface.
pub(super) fn job_end(job: &Job) -> JobEnd {
    let error = match job.result() {
        None | Some(Ok(())) => return JobEnd::returned(job.value()),
        Some(Err(error)) => error,
    };
    let end = |status, value, detail, message: String| JobEnd { status, value, detail, message };
    match error {
        KernelError::WildAddress { addr, access, .. } => {
            let write = u64::from(access == Access::Write);
            end(Status::WildAddress, write, addr.0, String::new())
        }
        KernelError::Fault { page, reason, .. } => {
            end(Status::KernelFault, reason_to_word(reason).into(), page.0, String::new())
        }
        KernelError::BadRequest { why, .. } => JobEnd::failed(Status::BadRequest, why),
        KernelError::Window { error, .. } => {
            JobEnd::failed(Status::KernelFailed, error.to_string())
        }
        KernelError::Panicked { message, .. } => JobEnd::failed(Status::KernelPanicked, message),
        KernelError::Failed { message, .. } => JobEnd::failed(Status::KernelFailed, message),
        KernelError::Hung { .. } => JobEnd::failed(Status::Hung, String::new()),
        KernelError::Cancelled { .. }
        | KernelError::TimedOut { .. }
        | KernelError::Dropped { .. }
        | KernelError::NotOnCard { .. }
        | KernelError::NotRun { .. }
        | KernelError::Busy { .. } => JobEnd::failed(Status::Aborted, String::new()),
    }
}
