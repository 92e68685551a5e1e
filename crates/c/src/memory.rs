//! Memory.

use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::Arc;

use farside::foreign::Allocation;
use farside::{Backing, Made, OwnMemoryId};

use crate::handles::farside_space;
use crate::space::{Held, SPACES, put};
use crate::status::{Failure, Status, done};
use crate::text;

/// Allocates shared memory, zero, aligned to a page: valid at the same address in the program and on every card. `name` is for
/// reports and errors, and may be null.
///
/// # Safety
/// `name` is null or ends with a zero; `memory` is null or points to where the address is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_malloc(
    space: *const farside_space,
    bytes: usize,
    name: *const c_char,
    memory: *mut *mut c_void,
) -> Status {
    done(|| {
        let held = SPACES.get(space)?;
        // SAFETY: the caller's text.
        let name = unsafe { text::optional(name, "name") }?.unwrap_or("");
        // SAFETY: the caller's.
        unsafe { give(&held, memory, || Ok(held.foreign.alloc(bytes as u64, name)?)) }
    })
}

/// Shares memory that the program has already (malloc, an array, anonymous mmap), at its own addresses, until farside_release
/// of its first byte, which brings all of it home and frees nothing. Do not free, move or unmap it before. It needs Linux 6.8.
/// Pages at its ends that hold other data as well stay where they are, and kernels reach their bytes there; cards in other
/// processes need whole pages. `name` is for reports and errors, and may be null.
///
/// # Safety
/// `name` is null or ends with a zero; `memory` has `bytes` bytes and lives until it was released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_adopt(
    space: *const farside_space,
    memory: *mut c_void,
    bytes: usize,
    name: *const c_char,
) -> Status {
    done(|| {
        let held = SPACES.get(space)?;
        if memory.is_null() {
            return Err(Failure::null("memory"));
        }
        // SAFETY: the caller's text.
        let name = unsafe { text::optional(name, "name") }?.unwrap_or("");
        let start = memory.expose_provenance() as u64;
        // SAFETY: the caller's.
        let adopted = unsafe { held.foreign.adopt(start, bytes as u64, name, None) }?;
        // A former one began here if the program has unmapped that without a word: it ends, and not under the lock.
        let former = held.memory().insert(start, adopted);
        drop(former);
        Ok(())
    })
}

/// Makes a file shared memory: its bytes lie at `memory` on the host and on all cards, come when they are touched, and what is
/// changed of them is written by farside_sync_file, by farside_release, and when their memory is needed for others. The host keeps
/// `at_a_time` bytes of it, of 4 MiB at least; 0 stands for 256 MiB. It is locked (flock) until it is released. Linux 6.8.
///
/// # Safety
/// `path` ends with a zero; `memory` is null or points to where the address is written, `bytes` to where the file's size is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_map_file(
    space: *const farside_space,
    path: *const c_char,
    at_a_time: u64,
    memory: *mut *mut c_void,
    bytes: *mut u64,
) -> Status {
    done(|| {
        let held = SPACES.get(space)?;
        // SAFETY: the caller's text.
        let path = unsafe { text::optional(path, "path") }?.ok_or_else(|| Failure::null("path"))?;
        if bytes.is_null() {
            return Err(Failure::null("bytes"));
        }
        let at_a_time = if at_a_time == 0 { farside::FILE_MEMORY } else { at_a_time };
        let mut mapped = 0;
        let map = || {
            let file = held.foreign.map_file(Path::new(path), at_a_time)?;
            mapped = file.bytes();
            Ok(file)
        };
        // SAFETY: the caller's.
        unsafe { give(&held, memory, map) }?;
        // SAFETY: not null, and the caller's.
        unsafe { put(bytes, "bytes", mapped) }
    })
}

/// Writes what was changed of a file, by kernels that have ended and by the program, and waits until it is on the disk. What cannot be
/// written stays in memory, and can be synced again, but for what was lost with a card. `memory` is what farside_map_file gave.
#[unsafe(no_mangle)]
pub extern "C" fn farside_sync_file(space: *const farside_space, memory: *mut c_void) -> Status {
    done(|| {
        let held = SPACES.get(space)?;
        let address = memory.addr() as u64;
        let found = held.memory().get(&address).cloned();
        let allocation = found.ok_or_else(|| not_held(&held, address))?;
        let file = allocation.file().ok_or_else(|| {
            let text =
                format!("{address:#x} is no file's; farside_map_file makes one shared memory");
            Failure::new(Status::BadMemory, text)
        })?;
        Ok(file.sync()?)
    })
}

/// Allocates memory of a card's own, zero: its pages stay on that card. `number` is which of its memories: 0 where there is one
/// alone, else farside_memory_number tells.
///
/// # Safety
/// `memory` is null or points to where the address is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_malloc_on(
    space: *const farside_space,
    card: u32,
    number: u32,
    bytes: usize,
    memory: *mut *mut c_void,
) -> Status {
    done(|| {
        let held = SPACES.get(space)?;
        let number = memory_number(card, number)?;
        let options = Backing::Eager.in_memory(number);
        let allocate = || Ok(held.foreign.alloc_on(card as usize, bytes as u64, options)?);
        // SAFETY: the caller's.
        unsafe { give(&held, memory, allocate) }
    })
}

/// Takes memory over that a kernel of a card has made in the card's own memory, and handed over with farside_hand_over: its
/// `address`, and as many bytes as it has. The program may not be able to reach it at its address, if its pages
/// are scattered and the process has no more mappings; farside_copy_out always can.
///
/// # Safety
/// `memory` is null or points to where the address is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_take_over(
    space: *const farside_space,
    card: u32,
    address: u64,
    bytes: usize,
    memory: *mut *mut c_void,
) -> Status {
    done(|| {
        let held = SPACES.get(space)?;
        let take = || {
            let open = held.foreign.open()?;
            let made = Made { addr: address, len: bytes as u64 };
            let own = open.take_over::<u8>(open.card(card as usize)?, made)?;
            // Where that fails there are only copies.
            let _ = own.host();
            Ok(held.foreign.keep(Allocation::Own(own)))
        };
        // SAFETY: the caller's.
        unsafe { give(&held, memory, take) }
    })
}

/// Bytes of one of a card's own memories that nobody has.
///
/// # Safety
/// `bytes` is null or points to where the number is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_own_memory_free(
    space: *const farside_space,
    card: u32,
    number: u32,
    bytes: *mut u64,
) -> Status {
    done(|| {
        let all = SPACES.get(space)?.foreign.own_memories(card as usize)?;
        let memory = all.get(number as usize).ok_or_else(|| no_memory(card, number))?;
        // SAFETY: the caller's.
        unsafe { put(bytes, "bytes", memory.bytes_free) }
    })
}

/// The number of one of a card's own memories, by its name such as "hbm0", or by its kind if the card has one of it alone.
///
/// # Safety
/// `name` ends with a zero; `number` is null or points to where it is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_memory_number(
    space: *const farside_space,
    card: u32,
    name: *const c_char,
    number: *mut u32,
) -> Status {
    done(|| {
        let open = SPACES.get(space)?.foreign.open()?;
        // SAFETY: the caller's text.
        let name = unsafe { text::optional(name, "name") }?.ok_or_else(|| Failure::null("name"))?;
        let found = open.own_memory(open.card(card as usize)?, name)?;
        // SAFETY: the caller's.
        unsafe { put(number, "number", found.0.into()) }
    })
}

/// Frees memory of any of these kinds; what was adopted is the program's again, and what was changed of a file is written.
/// It is refused while a kernel holds some of it. If it fails, it can be tried again, unless bytes were lost with a card.
/// Nothing happens for a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn farside_release(space: *const farside_space, memory: *mut c_void) -> Status {
    done(|| {
        let held = SPACES.get(space)?;
        if memory.is_null() {
            return Ok(());
        }
        let address = memory.addr() as u64;
        let mut all = held.memory();
        let allocation = all.get(&address).ok_or_else(|| not_held(&held, address))?;
        held.foreign.check_unused(allocation, "the memory was not freed")?;
        let freed = all.remove(&address);
        drop(all);
        let Some(freed) = freed else { return Ok(()) };
        let outcome = freed.give_back();
        if !freed.is_given_back() {
            // It can be tried again.
            held.memory().entry(address).or_insert(freed);
        }
        Ok(outcome?)
    })
}

/// Copies memory of the space, of a card's own too, to where the program wants it.
///
/// # Safety
/// `to` has `bytes` bytes, and no kernel writes the memory meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_copy_out(
    space: *const farside_space,
    memory: *const c_void,
    bytes: usize,
    to: *mut c_void,
) -> Status {
    done(|| {
        let held = SPACES.get(space)?;
        if to.is_null() {
            return Err(Failure::null("to"));
        }
        let start = memory.addr() as u64;
        let range = start..start.saturating_add(bytes as u64);
        let allocation = held.foreign.memory_at(&range)?;
        let copied;
        let from = match &*allocation {
            Allocation::Shared(_) | Allocation::Adopted(_) | Allocation::File(_) => {
                memory.cast::<u8>()
            }
            Allocation::Own(own) => {
                copied = own.to_vec().map_err(farside::Error::from)?;
                let first = (start - allocation.start()) as usize;
                copied[first..first + bytes].as_ptr()
            }
        };
        // SAFETY: `bytes` bytes of the allocation or of its copy, which live on; the rest is the caller's.
        unsafe { to.cast::<u8>().copy_from(from, bytes) };
        Ok(())
    })
}

/// Writes the address of memory that is made now where the caller wants it, and holds it for the program.
///
/// # Safety
/// `memory` is null or points to where an address can be written.
unsafe fn give(
    held: &Held,
    memory: *mut *mut c_void,
    make: impl FnOnce() -> Result<Arc<Allocation>, Failure>,
) -> Result<(), Failure> {
    if memory.is_null() {
        return Err(Failure::null("memory"));
    }
    let allocation = make()?;
    let start = allocation.start();
    held.memory().insert(start, allocation);
    // SAFETY: not null, and the caller's.
    unsafe { memory.write(std::ptr::with_exposed_provenance_mut(start as usize)) };
    Ok(())
}

fn memory_number(card: u32, number: u32) -> Result<OwnMemoryId, Failure> {
    u8::try_from(number).map(OwnMemoryId).map_err(|_| no_memory(card, number))
}

fn no_memory(card: u32, number: u32) -> Failure {
    let text = format!(
        "card {card} has no memory number {number} of its own; farside_memory_number finds them by their names"
    );
    Failure::argument(text)
}

/// Why an address cannot be freed.
fn not_held(held: &Held, address: u64) -> Failure {
    let text = match held.foreign.memory_at(&(address..address + 1)) {
        Ok(allocation) => format!(
            "{address:#x} is inside the allocation that begins at {:#x}; free that",
            allocation.start()
        ),
        Err(error) => error.to_string(),
    };
    Failure::new(Status::BadMemory, text)
}
