//! `farside new`: what one begins with.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use super::Failure;
use super::output::print;

/// Write what one begins with: a placement scheme of one's own
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct New {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    Scheme(NewScheme),
}

/// A placement scheme as a shared library, in a folder of its name
///
/// It is a whole scheme of some sixty lines, with a parameter, that builds as it is: change on_fault.
/// What it is told and may answer is in farside-scheme.h, which is written beside it.
#[derive(Args, Debug)]
struct NewScheme {
    /// Its name: lower-case letters, digits, - and _
    name: String,

    /// The language
    #[arg(long, value_name = "LANGUAGE", default_value = "c")]
    lang: Language,

    /// Where its folder is made
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    at: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Language {
    C,
    Rust,
}

const EXAMPLES: &str = "\
Examples:
  farside new scheme mine                       a scheme in C, in the folder mine
  make -C mine
  farside sim --scheme on-touch,mine/libmine.so,mine/libmine.so:after=2
  farside new scheme mine --lang rust
  farside schemes mine/libmine.so               its parameters";

const HEADER: &str = include_str!("../../outside/farside-scheme.h");
const BINDING: &str = include_str!("../../outside/farside_scheme.rs");
const C: &str = include_str!("../../templates/scheme/scheme.c");
const MAKEFILE: &str = include_str!("../../templates/scheme/Makefile");
const MANIFEST: &str = include_str!("../../templates/scheme/Cargo.toml.txt");
const RUST: &str = include_str!("../../templates/scheme/lib.rs");

/// A file's name and its text.
type Text = (String, String);

/// The template in C, with this name.
pub(crate) fn scheme_in_c(name: &str) -> Vec<Text> {
    let named = |text: &str| text.replace("__name__", name);
    vec![
        (format!("{name}.c"), named(C)),
        ("Makefile".to_owned(), named(MAKEFILE)),
        ("farside-scheme.h".to_owned(), HEADER.to_owned()),
    ]
}

fn scheme_in_rust(name: &str) -> Vec<Text> {
    let named = |text: &str| text.replace("__name__", name);
    vec![
        ("Cargo.toml".to_owned(), named(MANIFEST)),
        ("src/lib.rs".to_owned(), named(RUST)),
        ("src/farside_scheme.rs".to_owned(), BINDING.to_owned()),
        ("farside-scheme.h".to_owned(), HEADER.to_owned()),
    ]
}

impl New {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match &self.what {
            What::Scheme(scheme) => scheme.run(),
        }
    }
}

impl NewScheme {
    fn run(&self) -> Result<(), Failure> {
        check_name(&self.name)?;
        let folder = self.at.join(&self.name);
        let files = match self.lang {
            Language::C => scheme_in_c(&self.name),
            Language::Rust => scheme_in_rust(&self.name),
        };
        if folder.exists() {
            let folder = folder.display();
            return Err(Failure::Usage(format!("{folder} is there already; choose another name")));
        }
        for (name, text) in &files {
            write(&folder.join(name), text)?;
        }
        print(&self.what_next(&folder))
    }

    fn what_next(&self, folder: &Path) -> String {
        let (name, folder) = (&self.name, folder.display());
        let (build, library) = match self.lang {
            Language::C => (format!("make -C {folder}"), format!("{folder}/lib{name}.so")),
            Language::Rust => {
                let file = name.replace('-', "_");
                let build = format!("cargo build --release --manifest-path {folder}/Cargo.toml");
                (build, format!("{folder}/target/release/lib{file}.so"))
            }
        };
        format!(
            "{folder}: a placement scheme. Build it, and compare it:\n  {build}\n  \
             farside sim --scheme on-touch,{library}\n"
        )
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |source| Failure::Write { path: path.to_owned(), source };
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed)?;
    fs::write(path, text).map_err(failed)
}

fn check_name(name: &str) -> Result<(), Failure> {
    let sound =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    let starts = name.starts_with(|first: char| first.is_ascii_lowercase());
    if starts && name.len() <= 32 && name.bytes().all(sound) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{name:?} is no name of a scheme: a lower-case letter, then letters, digits, - and _, 32 at most"
    )))
}
