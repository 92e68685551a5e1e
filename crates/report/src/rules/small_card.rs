//! What is used does not fit on the card: what had to leave comes back.

use super::{Remedy, Rule, Seen, scans};
use crate::gather::name;
use crate::objects::Object;

/// Pages that came back, at least; fewer cost nothing.
const LEAST: u64 = 64;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Remedy> {
    let suffers = |object: &&Object| {
        object.returned >= LEAST
            && 2 * object.returned >= object.pages
            && scans::scanner_of(seen, object).is_none()
    };
    let mut suffering: Vec<&Object> = seen.objects.iter().filter(suffers).collect();
    suffering.sort_by_key(|object| std::cmp::Reverse(object.returned));
    let Some(worst) = suffering.first() else { return Vec::new() };
    let name_of = |object: &&Object| name(object);
    let returned: u64 = suffering.iter().map(|object| object.returned).sum();
    let mib = seen.on_cards_most.div_ceil(1 << 20);
    let has = seen.card_bytes.map_or(String::new(), |bytes| format!(" of {} MiB", bytes >> 20));
    vec![Remedy {
        rule: Rule::SmallCard,
        evidence: format!(
            "{} MiB left full cards{has} and came back later, most of it of {}",
            (returned * seen.page_bytes) >> 20,
            name(worst)
        ),
        remedy: format!("give each card {mib} MiB, which holds all: .card_memory({mib} << 20)"),
        allocations: suffering.iter().take(4).map(name_of).collect(),
        saves: 2 * returned,
    }]
}
