//! Schemes by name: a placement scheme of the driver, and what it needs of the machine.
//!
//! `NAME[:key=value[,key=value]][+MODIFIER...]`, as in `grit:threshold=8+acud`. The name and its
//! parameters are the driver's ([`farside_svm::placement::SCHEMES`]), or those of a scheme that only
//! a simulated machine can do ([`SIMULATED`]); a modifier changes values of the machine. A few names
//! stand for a scheme with its modifiers, because that is what their papers call so.

mod copy_move_map;
mod gps;
mod griffin_dpc;
mod ideal;

use farside_svm::PlacementScheme;
use farside_svm::placement::{self, NamedScheme, Parameter, SchemeError};

pub use copy_move_map::CopyMoveMap;
pub use gps::Gps;
pub use griffin_dpc::{GriffinConfig, GriffinDpc};
pub use ideal::Ideal;

use crate::{SimError, Spec};

/// The schemes that need what only a simulated machine can do, and a yardstick for the others.
pub const SIMULATED: [NamedScheme; 4] = [
    NamedScheme {
        name: "ideal",
        about: "every card that asks gets a copy",
        make: |_| Ok(Box::new(Ideal)),
    },
    NamedScheme {
        name: "griffin-dpc",
        about: "first touch, then pages are classified by sampled accesses and follow their owner",
        make: |parameters| Ok(Box::new(GriffinDpc::from_parameters(parameters)?)),
    },
    NamedScheme {
        name: "copy-move-map",
        about: "a yardstick: reads copy, writes move, after one foreign write a page is mapped for good",
        make: |_| Ok(Box::<CopyMoveMap>::default()),
    },
    NamedScheme {
        name: "gps",
        about: "every card that accesses a page gets a replica",
        make: |_| Ok(Box::new(Gps)),
    },
];

/// The scheme that `text` names, alone or with parameters, without what it needs of the machine:
/// one of the driver's or of [`SIMULATED`].
///
/// # Errors
/// [`SchemeError`] names the scheme, the parameter or the value that cannot be.
pub fn by_name(text: &str) -> Result<Box<dyn PlacementScheme>, SchemeError> {
    placement::find(text, placement::SCHEMES.iter().chain(&SIMULATED))
}

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
pub fn resolve(name: &str, machine: &Spec) -> Result<(Box<dyn PlacementScheme>, Spec), SimError> {
    let (head, modifiers) = name.split_at(name.find('+').unwrap_or(name.len()));
    let (base, parameters) = head.split_at(head.find(':').unwrap_or(head.len()));
    let compound = COMPOUNDS.iter().find(|compound| compound.name == base);
    let placement = format!("{}{parameters}", compound.map_or(base, |c| c.placement));
    let placement = by_name(&placement)?;
    let changes = compound.map_or(&[][..], |compound| compound.changes);
    Ok((placement, machine.with_overrides(&with_modifiers(changes, modifiers)?)?))
}

/// The machine with what these modifiers change of it, each with its `+`: for a scheme that is not
/// had by its name.
///
/// # Errors
/// As [`resolve`].
pub fn modified(modifiers: &str, machine: &Spec) -> Result<Spec, SimError> {
    Ok(machine.with_overrides(&with_modifiers(&[], modifiers)?)?)
}

/// Changes of the machine: first these, then those of the modifiers.
type Changes = Vec<(&'static str, &'static str)>;

fn with_modifiers(
    first: &[(&'static str, &'static str)],
    modifiers: &str,
) -> Result<Changes, SimError> {
    let mut changes = first.to_vec();
    for modifier in modifiers.split('+').skip(1) {
        let known = MODIFIERS.iter().find(|known| known.name == modifier);
        changes.extend(known.ok_or_else(|| unknown(modifier))?.changes);
    }
    Ok(changes)
}

fn unknown(modifier: &str) -> SimError {
    let known: Vec<_> = MODIFIERS.iter().map(|modifier| modifier.name).collect();
    SimError::NoSuchModifier { name: modifier.to_owned(), known: known.join(", ") }
}

/// A name, or a part of one, that [`resolve`] understands, as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Known {
    /// What it is.
    pub kind: KnownKind,
    /// The name; a modifier's is with its `+`.
    pub name: String,
    /// What it does, in a line.
    pub about: &'static str,
    /// Parameters that it takes, if it is a scheme.
    pub parameters: Vec<Parameter>,
    /// The values of the machine that it changes: key and value.
    pub changes: &'static [(&'static str, &'static str)],
}

/// What a [`Known`] name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownKind {
    /// A placement scheme for real and for simulated machines.
    Scheme,
    /// A placement scheme that only a simulated machine can do.
    SimulatedScheme,
    /// What is put behind a scheme with a `+` and changes the machine.
    Modifier,
}

/// Everything that a name of a scheme can be made of: schemes for every machine, schemes for a
/// simulated one, modifiers. A name that stands for a scheme with its machine is one of the second.
pub fn all() -> Vec<Known> {
    let parameters = |name| {
        let scheme = SIMULATED.iter().find(|scheme| scheme.name == name);
        scheme.map_or(Vec::new(), |scheme| scheme.info().parameters)
    };
    let known = |kind| {
        move |scheme: &NamedScheme| Known {
            kind,
            name: scheme.name.to_owned(),
            about: scheme.about,
            parameters: scheme.info().parameters,
            changes: &[],
        }
    };
    let drivers = placement::SCHEMES.iter().map(known(KnownKind::Scheme));
    let is_compound = |scheme: &&NamedScheme| COMPOUNDS.iter().any(|it| it.name == scheme.name);
    // `ideal` and `gps` are also names of a part of them.
    let alone = SIMULATED.iter().filter(|scheme| !is_compound(scheme));
    let alone = alone.map(known(KnownKind::SimulatedScheme));
    let compounds = COMPOUNDS.iter().map(|compound| Known {
        kind: KnownKind::SimulatedScheme,
        name: compound.name.to_owned(),
        about: compound.about,
        parameters: parameters(compound.placement),
        changes: compound.changes,
    });
    let modifiers = MODIFIERS.iter().map(|modifier| Known {
        kind: KnownKind::Modifier,
        name: format!("+{}", modifier.name),
        about: modifier.about,
        parameters: Vec::new(),
        changes: modifier.changes,
    });
    drivers.chain(alone).chain(compounds).chain(modifiers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each scheme with each of its parameters, alone and with every modifier.
    #[test]
    fn everything_that_is_listed_is_understood() {
        let (modifiers, schemes): (Vec<_>, Vec<_>) =
            all().into_iter().partition(|known| known.kind == KnownKind::Modifier);
        assert!(modifiers.len() == MODIFIERS.len() && schemes.len() > COMPOUNDS.len());
        let modifiers: String = modifiers.into_iter().map(|modifier| modifier.name).collect();
        for scheme in schemes {
            let parameters = scheme.parameters.iter();
            let given = parameters.map(|it| format!("{}={}", it.key, it.kind.default_value()));
            let given = given.collect::<Vec<_>>().join(",");
            let name = format!("{}:{given}{modifiers}", scheme.name);
            assert!(resolve(&name, &Spec::default()).is_ok(), "{name}");
            let (_, spec) = resolve(&scheme.name, &Spec::default()).unwrap();
            assert_eq!(spec, Spec::default().with_overrides(scheme.changes).unwrap());
        }
    }

    #[test]
    fn every_scheme_is_listed_once_with_where_it_runs() {
        let listed = all();
        let of = |kind| {
            let those = listed.iter().filter(move |known| known.kind == kind);
            those.map(|known| known.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(of(KnownKind::Scheme), placement::NAMES);
        assert_eq!(of(KnownKind::SimulatedScheme), placement::ONLY_SIMULATED, "refused live");
        for scheme in placement::SCHEMES.iter().chain(&SIMULATED) {
            let of_that_name = listed.iter().filter(|known| known.name == scheme.name);
            assert_eq!(of_that_name.count(), 1, "{}", scheme.name);
        }
        let griffin = listed.iter().find(|known| known.name == "griffin").unwrap();
        assert_eq!(griffin.parameters[0].key, "interval_ns", "those of griffin-dpc");
    }

    #[test]
    fn every_scheme_has_its_name_and_takes_the_parameters_that_it_is_said_to_have() {
        for scheme in &SIMULATED {
            assert_eq!(by_name(scheme.name).unwrap().name(), scheme.name);
            for parameter in scheme.info().parameters {
                let given = |value: &str| format!("{}:{}={value}", scheme.name, parameter.key);
                let default = given(&parameter.kind.default_value());
                assert!(by_name(&default).is_ok(), "{default}");
                let refused = by_name(&given("red")).unwrap_err().to_string();
                assert!(refused.contains(&parameter.kind.to_string()), "{refused}");
            }
        }
        let refused = by_name("best").unwrap_err().to_string();
        assert!(refused.contains("on-touch") && refused.contains("gps"), "{refused}");
    }
}
