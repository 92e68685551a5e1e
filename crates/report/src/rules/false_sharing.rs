//! Agents that use different bytes of the same pages: each takes them from the other for nothing.

use super::{Remedy, Rule, Seen};
use crate::gather::name;
use crate::objects::Object;

/// Pages that were handed over so, at least. The driver settles a fight over one page after some ten moves, and has it
/// reached over the bus from then on.
const LEAST: u64 = 8;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Remedy> {
    seen.objects.iter().filter(|it| is_so(it)).filter_map(|it| remedy(seen, it)).collect()
}

/// Whether most of what is handed over of an allocation is handed over so.
pub(super) fn is_so(object: &Object) -> bool {
    object.apart >= LEAST && 2 * object.apart >= object.handed
}

fn remedy(seen: &Seen<'_>, object: &Object) -> Option<Remedy> {
    let example = object.example.as_ref()?;
    let words = seen.words;
    let (loser, from, until) = example.loser;
    let first = format!("{} writes bytes {from}-{} of it", words.agent(loser), until - 1);
    let second = match example.taker {
        (taker, Some((from, until))) => {
            format!("{} bytes {from}-{}", words.agent(taker), until - 1)
        }
        (taker, None) => format!("{} what lies beside them", words.agent(taker)),
    };
    let name = name(object);
    let (apart, page, bytes) = (object.apart, example.page, seen.page_bytes);
    Some(Remedy {
        rule: Rule::FalseSharing,
        evidence: format!(
            "pages of {name} were taken {apart} times by an agent that uses other bytes of them than \
             the one that had them: of page {page}, {first}, {second}"
        ),
        remedy: format!(
            "give each its own pages: an allocation for each, or let each part of {name} begin at a \
             multiple of {bytes} bytes"
        ),
        allocations: vec![name],
        saves: apart,
    })
}
