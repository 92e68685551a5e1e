//! `farside schemes`: what can be said for a placement scheme.

use clap::Args;
use farside::placement::{Parameter, ParameterKind};
use farside_cli::own_scheme::SchemeFailure;
use farside_plugin::{Library, PluginError, Told, split};
use farside_sim::Spec;
use farside_sim::scheme::{self, Known, KnownKind};
use serde::Serialize;

use super::output::{print, print_json};
use super::text::paragraph;
use super::{Failure, apart};

/// Columns of the longest name.
const NAME: usize = 16;

/// List the placement schemes: what is done about a page that somebody wants and does not have
///
/// `farside demo --placement NAME` runs one on cards in this program, `farside sim --scheme NAME`
/// in simulated time. A scheme may have parameters: `grit:threshold=8,cache=off`. In simulated time
/// it may have modifiers too: `grit:threshold=8+acud`. A scheme may be a library of your own
/// (`farside new scheme`), by its path.
#[derive(Args, Debug)]
pub(crate) struct Schemes {
    /// Only the scheme in this library; with parameters behind it, whether they can be
    library: Option<String>,

    /// End when this process, whose child this one is, ends
    #[arg(long, value_name = "PROCESS", hide = true)]
    end_with_parent: Option<i32>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Json {
    schemes: Vec<Scheme>,
    modifiers: Vec<Modifier>,
    /// Machines by name.
    presets: &'static [&'static str],
}

#[derive(Serialize)]
struct Scheme {
    name: String,
    about: &'static str,
    /// Only in simulated time.
    simulated: bool,
    parameters: Vec<Given>,
    machine: Machine,
}

#[derive(Serialize)]
struct Modifier {
    name: String,
    about: &'static str,
    machine: Machine,
}

/// Keys of the simulated machine, as in `farside sim --set KEY=VALUE`, with their values.
type Machine = std::collections::BTreeMap<&'static str, &'static str>;

#[derive(Serialize)]
struct Given {
    key: &'static str,
    about: &'static str,
    default: serde_json::Value,
    /// Of a number; a switch is `on` or `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    least: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    most: Option<u32>,
}

impl Schemes {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if let Some(parent) = self.end_with_parent {
            apart::begin(parent)?;
        }
        if let Some(library) = &self.library {
            return self.of_library(library);
        }
        let known = scheme::all();
        if self.json { print_json(&json(known)) } else { print(&text(&known)) }
    }

    fn of_library(&self, text: &str) -> Result<(), Failure> {
        let refused = |error| Failure::from(SchemeFailure::from(error));
        let file =
            split(text).ok_or_else(|| refused(PluginError::NoLibrary { text: text.to_owned() }))?;
        // SAFETY: whoever names the library on the command line answers for it.
        let library = unsafe {
            let library = Library::open(&file.path).map_err(refused)?;
            library.make(file.parameters, Told::Everybody).map_err(refused)?;
            library
        };
        let scheme = OwnScheme::new(&library);
        if self.json { print_json(&scheme) } else { print(&scheme.text()) }
    }
}

/// A scheme of a library.
#[derive(Serialize)]
struct OwnScheme {
    name: &'static str,
    about: &'static str,
    parameters: Vec<Given>,
}

impl OwnScheme {
    fn new(library: &Library) -> OwnScheme {
        let given = |it: &farside_plugin::Parameter| Given {
            key: it.key,
            about: it.about,
            default: match it.within {
                Some(_) => it.standard.into(),
                None => (if it.standard == 0 { "off" } else { "on" }).into(),
            },
            least: it.within.map(|(least, _)| least),
            most: it.within.map(|(_, most)| most),
        };
        let parameters = library.parameters().iter().map(given).collect();
        OwnScheme { name: library.name(), about: library.about(), parameters }
    }

    fn text(&self) -> String {
        let mut text = paragraph(&format!("  {:<NAME$} ", self.name), self.about);
        for Given { key, about, default, least, most } in &self.parameters {
            let default = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
            let bounds = least.zip(*most).map_or(String::new(), |(a, b)| format!(" ({a} to {b})"));
            let given = format!("    {:<20} ", format!("{key}={default}"));
            text += &paragraph(&given, &format!("{about}{bounds}"));
        }
        text
    }
}

fn text(known: &[Known]) -> String {
    let mut text = String::new();
    for (kind, title) in [
        (KnownKind::Scheme, "Placement schemes, their parameters and defaults:"),
        (KnownKind::SimulatedScheme, "\nOnly in simulated time (farside sim):"),
        (KnownKind::Modifier, "\nBehind any of these in simulated time, as in grit+acud:"),
    ] {
        text += title;
        text += "\n";
        for known in known.iter().filter(|known| known.kind == kind) {
            describe(&mut text, known);
        }
    }
    let presets = format!("Machines that run them (--preset): {}", Spec::PRESETS.join(", "));
    text + "\n" + &paragraph("", &presets)
}

fn describe(text: &mut String, known: &Known) {
    *text += &paragraph(&format!("  {:<NAME$} ", known.name), known.about);
    for Parameter { key, kind, about, .. } in &known.parameters {
        let given = format!("{key}={}", kind.default_value());
        let bounds = match kind {
            ParameterKind::Number { within, .. } => {
                format!(" ({} to {})", within.start(), within.end())
            }
            _ => String::new(),
        };
        *text += &paragraph(&format!("    {given:<20} "), &format!("{about}{bounds}"));
    }
    for (key, value) in known.changes {
        *text += &paragraph("    sets ", &format!("{key} = {value}"));
    }
}

fn json(known: Vec<Known>) -> Json {
    let (modifiers, schemes): (Vec<_>, Vec<_>) =
        known.into_iter().partition(|known| known.kind == KnownKind::Modifier);
    let scheme = |known: Known| Scheme {
        simulated: known.kind == KnownKind::SimulatedScheme,
        parameters: known.parameters.iter().map(given).collect(),
        machine: known.changes.iter().copied().collect(),
        name: known.name,
        about: known.about,
    };
    let modifier = |known: Known| Modifier {
        machine: known.changes.iter().copied().collect(),
        name: known.name,
        about: known.about,
    };
    Json {
        schemes: schemes.into_iter().map(scheme).collect(),
        modifiers: modifiers.into_iter().map(modifier).collect(),
        presets: Spec::PRESETS,
    }
}

fn given(parameter: &Parameter) -> Given {
    let (default, within) = match &parameter.kind {
        ParameterKind::Number { default, within, .. } => ((*default).into(), Some(within)),
        // As it is given.
        kind => (kind.default_value().into(), None),
    };
    Given {
        key: parameter.key,
        about: parameter.about,
        default,
        least: within.map(|within| *within.start()),
        most: within.map(|within| *within.end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_is_listed_with_its_parameters_their_defaults_and_bounds() {
        let listed = text(&scheme::all());
        assert!(listed.contains("\n  grit "), "{listed}");
        assert!(listed.contains("\n    threshold=4 "), "{listed}");
        let words = listed.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("decided anew (1 to 65535) cache=on"), "{listed}");
        assert!(listed.ends_with("managed-h100\n"), "{listed}");
        let json = serde_json::to_value(json(scheme::all())).unwrap();
        let grit = json["schemes"].as_array().unwrap().iter().find(|it| it["name"] == "grit");
        let threshold = &grit.unwrap()["parameters"][0];
        let parts = ["key", "default", "least", "most"].map(|part| threshold[part].to_string());
        assert_eq!(parts, ["\"threshold\"", "4", "1", "65535"]);
        assert_eq!(grit.unwrap()["parameters"][1]["default"], "on");
        assert_eq!(json["modifiers"][0]["machine"]["flush.mode"], "page");
    }
}
