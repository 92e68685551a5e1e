//! A library, opened: what its table says, checked.
//!
//! A library is loaded for as long as the process lives: what its constructors started cannot be undone.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};
use std::mem::size_of;
use std::path::Path;
use std::ptr::{null, null_mut};

use farside_svm::placement::Parameters;
use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};

use crate::abi::{ABI_VERSION, CParameter, CScheme, Export};
use crate::scheme::State;
use crate::watch::{Call, Marks, Watch};
use crate::{LibraryError, LibraryScheme, PluginError, Told, elf};

/// What a library exports.
const SYMBOL: &[u8] = b"farside_scheme_export\0";
/// Bytes of a name or a key, and of a line.
const NAME_MAX: usize = 32;
const LINE_MAX: usize = 400;
const PARAMETERS_MAX: u32 = 32;

/// A scheme's library.
#[derive(Debug)]
pub struct Library {
    path: String,
    name: &'static str,
    about: &'static str,
    parameters: Vec<Parameter>,
    table: &'static CScheme,
}

/// A parameter of a scheme from a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its key, as in `key=value`.
    pub key: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Its standard, least and most value; a switch has none of the last two.
    pub standard: u32,
    /// What it can be; `None` for a switch, which is off (0) or on (1).
    pub within: Option<(u32, u32)>,
}

impl Library {
    /// Opens a library. A path without a slash is a file of the current directory.
    ///
    /// # Errors
    /// [`PluginError::Library`] says what is wrong with it. Whether it is a library of this machine is found
    /// before any of its code runs.
    ///
    /// # Safety
    /// The library's code runs in this process: it keeps the rules of `farside-scheme.h`.
    pub unsafe fn open(path: &Path) -> Result<Library, PluginError> {
        let watch = Watch::start(path.display().to_string(), Told::Everybody)?;
        // SAFETY: passed on to the caller.
        unsafe { open(path, watch.marks()) }
            .map_err(|why| PluginError::Library { path: path.display().to_string(), why })
    }

    /// Its name, as tables show it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it does, in a line.
    pub fn about(&self) -> &'static str {
        self.about
    }

    /// Its parameters.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Makes a scheme with these parameters: `key=value,key=value`.
    ///
    /// # Errors
    /// [`PluginError`]: a parameter that it does not have or that cannot be so, or the scheme refuses them.
    ///
    /// # Safety
    /// As [`Library::open`]: the library's code runs whenever the scheme is asked.
    pub unsafe fn make(&self, parameters: &str, told: Told) -> Result<LibraryScheme, PluginError> {
        let values = self.values(parameters)?;
        let watch = Watch::start(format!("{} ({})", self.name, self.path), told)?;
        // SAFETY: passed on to the caller.
        let state = unsafe { self.state(&values, watch.marks()) }.map_err(|why| {
            let given =
                if parameters.is_empty() { String::new() } else { format!(" ({parameters})") };
            PluginError::Refused { scheme: self.name.to_owned(), given, why }
        })?;
        LibraryScheme::new(state, self.name, &self.path, watch)
    }

    fn values(&self, list: &str) -> Result<Vec<u32>, PluginError> {
        let mut given = Parameters::new(self.name, list)?;
        let mut values = Vec::with_capacity(self.parameters.len());
        for Parameter { key, about, standard, within } in &self.parameters {
            values.push(match *within {
                None => given.switch(key, *standard != 0, about)?.into(),
                Some((least, most)) => given.number(key, *standard, least..=most, about)?,
            });
        }
        given.finish()?;
        Ok(values)
    }

    /// # Safety
    /// As [`Library::make`].
    unsafe fn state(&self, values: &[u32], marks: &Marks) -> Result<State, String> {
        let Some(create) = self.table.create else { return Ok(State::new(self.table, null_mut())) };
        let mut why: *const c_char = null();
        // SAFETY: the values are as many as the table has parameters; the caller answers for the rest.
        let create = || unsafe { create(values.as_ptr(), &raw mut why) };
        let state = marks.during(Call::Create, create);
        if !state.is_null() {
            return Ok(State::new(self.table, state));
        }
        if why.is_null() {
            return Err("it does not say why".to_owned());
        }
        // SAFETY: a string that ends with a zero, by the header.
        Err(unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned())
    }
}

/// # Safety
/// As [`Library::open`].
unsafe fn open(path: &Path, marks: &Marks) -> Result<Library, LibraryError> {
    // An absolute path: the loader looks for a bare name elsewhere.
    let found = path.canonicalize().map_err(|error| LibraryError::File(error.to_string()))?;
    elf::check(&found)?;
    let open = |why: libloading::Error| LibraryError::Open(why.to_string());
    // SAFETY: what the library does is the caller's.
    let load = || unsafe { Loaded::open(Some(&found), RTLD_NOW | RTLD_LOCAL) };
    let loaded = marks.during(Call::Open, load).map_err(open)?;
    // SAFETY: in a library that is written to the header this is a function of this type.
    let export = unsafe { loaded.get::<Export>(SYMBOL) };
    let export = export.map(|symbol| *symbol).map_err(|_| LibraryError::NoSymbol)?;
    // Never closed: see the module.
    std::mem::forget(loaded);
    // SAFETY: passed on to the caller; it gives null or a table that stays.
    let table = marks.during(Call::Open, || unsafe { export(ABI_VERSION) });
    // SAFETY: as above; no more of it is read than the version and the size until these are known.
    unsafe { checked(path, table) }
}

/// # Safety
/// `table` is null, or what a library that is written to the header exports.
unsafe fn checked(path: &Path, table: *const CScheme) -> Result<Library, LibraryError> {
    if table.is_null() {
        return Err(LibraryError::Version { given: None });
    }
    // SAFETY: tables of all versions begin with the version and the size.
    let (version, size) = unsafe { ((*table).abi_version, (*table).size) };
    if version != ABI_VERSION {
        return Err(LibraryError::Version { given: Some(version) });
    }
    let least = size_of::<CScheme>() as u32;
    if size < least {
        return Err(LibraryError::Size { size, least });
    }
    // SAFETY: it is of this version and as long as it has to be, and stays.
    let table = unsafe { &*table };
    // SAFETY: the table's names are null or strings that end with a zero.
    let (name, about) = unsafe { (word(table.name, "name")?, line(table.about, "about")?) };
    if table.on_fault.is_none() {
        return Err(wrong("there is no on_fault"));
    }
    if table.on_samples.is_some() != table.sample_every_ns.is_some() {
        return Err(wrong("on_samples and sample_every_ns go together"));
    }
    if !matches!(table.grain, 0 | u64::MAX) && !table.grain.is_power_of_two() {
        return Err(wrong(format!("grain is {}, no power of two", table.grain)));
    }
    // SAFETY: as above.
    let parameters = unsafe { parameters(table)? };
    Ok(Library { path: path.display().to_string(), name, about, parameters, table })
}

/// # Safety
/// A table of this version.
unsafe fn parameters(table: &'static CScheme) -> Result<Vec<Parameter>, LibraryError> {
    let count = table.parameter_count;
    if count == 0 {
        return Ok(Vec::new());
    }
    if count > PARAMETERS_MAX || table.parameters.is_null() {
        return Err(wrong(format!(
            "there are {count} parameters; at most {PARAMETERS_MAX}, and not NULL"
        )));
    }
    // SAFETY: so many are there, by the header.
    let given = unsafe { std::slice::from_raw_parts(table.parameters, count as usize) };
    let mut keys = BTreeSet::new();
    let mut parameters = Vec::with_capacity(given.len());
    for (index, given) in given.iter().enumerate() {
        let at = |what: &str| format!("{what} of parameter {index}");
        // SAFETY: its names are null or strings that end with a zero.
        let (key, about) =
            unsafe { (word(given.key, &at("key"))?, line(given.about, &at("about"))?) };
        if !keys.insert(key) {
            return Err(wrong(format!("there are two parameters {key}")));
        }
        let (standard, within) = (given.standard, within(given, key)?);
        parameters.push(Parameter { key, about, standard, within });
    }
    Ok(parameters)
}

/// The bounds of a number; none of a switch.
fn within(given: &CParameter, key: &str) -> Result<Option<(u32, u32)>, LibraryError> {
    let CParameter { kind, standard, least, most, .. } = *given;
    match kind {
        0 if (least..=most).contains(&standard) => Ok(Some((least, most))),
        0 => Err(wrong(format!(
            "the standard of parameter {key} is {standard}, not from {least} to {most}"
        ))),
        1 if standard <= 1 => Ok(None),
        1 => {
            Err(wrong(format!("the standard of parameter {key} is {standard}; a switch is 0 or 1")))
        }
        _ => Err(wrong(format!("parameter {key} is of kind {kind}, there are 0 and 1"))),
    }
}

fn wrong(what: impl Into<String>) -> LibraryError {
    LibraryError::Table { what: what.into() }
}

/// A name or a key.
///
/// # Safety
/// As [`text`].
unsafe fn word(text_at: *const c_char, what: &str) -> Result<&'static str, LibraryError> {
    // SAFETY: passed on to the caller.
    let word = unsafe { text(text_at, NAME_MAX, what)? };
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !word.bytes().all(sound) {
        return Err(wrong(format!("{what} is {word:?}; it has letters, digits, - and _")));
    }
    Ok(word)
}

/// A line of help.
///
/// # Safety
/// As [`text`].
unsafe fn line(text_at: *const c_char, what: &str) -> Result<&'static str, LibraryError> {
    // SAFETY: passed on to the caller.
    let line = unsafe { text(text_at, LINE_MAX, what)? };
    if line.chars().any(char::is_control) {
        return Err(wrong(format!("{what} is more than a line: {line:?}")));
    }
    Ok(line)
}

/// A text that is not empty; not more of it is read than it may have.
///
/// # Safety
/// Null, or a string that ends with a zero and lives for ever.
unsafe fn text(at: *const c_char, most: usize, what: &str) -> Result<&'static str, LibraryError> {
    if at.is_null() {
        return Err(wrong(format!("{what} is NULL")));
    }
    // SAFETY: passed on to the caller.
    let bytes = unsafe {
        let bytes = libc::strnlen(at, most + 1);
        std::slice::from_raw_parts(at.cast::<u8>(), bytes)
    };
    if bytes.is_empty() || bytes.len() > most {
        return Err(wrong(format!("{what} has {} bytes or more; 1 to {most}", bytes.len())));
    }
    std::str::from_utf8(bytes).map_err(|_| wrong(format!("{what} is not UTF-8")))
}
