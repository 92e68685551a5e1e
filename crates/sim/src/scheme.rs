//! Schemes by name: a placement scheme of the driver, and what it needs of the machine.
//!
//! `NAME[:key=value[,key=value]][+MODIFIER...]`, as in `grit:threshold=8+acud`. The name and its
//! parameters are the driver's ([`farside_svm::placement::by_name`]); a modifier changes values of
//! the machine. A few names stand for a scheme with its modifiers, because that is what their
//! papers call so.

use farside_svm::placement::{self, Placement};

use crate::{SimError, Spec};

/// A change of the machine that goes with a scheme.
struct Modifier {
    name: &'static str,
    about: &'static str,
    changes: &'static [(&'static str, &'static str)],
}

const MODIFIERS: [Modifier; 4] = [
    Modifier {
        name: "acud",
        about: "invalidations drain only the accesses to their pages (Griffin's asynchronous draining)",
        changes: &[("flush.mode", "page")],
    },
    Modifier {
        name: "prefetch",
        about: "tree prefetch: a subtree of 64 KiB leaves that is more than half full is filled",
        changes: &[("driver.density_percent", "50")],
    },
    Modifier {
        name: "trans-fw",
        about: "a GPU that has the translation answers instead of the host (Trans-FW)",
        changes: &[("fault.forwarding", "true")],
    },
    Modifier {
        name: "all-memory",
        about: "every GPU holds everything",
        changes: &[("gpu.capacity_percent", "200"), ("gpu.capacity_of", "each")],
    },
];

/// Names that stand for a scheme of the driver and what it needs of the machine.
struct Compound {
    name: &'static str,
    placement: &'static str,
    about: &'static str,
    changes: &'static [(&'static str, &'static str)],
}

const COMPOUNDS: [Compound; 3] = [
    Compound {
        name: "griffin",
        placement: "griffin-dpc",
        about: "Griffin: page classification and asynchronous draining (HPCA 2020)",
        changes: &[("flush.mode", "page")],
    },
    Compound {
        name: "gps",
        placement: "gps",
        about: "GPS: every reader has a copy, stores go to all of them (MICRO 2021)",
        changes: &[("store.mode", "broadcast")],
    },
    Compound {
        name: "ideal",
        placement: "ideal",
        about: "GRIT's ideal: a page is local after its first read, writes cost nothing",
        changes: &[
            ("store.mode", "ideal"),
            ("gpu.capacity_percent", "200"),
            ("gpu.capacity_of", "each"),
        ],
    },
];

/// The placement scheme of this name, and the machine with what the name changes of it.
///
/// # Errors
/// [`SimError`] names the scheme or modifier that does not exist, or the key whose value cannot
/// work.
pub fn resolve(name: &str, machine: &Spec) -> Result<(Box<dyn Placement>, Spec), SimError> {
    let mut parts = name.split('+');
    let head = parts.next().unwrap_or_default();
    let (base, parameters) = head.split_at(head.find(':').unwrap_or(head.len()));
    let compound = COMPOUNDS.iter().find(|compound| compound.name == base);
    let placement = format!("{}{parameters}", compound.map_or(base, |c| c.placement));
    let placement = placement::by_name(&placement)?;
    let mut changes = compound.map_or(Vec::new(), |compound| compound.changes.to_vec());
    for modifier in parts {
        let known = MODIFIERS.iter().find(|known| known.name == modifier);
        changes.extend(known.ok_or_else(|| unknown(modifier))?.changes);
    }
    Ok((placement, machine.with_overrides(&changes)?))
}

fn unknown(modifier: &str) -> SimError {
    let known: Vec<_> = MODIFIERS.iter().map(|modifier| modifier.name).collect();
    SimError::NoSuchModifier { name: modifier.to_owned(), known: known.join(", ") }
}

/// Every modifier and every name that stands for more than a scheme of the driver, with what it
/// is.
pub fn glossary() -> impl Iterator<Item = (String, &'static str)> {
    let compounds = COMPOUNDS.iter().map(|compound| (compound.name.to_owned(), compound.about));
    let modifiers =
        MODIFIERS.iter().map(|modifier| (format!("+{}", modifier.name), modifier.about));
    compounds.chain(modifiers)
}
