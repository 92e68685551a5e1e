//! What the embedder must do for a function with bytes and threads, and what comes of it.

use farside_types::{Asid, CommandId, JobId, PeId};

use crate::Answer;
use crate::interface::{Extent, KernelArg, Status};

/// Something that only the embedder can do. [`crate::Function::poll_action`] gives them in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Run a kernel on a processing element; answer with [`crate::Function::job_ended`].
    Start {
        /// Where.
        pe: PeId,
        /// Names the job.
        job: JobId,
        /// The address space of its arguments.
        asid: Asid,
        /// Index among [`crate::FunctionConfig::kernels`].
        kernel: u32,
        /// Its arguments.
        args: Vec<KernelArg>,
    },
    /// The job is not wanted any more: its kernel is to end at its next access or checkpoint, and
    /// [`crate::Function::job_ended`] is called as for any other.
    Stop {
        /// Which.
        job: JobId,
    },
    /// Hand this to the processing element that stood in a fault.
    Answer(Answer),
    /// Copy pages, extent by extent, from `src` to `dst`; answer with [`crate::Function::copied`].
    /// A bus address may reach this function's own memory too, so that both ends may overlap.
    Copy {
        /// Pairs the answer with this.
        id: CommandId,
        /// What to copy: checked, and at most [`crate::Geometry::dma_pages_max`] pages.
        extents: Vec<Extent>,
    },
    /// Fill `dst` of each extent with a repeated word, little endian; answer with
    /// [`crate::Function::copied`].
    Fill {
        /// Pairs the answer with this.
        id: CommandId,
        /// What to fill: checked, and at most [`crate::Geometry::dma_pages_max`] pages.
        extents: Vec<Extent>,
        /// The word.
        pattern: u64,
    },
    /// Take pages from the link into `dst` of each extent; answer with [`crate::Function::linked`].
    LinkReceive {
        /// Pairs the answer with this.
        id: CommandId,
        /// Where they go: checked.
        extents: Vec<Extent>,
        /// Names the transfer on both cards.
        transfer: u32,
        /// The card it comes from.
        from: u16,
    },
    /// Send pages from `src` of each extent over the link; answer with [`crate::Function::linked`].
    LinkSend {
        /// Pairs the answer with this.
        id: CommandId,
        /// Where they are: checked.
        extents: Vec<Extent>,
        /// Names the transfer on both cards.
        transfer: u32,
        /// The card it goes to.
        to: u16,
    },
    /// Give an announced transfer up: answer its [`Action::LinkReceive`] with
    /// [`Status::Aborted`], then this with [`Status::Ok`]; or this with [`Status::NoSuchJob`] if
    /// there is none. Both answers are [`crate::Function::linked`].
    LinkCancel {
        /// Pairs the answer with this.
        id: CommandId,
        /// Which transfer.
        transfer: u32,
        /// The card it would come from.
        from: u16,
    },
    /// A reset began while copies or fills were under way: end each between two pages of it, as soon
    /// as that can be, and answer it as failed.
    StopCopies,
    /// A reset began while link transfers were under way: end each, and answer it.
    StopLinks,
    /// Everything that the function had started is over. Put back what the embedder keeps for it,
    /// then call [`crate::Function::reset_done`].
    Reset,
}

/// How a job ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobEnd {
    /// [`Status::Ok`], or one of those that name a kernel's failure.
    pub status: Status,
    /// What the kernel returned; for a fault that was cancelled the reason's word.
    pub value: u64,
    /// The page or the address concerned.
    pub detail: u64,
    /// What went wrong, in words; as much of it as the launch has room for is written there.
    pub message: String,
}

impl JobEnd {
    /// The kernel returned `value`.
    pub const fn returned(value: u64) -> JobEnd {
        JobEnd { status: Status::Ok, value, detail: 0, message: String::new() }
    }

    /// The kernel did not end well.
    pub const fn failed(status: Status, message: String) -> JobEnd {
        JobEnd { status, value: 0, detail: 0, message }
    }
}
