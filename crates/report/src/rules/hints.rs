//! What the program said of its memory and is not so.

use farside_types::MemoryId;

use super::{Remedy, Rule, Seen};
use crate::gather::name;
use crate::objects::Object;

/// Pages that suffer from it, at least; fewer cost nothing.
const LEAST: u64 = 64;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Remedy> {
    let written = seen.objects.iter().filter_map(read_mostly);
    let elsewhere = seen.objects.iter().filter_map(|object| elsewhere(seen, object));
    written.chain(elsewhere).collect()
}

/// Whether an allocation is written that the program says is mostly read.
pub(super) fn is_written(object: &Object) -> bool {
    object.collapsed >= LEAST && object.collapsed >= 2 * object.pages
}

/// What is said to be mostly read is copied to every reader, and each write takes the copies away.
fn read_mostly(object: &Object) -> Option<Remedy> {
    let collapsed = object.collapsed;
    let name = name(object);
    is_written(object).then(|| Remedy {
        rule: Rule::WrongHint,
        evidence: format!(
            "{name} is advised as mostly read, and writes took the copies of its {} pages away \
             {collapsed} times",
            object.pages
        ),
        remedy: format!("leave the advice out: space.advise(&{name}, Advice::ReadMostly(false))"),
        allocations: vec![name],
        saves: collapsed,
    })
}

/// What is brought to a memory where nobody uses it, and fetched from there.
fn elsewhere(seen: &Seen<'_>, object: &Object) -> Option<Remedy> {
    let (&(at, to), &wasted) = object.wasted.iter().max_by_key(|(_, pages)| **pages)?;
    let name = name(object);
    let (hinted, there) = (object.hinted, seen.words.memory(at));
    let all: u64 = object.wasted.values().sum();
    (wasted >= LEAST && 2 * all >= hinted).then(|| Remedy {
        rule: Rule::WrongHint,
        evidence: format!(
            "of {hinted} pages of {name} that the program brought to {there}, {all} were fetched \
             from there by others before a kernel used them there, most by {}",
            seen.words.agent(to.agent())
        ),
        remedy: format!("bring it where it is used: space.prefetch(&{name}, {})", place(to)),
        allocations: vec![name],
        saves: 2 * all,
    })
}

/// A memory as a program writes it.
fn place(memory: MemoryId) -> String {
    memory.card().map_or("MemoryId::HOST".to_owned(), |card| format!("space.card({})?", card.0))
}
