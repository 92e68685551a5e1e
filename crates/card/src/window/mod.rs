//! The card's own window: a stretch of addresses whose page tables the card itself writes.
//!
//! What is here translates: [`WindowGeometry`] says how an address is taken apart, a [`WindowWalk`]
//! follows the words of the tables, a [`WindowWalker`] makes many walks at a time and keeps lines of the
//! tables, a [`WindowL2`] holds many pages, a [`WindowTranslator`] gives readers and writers their answers. The
//! words are those of the driver's tables ([`crate::tables`], section 8 of `docs/card-interface.md`),
//! with other sizes of pages and tables. Accessed and dirty bits are not kept: the driver does not
//! move pages of the window.
//!
//! It is a model of `rtl/translator.vhd`, `rtl/l2_tlb.vhd` and `rtl/walker.vhd`: without a clock, every answer is the
//! same (`tests/rtl.rs`). It does no reads: a walk says which word or line it needs, and is given it.

mod alloc;
mod geometry;
mod l2;
mod line;
mod mapping;
mod run;
mod translator;
mod walk;
mod walker;
mod words;

pub use alloc::{
    AllocArbiter, AllocCounts, AllocError, AllocStep, Allocator, AllocatorConfig,
    AllocatorConfigError, FreedFrames, SweepStep, TableBus, TableBusError, Touch, WindowPages,
};
pub use geometry::{WindowGeometry, WindowGeometryError, virtual_bytes_needed};
pub use l2::WindowL2;
pub use mapping::{WindowFault, WindowMapping};
pub use translator::{WindowAnswer, WindowTranslator};
pub use walk::{WindowNeed, WindowWalk};
pub use walker::{WindowLook, WindowWalker};
pub use words::TableWords;
