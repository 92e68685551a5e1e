//! The page DMA: copies and fills of whole pages, by scatter lists.
//!
//! It owns the commands and how far each has come; the bytes are moved by the embedder's
//! [`Memories`]. Commands of one direction are carried out in order, directions take turns.

use std::collections::VecDeque;

use farside_types::{CommandId, FrameNo, MemoryId};
use thiserror::Error;

use crate::{Geometry, Location};

/// The memories that the DMA reaches, as the embedder implements them.
pub trait Memories {
    /// Copies `count` pages between contiguous frames, in ascending order.
    ///
    /// # Errors
    /// How many pages were copied before it failed.
    fn copy_pages(
        &mut self,
        from: Location,
        to: Location,
        count: u32,
    ) -> Result<(), TransferFailed>;

    /// Fills `count` contiguous frames with a repeated word.
    ///
    /// # Errors
    /// How many pages were filled before it failed.
    fn fill_pages(&mut self, to: Location, count: u32, pattern: u64) -> Result<(), TransferFailed>;
}

/// A transfer failed; nothing of it is in flight any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the transfer failed after {pages_done} pages; the source is unchanged, try again")]
pub struct TransferFailed {
    /// Pages finished before the failure.
    pub pages_done: u32,
}

/// Contiguous frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First frame.
    pub frame: FrameNo,
    /// Number of frames.
    pub count: u32,
}

/// Frames of one memory, in the order in which they are used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scatter {
    /// The memory.
    pub memory: MemoryId,
    /// The frames.
    pub extents: Box<[Extent]>,
}

impl Scatter {
    /// Number of pages.
    pub fn pages(&self) -> u64 {
        self.extents.iter().map(|e| u64::from(e.count)).sum()
    }

    /// Where page `index` is, and how many pages the extent goes on for, that one included.
    fn at(&self, mut index: u64) -> Option<(Location, u32)> {
        for extent in &self.extents {
            let count = u64::from(extent.count);
            if index < count {
                let skipped = index as u32;
                let location = Location::new(self.memory, extent.frame.offset(skipped));
                return Some((location, extent.count - skipped));
            }
            index -= count;
        }
        None
    }
}

/// What a DMA command does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// Copies pages, in the order of the lists.
    Copy {
        /// Source.
        from: Scatter,
        /// Destination; as many pages as the source.
        to: Scatter,
    },
    /// Fills pages of the card's own memory with a repeated word; 0 clears them.
    Fill {
        /// Destination.
        to: Scatter,
        /// The word.
        pattern: u64,
    },
}

/// A DMA command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Descriptor {
    /// Pairs the completion with this command.
    pub id: CommandId,
    /// What to do.
    pub transfer: Transfer,
}

/// Which way a command moves pages; each direction has commands of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the host into the card's memory, and fills.
    HostToCard,
    /// From the card's memory to the host.
    CardToHost,
    /// From the card's memory to a peer's (push), or within it.
    CardToCard,
}

/// Whether a command has started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DmaState {
    /// Others of its direction are before it.
    Queued,
    /// It is the next, or under way.
    Running,
}

/// How far a command has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DmaStatus {
    /// Whether it has started.
    pub state: DmaState,
    /// Pages finished.
    pub pages_done: u64,
    /// Pages in all.
    pub pages: u64,
}

/// A command is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Which.
    pub id: CommandId,
    /// Pages finished, in the order of the lists.
    pub pages_done: u64,
    /// Success, or that the transfer failed at the page behind.
    pub result: Result<(), TransferFailed>,
}

/// Why a DMA command was refused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum DmaError {
    /// Too many commands.
    #[error("{most} {direction:?} commands are outstanding, the most there may be; wait for one")]
    QueueFull {
        /// The direction.
        direction: Direction,
        /// The bound.
        most: u32,
    },
    /// Too many pages.
    #[error("{pages} pages in one command, the most is {most}; split the command")]
    TooManyPages {
        /// Pages asked for.
        pages: u64,
        /// The bound.
        most: u32,
    },
    /// Nothing to do.
    #[error("{id} has no page, or an empty extent; leave it out")]
    Empty {
        /// The command.
        id: CommandId,
    },
    /// Lists of different lengths.
    #[error("{from} source pages and {to} destination pages; both lists must be equally long")]
    UnequalLists {
        /// Source pages.
        from: u64,
        /// Destination pages.
        to: u64,
    },
    /// Frames that do not exist.
    #[error("{count} frames from {frame:?} of {memory} on do not exist: it has {frames}")]
    NoSuchFrames {
        /// The memory.
        memory: MemoryId,
        /// First frame.
        frame: FrameNo,
        /// Number of frames.
        count: u32,
        /// Frames that the memory has, as far as the card knows.
        frames: u64,
    },
    /// A way this DMA does not go.
    #[error(
        "the DMA of {own} cannot move pages from {from} to {to}; it writes what it reads from its \
         own memory, and reads from the host into it"
    )]
    Unreachable {
        /// The card's own memory.
        own: MemoryId,
        /// Source; for a fill the destination.
        from: MemoryId,
        /// Destination.
        to: MemoryId,
    },
    /// The id is in use.
    #[error("{id} is outstanding already; every command needs an id of its own")]
    DuplicateId {
        /// The id.
        id: CommandId,
    },
}

#[derive(Clone, Debug)]
struct Job {
    descriptor: Descriptor,
    done: u64,
    pages: u64,
}

/// The page DMA of a card.
#[derive(Clone, Debug)]
pub struct PageDma {
    own: MemoryId,
    frames: u32,
    commands_max: u32,
    pages_max: u32,
    queues: [VecDeque<Job>; 3],
    turn: usize,
    pages_done: u64,
}

impl PageDma {
    /// No command outstanding. `own` is the card's memory, of `frames` frames.
    pub fn new(own: MemoryId, frames: u32, geometry: &Geometry) -> PageDma {
        PageDma {
            own,
            frames,
            commands_max: geometry.dma_commands_max,
            pages_max: geometry.dma_pages_max,
            queues: Default::default(),
            turn: 0,
            pages_done: 0,
        }
    }

    /// Takes a command.
    ///
    /// # Errors
    /// [`DmaError`]; the command was not taken.
    pub fn submit(&mut self, descriptor: Descriptor) -> Result<Direction, DmaError> {
        let direction = self.direction(&descriptor.transfer)?;
        let pages = self.check(&descriptor)?;
        if self.status(descriptor.id).is_some() {
            return Err(DmaError::DuplicateId { id: descriptor.id });
        }
        let most = self.commands_max;
        let queue = &mut self.queues[direction as usize];
        if queue.len() >= most as usize {
            return Err(DmaError::QueueFull { direction, most });
        }
        queue.push_back(Job { descriptor, done: 0, pages });
        Ok(direction)
    }

    fn direction(&self, transfer: &Transfer) -> Result<Direction, DmaError> {
        let own = self.own;
        let (from, to) = match transfer {
            Transfer::Copy { from, to } => (from.memory, to.memory),
            Transfer::Fill { to, .. } => (to.memory, to.memory),
        };
        match transfer {
            Transfer::Fill { .. } if to == own => Ok(Direction::HostToCard),
            Transfer::Copy { .. } if from.is_host() && to == own => Ok(Direction::HostToCard),
            Transfer::Copy { .. } if from == own && to.is_host() => Ok(Direction::CardToHost),
            Transfer::Copy { .. } if from == own => Ok(Direction::CardToCard),
            _ => Err(DmaError::Unreachable { own, from, to }),
        }
    }

    /// The number of pages of a command that can be carried out.
    fn check(&self, descriptor: &Descriptor) -> Result<u64, DmaError> {
        let id = descriptor.id;
        let pages = match &descriptor.transfer {
            Transfer::Copy { from, to } => {
                let (from_pages, to_pages) = (self.check_list(id, from)?, self.check_list(id, to)?);
                if from_pages != to_pages {
                    return Err(DmaError::UnequalLists { from: from_pages, to: to_pages });
                }
                to_pages
            }
            Transfer::Fill { to, .. } => self.check_list(id, to)?,
        };
        let most = self.pages_max;
        if pages > u64::from(most) {
            return Err(DmaError::TooManyPages { pages, most });
        }
        Ok(pages)
    }

    fn check_list(&self, id: CommandId, list: &Scatter) -> Result<u64, DmaError> {
        let own = list.memory == self.own;
        let frames = if own { u64::from(self.frames) } else { 1 << 32 };
        for extent in &list.extents {
            if u64::from(extent.frame.0) + u64::from(extent.count) > frames {
                return Err(DmaError::NoSuchFrames {
                    memory: list.memory,
                    frame: extent.frame,
                    count: extent.count,
                    frames,
                });
            }
        }
        if list.extents.is_empty() || list.extents.iter().any(|extent| extent.count == 0) {
            return Err(DmaError::Empty { id });
        }
        Ok(list.pages())
    }

    /// How far a command has come; `None` when it is over or unknown.
    pub fn status(&self, id: CommandId) -> Option<DmaStatus> {
        self.queues.iter().find_map(|queue| {
            let index = queue.iter().position(|job| job.descriptor.id == id)?;
            let job = &queue[index];
            let running = index == 0;
            Some(DmaStatus {
                state: if running { DmaState::Running } else { DmaState::Queued },
                pages_done: job.done,
                pages: job.pages,
            })
        })
    }

    /// Number of commands outstanding.
    pub fn outstanding(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    /// Moves one contiguous piece of at most `pages_max` pages for the direction whose turn it is.
    /// Returns the completion if a command ended with it.
    pub fn step(&mut self, memories: &mut impl Memories, pages_max: u32) -> Option<Completion> {
        let directions = self.queues.len();
        let turns = (0..directions).map(|offset| (self.turn + offset) % directions);
        let chosen = turns.into_iter().find(|&turn| !self.queues[turn].is_empty())?;
        self.turn = (chosen + 1) % directions;
        let job = self.queues[chosen].front_mut()?;
        let result = job.advance(memories, pages_max.max(1));
        let pages = match result {
            Ok(pages) => pages,
            Err(failed) => failed.pages_done,
        };
        job.done += u64::from(pages);
        self.pages_done += u64::from(pages);
        let result = result.map(|_| ());
        if result.is_ok() && job.done < job.pages {
            return None;
        }
        let job = self.queues[chosen].pop_front()?;
        Some(Completion { id: job.descriptor.id, pages_done: job.done, result })
    }

    /// Carries out every command outstanding.
    pub fn run(&mut self, memories: &mut impl Memories) -> Vec<Completion> {
        let mut completions = Vec::new();
        while self.outstanding() > 0 {
            completions.extend(self.step(memories, u32::MAX));
        }
        completions
    }

    /// Gives a command up. Nothing of it is in flight between two steps, so nothing is written for
    /// it any more. Returns how far it came; `None` when it is over or unknown.
    pub fn cancel(&mut self, id: CommandId) -> Option<DmaStatus> {
        let status = self.status(id)?;
        for queue in &mut self.queues {
            queue.retain(|job| job.descriptor.id != id);
        }
        Some(status)
    }

    /// Gives every command up.
    pub(crate) fn cancel_all(&mut self) {
        self.queues.iter_mut().for_each(VecDeque::clear);
    }

    /// Pages moved or filled so far.
    pub fn pages_done(&self) -> u64 {
        self.pages_done
    }
}

impl Job {
    /// Moves the next contiguous piece. Returns its pages.
    fn advance(&self, memories: &mut impl Memories, pages_max: u32) -> Result<u32, TransferFailed> {
        match &self.descriptor.transfer {
            Transfer::Copy { from, to } => {
                let (Some(from), Some(to)) = (from.at(self.done), to.at(self.done)) else {
                    return Ok(0);
                };
                let count = from.1.min(to.1).min(pages_max);
                memories.copy_pages(from.0, to.0, count).map(|()| count)
            }
            Transfer::Fill { to, pattern } => {
                let Some((to, rest)) = to.at(self.done) else {
                    return Ok(0);
                };
                let count = rest.min(pages_max);
                memories.fill_pages(to, count, *pattern).map(|()| count)
            }
        }
    }
}
