//! How a space is opened.

use std::ffi::c_char;

use farside::{MemoryKind, Space, SpaceBuilder, UnknownMemoryKind};

use crate::record::Record;
use crate::status::Failure;
use crate::text;

/// More than a card has, so that what is read is bounded; the builder says how many it has.
const WINDOWS_MAX: usize = 64;

/// How a space is opened. Begin it with FARSIDE_OPTIONS_INIT; 0 and null mean the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FarsideOptions {
    /// sizeof(farside_options)
    pub size: u32,
    /// Cards in the program, 1 to 16; 2 by default.
    pub cards: u32,
    /// Bytes of memory on each of them, a multiple of 4096; 64 MiB by default.
    pub card_memory: u64,
    /// Bytes of each for its own memory (farside_malloc_on), beside that; none by default.
    pub card_window: u64,
    /// Bytes of addresses, a multiple of 2 MiB: what can be allocated at the same time.
    pub address_space: u64,
    /// Kernels of a card at a time; 1 by default.
    pub processing_elements: u32,
    /// Not 0: allocations of 2 MiB and more are in large pages.
    pub large_pages: u32,
    /// Placement scheme: a name of `farside schemes`, or a library (farside-scheme.h): a path that ends with .so, and behind a
    /// colon its parameters.
    pub placement: *const c_char,
    /// Where the cards are, if not in the program, as in the variable FARSIDE_CARDS.
    pub cards_at: *const c_char,
    /// Libraries of kernels (farside-kernel.h): paths, and a null pointer behind the last.
    pub kernel_libraries: *const *const c_char,
    /// In place of card_window: several memories of each card's own, which farside_malloc_on chooses from.
    pub windows: *const FarsideWindow,
    /// How many; at most 15.
    pub window_count: usize,
}

/// One of a card's own memories.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FarsideWindow {
    /// "ddr", "hbm", "bram", "host", or "memory".
    pub kind: *const c_char,
    /// A multiple of 4096.
    pub bytes: u64,
}

// SAFETY: numbers and pointers, for which zeros are values; the two halves of each eight bytes are both members.
unsafe impl Record for FarsideOptions {
    const NAME: &'static str = "farside_options";
}

/// The builder of a space with these options.
///
/// # Errors
/// A text that is not UTF-8, a list of cards that is none.
///
/// # Safety
/// The texts are null or end with a zero, the list of libraries with a null pointer; the libraries' code runs in this
/// process.
pub(crate) unsafe fn builder(options: &FarsideOptions) -> Result<SpaceBuilder, Failure> {
    let mut builder = Space::builder().large_pages(options.large_pages != 0);
    if options.cards != 0 {
        builder = builder.cards(options.cards as usize);
    }
    if options.card_memory != 0 {
        builder = builder.card_memory(options.card_memory);
    }
    if options.card_window != 0 {
        builder = builder.card_window(options.card_window);
    }
    // SAFETY: the caller's.
    let windows = unsafe { windows(options) }?;
    if !windows.is_empty() {
        builder = builder.card_window_memories(windows);
    }
    if options.address_space != 0 {
        builder = builder.address_space(options.address_space);
    }
    if options.processing_elements != 0 {
        // More than a card has: the builder says how many these are.
        let elements = u16::try_from(options.processing_elements).unwrap_or(u16::MAX);
        builder = builder.processing_elements(elements);
    }
    // SAFETY: the caller's texts, and the library is answered for as those of kernels are.
    unsafe {
        if let Some(name) = text::optional(options.placement, "placement")? {
            builder = builder.placement_or_library(name);
        }
    }
    // SAFETY: the caller's texts.
    if let Some(places) = unsafe { text::optional(options.cards_at, "cards_at") }? {
        builder = builder.cards_at(farside::parse_cards(places)?);
    }
    let mut next = options.kernel_libraries;
    // SAFETY: the list ends with a null pointer, behind which nothing is read.
    while let Some(&path) = unsafe { next.as_ref() } {
        // SAFETY: the caller's texts.
        let Some(path) = (unsafe { text::optional(path, "a kernel library") })? else { break };
        // SAFETY: the caller answers for the library's code; the list goes on behind what was no null pointer.
        unsafe {
            builder = builder.kernel_library(path);
            next = next.add(1);
        }
    }
    Ok(builder)
}

/// # Safety
/// `windows` has `window_count` records, whose texts end with a zero.
unsafe fn windows(options: &FarsideOptions) -> Result<Vec<(MemoryKind, u64)>, Failure> {
    let FarsideOptions { windows, window_count: count, .. } = *options;
    if count == 0 {
        return Ok(Vec::new());
    }
    if windows.is_null() {
        return Err(Failure::null("windows"));
    }
    if count > WINDOWS_MAX {
        let text = format!("window_count is {count}; a card has at most 15 memories of its own");
        return Err(Failure::argument(text));
    }
    // SAFETY: the caller's, and not null.
    let windows = unsafe { std::slice::from_raw_parts(windows, count) };
    let kind = |window: &FarsideWindow| {
        // SAFETY: the caller's texts.
        let kind = unsafe { text::optional(window.kind, "a window's kind") }?;
        let kind = kind.ok_or_else(|| Failure::null("a window's kind"))?;
        let parsed = kind
            .parse()
            .map_err(|error: UnknownMemoryKind| Failure::argument(error.to_string()))?;
        Ok((parsed, window.bytes))
    };
    windows.iter().map(kind).collect()
}
