//! Where pages are, and where they shall be.

use std::ffi::{c_char, c_void};
use std::ops::Range;
use std::sync::atomic::AtomicU32;

use farside::{Advice, Error, MemoryId, PageState, Space, VirtAddr};

use crate::handles::farside_space;
use crate::space::{Held, SPACES, put};
use crate::status::{Failure, Status, done};
use crate::text;

/// FARSIDE_HOST
const HOST: i32 = -1;
/// FARSIDE_NOWHERE
const NOWHERE: i32 = -2;
/// A short word, with zeros behind it.
type Word = [c_char; 24];

/// Pages one behind the other that are in the same state.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FarsidePlacement {
    /// Of the first byte.
    pub address: u64,
    /// A multiple of 4096.
    pub bytes: u64,
    /// The memory that they are in: a card's number, FARSIDE_HOST, or FARSIDE_NOWHERE for pages that were never written or
    /// are lost.
    pub memory: i32,
    /// Memories with a copy: bit 0 the host's, bit 1 card 0's, and so on.
    pub copies: u32,
    /// "fresh", "host", "card", "replicated", "moving" or "lost".
    pub state: [c_char; 24],
    /// Why they came there last, in a word; empty if that is not known.
    pub reason: [c_char; 24],
}

/// Moves memory: all of it, or nothing. `pages` may be null; it gets how many were moved.
///
/// # Safety
/// `pages` is null or points to where the number is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_migrate(
    space: *const farside_space,
    memory: *const c_void,
    bytes: usize,
    to: i32,
    pages: *mut u64,
) -> Status {
    // SAFETY: passed on to the caller.
    unsafe {
        moved(space, range(memory, bytes), to, pages, |space, words, to| space.migrate(words, to))
    }
}

/// Brings memory as far as there is room. `pages` may be null; it gets how many were moved.
///
/// # Safety
/// `pages` is null or points to where the number is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_prefetch(
    space: *const farside_space,
    memory: *const c_void,
    bytes: usize,
    to: i32,
    pages: *mut u64,
) -> Status {
    // SAFETY: passed on to the caller.
    unsafe {
        moved(space, range(memory, bytes), to, pages, |space, words, to| space.prefetch(words, to))
    }
}

/// Moves memory and keeps it there, until farside_unpin has been called as often.
#[unsafe(no_mangle)]
pub extern "C" fn farside_pin(
    space: *const farside_space,
    memory: *const c_void,
    bytes: usize,
    at: i32,
) -> Status {
    done(|| {
        let held = SPACES.get(space)?;
        let at = memory_id(&held, at)?;
        Ok(held.foreign.with(range(memory, bytes), |space, words| space.pin(words, at))?)
    })
}

/// Undoes one farside_pin.
#[unsafe(no_mangle)]
pub extern "C" fn farside_unpin(
    space: *const farside_space,
    memory: *const c_void,
    bytes: usize,
) -> Status {
    done(|| {
        let held = SPACES.get(space)?;
        Ok(held.foreign.with(range(memory, bytes), |space, words| space.unpin(words))?)
    })
}

/// Whether kernels may write memory: not if `on` is not 0.
#[unsafe(no_mangle)]
pub extern "C" fn farside_set_read_only(
    space: *const farside_space,
    memory: *const c_void,
    bytes: usize,
    on: i32,
) -> Status {
    done(|| {
        let held = SPACES.get(space)?;
        let on = on != 0;
        Ok(held
            .foreign
            .with(range(memory, bytes), |space, words| space.set_read_only(words, on))?)
    })
}

/// Tells how memory will be used: one of FARSIDE_READ_MOSTLY, FARSIDE_WHOLE_BLOCKS, FARSIDE_PREFERRED and
/// FARSIDE_ACCESSED_BY. It holds if `on` is not 0, and no longer if it is. `who` is a card's number or
/// FARSIDE_HOST: the memory that is preferred, or the agent that accesses.
#[unsafe(no_mangle)]
pub extern "C" fn farside_advise(
    space: *const farside_space,
    memory: *const c_void,
    bytes: usize,
    advice: u32,
    on: i32,
    who: i32,
) -> Status {
    done(|| {
        let held = SPACES.get(space)?;
        let on = on != 0;
        let advice = match advice {
            1 => Advice::ReadMostly(on),
            2 => Advice::WholeBlocks(on),
            3 if on => Advice::Preferred(Some(memory_id(&held, who)?)),
            3 => Advice::Preferred(None),
            4 => Advice::AccessedBy(held.foreign.agent_of(card_number(who)?)?, on),
            other => {
                return Err(Failure::argument(format!("there is no advice {other}: 1 to 4 are")));
            }
        };
        Ok(held.foreign.with(range(memory, bytes), |space, words| space.advise(words, advice))?)
    })
}

/// Where memory is: the first `capacity` parts of it, and in `count` how many there are.
///
/// # Safety
/// `parts` has room for `capacity` of them; `count` is null or points to where the number is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_where(
    space: *const farside_space,
    memory: *const c_void,
    bytes: usize,
    parts: *mut FarsidePlacement,
    capacity: usize,
    count: *mut usize,
) -> Status {
    done(|| {
        let held = SPACES.get(space)?;
        if parts.is_null() && capacity > 0 {
            return Err(Failure::null("parts"));
        }
        let found = held.foreign.with(range(memory, bytes), |space, words| space.locate(words))?;
        for (place, located) in found.iter().take(capacity).enumerate() {
            // SAFETY: below `capacity`.
            unsafe { parts.add(place).write(part(located)) };
        }
        // SAFETY: the caller's.
        unsafe { put(count, "count", found.len()) }
    })
}

/// Why the page at an address is where it is, in words: as much as `size` bytes hold, with a zero at the end. `length` may be null;
/// it gets the length of the whole text.
///
/// # Safety
/// `why` is null or has `size` bytes; `length` is null or points to where it is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_why(
    space: *const farside_space,
    address: *const c_void,
    why: *mut c_char,
    size: usize,
    length: *mut usize,
) -> Status {
    done(|| {
        let space = SPACES.get(space)?.foreign.open()?;
        let found = space.why(VirtAddr(address.addr() as u64))?.to_string();
        // SAFETY: the caller's.
        unsafe { text::give(&found, why, size, length) };
        Ok(())
    })
}

fn part(located: &farside::Located) -> FarsidePlacement {
    let number = |memory: MemoryId| memory.card().map_or(HOST, |card| card.0.into());
    let state = match located.state {
        PageState::Unallocated | PageState::Tombstone => "unallocated",
        PageState::Fresh => "fresh",
        PageState::Host => "host",
        PageState::Card => "card",
        PageState::Replicated => "replicated",
        PageState::Moving => "moving",
        PageState::Lost => "lost",
    };
    FarsidePlacement {
        address: located.range.start.addr().0,
        bytes: located.range.bytes(),
        memory: located.owner.map_or(NOWHERE, number),
        copies: located.copies.iter().fold(0, |set, memory| set | 1 << memory.0),
        state: word(state),
        reason: word(located.reason.map_or("", |reason| reason.name())),
    }
}

fn word(text: &str) -> Word {
    let mut bytes = Word::default();
    // The last stays zero.
    let most = bytes.len() - 1;
    for (to, from) in bytes[..most].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    bytes
}

fn range(memory: *const c_void, bytes: usize) -> Range<u64> {
    let start = memory.addr() as u64;
    start..start.saturating_add(bytes as u64)
}

/// A card's number; None for the host's.
fn card_number(number: i32) -> Result<Option<usize>, Failure> {
    if number == HOST {
        return Ok(None);
    }
    usize::try_from(number).map(Some).map_err(|_| {
        let text =
            format!("there is no memory {number}; a card's is its number, FARSIDE_HOST is {HOST}");
        Failure::new(Status::NoCard, text)
    })
}

fn memory_id(held: &Held, number: i32) -> Result<MemoryId, Failure> {
    Ok(held.foreign.memory_of(card_number(number)?)?)
}

/// Moves memory, and writes how many pages were moved where the caller wants it, if anywhere.
///
/// # Safety
/// `pages` is null or points to where the number is written.
unsafe fn moved(
    space: *const farside_space,
    range: Range<u64>,
    to: i32,
    pages: *mut u64,
    act: impl FnOnce(&Space, &[AtomicU32], MemoryId) -> Result<u64, Error>,
) -> Status {
    done(|| {
        let held = SPACES.get(space)?;
        let to = memory_id(&held, to)?;
        let moved = held.foreign.with(range, |space, words| act(space, words, to))?;
        if !pages.is_null() {
            // SAFETY: the caller's.
            unsafe { pages.write(moved) };
        }
        Ok(())
    })
}
