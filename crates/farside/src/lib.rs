//! One virtual address space over host memory and any number of accelerators.
//!
//! A pointer is valid everywhere. Pages move to where they are used, by themselves (on demand) or
//! when they are told to (user managed), from host to card, back, and directly from card to card.
//! No kernel module: stock Linux.
//!
//! ```
//! use farside::{Read, Space, Write};
//!
//! # fn main() -> Result<(), farside::Error> {
//! let space = Space::builder().cards(2).build()?;
//! let mut input = space.alloc::<f32>(1 << 16)?;
//! let mut output = space.alloc::<f32>(1 << 16)?;
//! input.fill(1.5);
//!
//! let card = space.card(0)?;
//! space.kernel("double").on(card).run(
//!     (Read(&input), Write(&mut output)),
//!     |k, (input, output)| {
//!         k.with((input, output), |(input, mut output)| {
//!             for (out, value) in output.iter_mut().zip(input.iter()) {
//!                 *out = 2.0 * value;
//!             }
//!         })
//!     },
//! )?;
//! assert_eq!(output[12345], 3.0); // the page comes back to the host
//! # Ok(())
//! # }
//! ```
//!
//! # What is ordered
//! A kernel sees everything written before its launch, the program everything a kernel wrote when
//! its end is seen. In between, a page has one writer or many readers at any instant, so racing
//! accesses to words are coherent and atomics work on all agents ([`Shared`]).
//!
//! # Processes and signals
//! A child made by `fork` does not have the shared memory: touching it ends the child with SIGSEGV,
//! and every call on the space is refused with [`LiveError::WrongProcess`]; open a space of its own
//! there. The parent's space goes on. Signal handlers may touch shared memory, also where they have
//! interrupted `malloc`: whoever brings a page of the host or of a card in the program allocates nothing. Only
//! where another thread may be allocating, freeing, moving or launching at that moment, or cards are in other
//! processes, pin what such a handler needs to the host ([`Space::pin`]).

#[macro_use]
mod tuples;

mod adopted;
mod args;
pub mod arrow;
mod buffer;
mod call;
mod cards;
mod column_types;
mod columns;
mod error;
mod events;
mod files;
mod for_each;
pub mod foreign;
mod launch;
mod mapped;
mod moving;
mod order;
mod pieces;
mod recording;
mod report;
mod slow;
mod space;
mod variables;

pub use adopted::{Adopted, NotReleased};
pub use args::{Args, Read, Shared, Write};
pub use buffer::Buffer;
pub use call::{CallArgs, Value};
pub use cards::{CARDS_VARIABLE, cards_of_environment, parse_cards};
pub use column_types::{
    ColumnType, Date32, Elapsed, Microseconds, Milliseconds, Nanoseconds, Seconds, TimeUnit,
    Timestamp,
};
pub use columns::CardColumn;
pub use error::Error;
pub use events::EVENTS_VARIABLE;
#[cfg(feature = "events")]
pub use farside_events::Written;
pub use farside_live::{
    AdoptError, CardPlace, CardShare, CardStream, Dial, Dialled, FileError, Flow, GivenBack,
    LiveError, MoveError, OwnPart, TimeSpent, Traffic,
};
pub use farside_plugin::{
    LIMIT_VARIABLE as SCHEME_LIMIT_VARIABLE, LibraryError as SchemeLibraryError, PluginError,
};
pub use farside_softcard::kernels::{
    ArgKind, CBody, KernelArg, KernelFunction, LibraryError, body_kernel, pieces,
};
pub use farside_softcard::serve;
pub use farside_softcard::{
    AllocOptions, AtomicSpan, Backing, CardBuffer, ColumnBuilder, ColumnParts, Growable,
    KernelArgs, KernelContext, KernelError, Kernels, KernelsError, Made, MadeColumn, MemoryKind,
    OwnMemory, OwnMemoryId, Ptr, ReadSpan, ReadView, TextBuilder, UnknownMemoryKind, WindowError,
    WindowPlanError, Word, WriteSpan, WriteView,
};
pub use farside_svm::{
    Advice, Contested, Evidence, Fight, GroupFacts, Judge, Located, Moved, ObjectFacts, ObjectView,
    PageState, PlacementScheme, RequestError, Stats, Verdict, Why, placement,
};
pub use farside_types::{
    AgentId, CardId, MemoryId, PAGE_SIZE, PageNo, PageRange, Reason, VirtAddr,
};
pub use for_each::{ForEach, Pieces, Progress, ScopedForEach, Shares};
pub use launch::{Job, Launch, Scope, ScopedLaunch, Stream};
pub use mapped::{FILE_MEMORY, MappedFile, NotClosed};
pub use moving::{MoveLaunch, Moving};
pub use order::Precedes;
pub use pieces::{Indices, PieceArgs, Split};
pub use recording::RECORD_VARIABLE;
pub use report::{Busy, CardAccount, NamedFight, Report};
pub use slow::{Remedy, Slow};
pub use space::{Space, SpaceBuilder};
pub use variables::{
    UnknownVariable, VARIABLES, nearest, unknown_variables, warn_of_unknown_variables,
};
