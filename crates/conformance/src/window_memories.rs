//! The memories of the card's own window: each gives its own frames, and gets them back.

use super::client::{Client, NO_ASID, ensure, needs, same};
use super::window::{Window, alloc_in, free};
use super::{Lack, Outcome, Target, Verdict};
use farside_card::interface::{AllocRequest, LOCATE_NOWHERE, Operation, Status, register};

/// The minor version since which each has registers.
const SINCE: u32 = 4;
/// Pages that are allocated at once, at most.
const PAGES_MAX: u32 = 16;

/// What a card says of its memories.
struct Memories {
    /// Where the frames begin in BAR2; 0: they are not shown.
    first: u64,
    frames: Vec<u32>,
}

impl Memories {
    fn of(client: &mut Client) -> Result<Memories, String> {
        let count = client.read32(register::WINDOW_MEMORIES);
        ensure!((1..=register::MEMORIES_MAX).contains(&count), "a window has {count} memories");
        let read = |number| client.read32(register::memory(number as u8) + register::MEMORY_FRAMES);
        let frames: Vec<u32> = (0..count).map(read).collect();
        let all: u64 = frames.iter().map(|&frames| u64::from(frames)).sum();
        same("frames of all memories", all, client.target.read64(register::WINDOW_FRAMES))?;
        ensure!(!frames.contains(&0), "a memory has no frame: {frames:?}");
        for number in count..register::MEMORIES_MAX {
            let offset = register::memory(number as u8) + register::MEMORY_FRAMES;
            same("frames of no memory", client.read32(offset), u32::MAX)?;
        }
        Ok(Memories { first: client.read32(register::WINDOW_FIRST).into(), frames })
    }

    /// Frames of each that are free.
    fn free(&self, client: &mut Client) -> Result<Vec<u32>, String> {
        let numbers = 0..self.frames.len() as u8;
        let read = |it| client.read32(register::memory(it) + register::MEMORY_FRAMES_FREE);
        let free: Vec<u32> = numbers.map(read).collect();
        let is_possible = free.iter().zip(&self.frames).all(|(free, frames)| free <= frames);
        ensure!(is_possible, "{free:?} frames of {:?} are free", self.frames);
        let all = free.iter().map(|&free| u64::from(free)).sum();
        same("WINDOW_FRAMES_FREE", client.target.read64(register::WINDOW_FRAMES_FREE), all)?;
        Ok(free)
    }

    /// That so many pages came from a memory. Tables may have taken some too, where their memory is one of these.
    fn check_taken(
        &self,
        (before, now): (&[u32], &[u32]),
        memory: usize,
        pages: u32,
    ) -> Result<(), String> {
        for (other, (&before, &now)) in before.iter().zip(now).enumerate() {
            let taken = i64::from(before) - i64::from(now);
            let wanted = i64::from(if other == memory { pages } else { 0 });
            let tables = if self.first == 0 { i64::from(pages) - 1 } else { 0 };
            ensure!(
                (wanted..=wanted + tables).contains(&taken),
                "of memory {other} {taken} frames were taken for {pages} pages of memory {memory}"
            );
        }
        Ok(())
    }

    /// Where frames of a memory begin in BAR2, and end.
    fn place(&self, memory: usize) -> std::ops::Range<u64> {
        let frames = |part: &[u32]| part.iter().map(|&frames| u64::from(frames)).sum::<u64>();
        let begin = self.first + frames(&self.frames[..memory]);
        begin..begin + u64::from(self.frames[memory])
    }
}

/// Pages that are touched get frames of their memory.
fn touch_lazy(
    client: &mut Client,
    memories: &Memories,
    memory: usize,
    page: u64,
) -> Result<(), String> {
    let before = memories.free(client)?;
    let address = client.ok(NO_ASID, alloc_in(memory as u8, 2 * page, true))?.value;
    memories.check_taken((&before, &memories.free(client)?), memory, 0)?;
    let locate = |touch| Operation::Locate { address, pages: 1, touch };
    same("an untouched page", client.ok(NO_ASID, locate(false))?.value, LOCATE_NOWHERE)?;
    let place = client.ok(NO_ASID, locate(true))?.value;
    let own = memories.place(memory);
    ensure!(own.contains(&place), "a page of memory {memory} is {place:#x}, not in {own:#x?}");
    memories.check_taken((&before, &memories.free(client)?), memory, 1)?;
    free(client, address)
}

pub(super) fn each_memory_gives_its_own_frames_and_gets_them_back(
    target: &mut dyn Target,
) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_ALLOC);
    let minor = client.read32(register::VERSION) & 0xffff;
    if minor < SINCE {
        let why = format!("the function speaks version 1.{minor}: its memories have no registers");
        return Ok(Verdict::NotRun(Lack::Other(why)));
    }
    let page = Window::of(&mut client)?.page;
    let memories = Memories::of(&mut client)?;
    // What is kept ready has its frames when something has come and gone.
    let address = client.ok(NO_ASID, alloc_in(0, page, false))?.value;
    free(&mut client, address)?;
    client.settle()?;
    let all_free = memories.free(&mut client)?;
    for memory in 0..memories.frames.len() {
        let before = memories.free(&mut client)?;
        let pages = (before[memory] / 4).clamp(1, PAGES_MAX);
        let bytes = u64::from(pages) * page;
        let address = client.ok(NO_ASID, alloc_in(memory as u8, bytes, false))?.value;
        memories.check_taken((&before, &memories.free(&mut client)?), memory, pages)?;
        let realloc = AllocRequest::Realloc { address, bytes: 2 * bytes, lazy: false };
        let address = client.ok(NO_ASID, Operation::Allocate(realloc))?.value;
        memories.check_taken((&before, &memories.free(&mut client)?), memory, 2 * pages)?;
        // One frame more than there are, while others have room: one that is full is an error.
        let over = (u64::from(memories.frames[memory]) + 1) * page;
        if over <= client.target.read64(register::WINDOW_BYTES) {
            let done = client.run(NO_ASID, alloc_in(memory as u8, over, false))?;
            let is_full = [Status::NoFrames, Status::NoSpace].contains(&done.status);
            ensure!(is_full, "more than memory {memory} has ends with {:?}", done.status);
        }
        free(&mut client, address)?;
        client.until("frames of its memory", |client| {
            Ok(memories.free(client)?[memory] >= before[memory])
        })?;
        if memories.first != 0 {
            touch_lazy(&mut client, &memories, memory, page)?;
        }
    }
    client.until("frames of all memories", |client| Ok(memories.free(client)? == all_free))?;
    client.finish()
}
