//! Which names of schemes are files: `PATH.so` or `PATH.so:key=value,key=value`, and what may follow.

use std::path::PathBuf;

/// A scheme's name that is a shared library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemeFile<'a> {
    /// The library; without a slash, a file of the current directory.
    pub path: PathBuf,
    /// What is behind its colon; empty without one.
    pub parameters: &'a str,
    /// What is behind a `+`, with it: changes of a simulated machine. Empty without one.
    pub modifiers: &'a str,
}

/// The end of a library's name.
const END: &str = ".so";

/// Takes apart a name that is a library's; `None` for the name of a scheme that is built in. The file's name
/// ends at the first `.so` that nothing but a `:` or a `+` follows.
pub fn split(text: &str) -> Option<SchemeFile<'_>> {
    let ends = |at: &usize| text[*at..].is_empty() || text[*at..].starts_with([':', '+']);
    let end = text.match_indices(END).map(|(at, _)| at + END.len()).find(ends)?;
    let (path, behind) = text.split_at(end);
    let (parameters, modifiers) = behind.split_at(behind.find('+').unwrap_or(behind.len()));
    let parameters = parameters.strip_prefix(':').unwrap_or(parameters);
    Some(SchemeFile { path: path.into(), parameters, modifiers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_told_from_a_scheme_that_is_built_in() {
        for name in ["on-touch", "grit:threshold=8", "grit+acud", "", "libmine.sol", "a.so.1"] {
            assert_eq!(split(name), None, "{name}");
        }
    }

    #[test]
    fn a_library_has_parameters_and_modifiers_behind_it() {
        for (text, path, parameters, modifiers) in [
            ("libmine.so", "libmine.so", "", ""),
            ("./a+b:c/libmine.so", "./a+b:c/libmine.so", "", ""),
            ("/x.so.d/y.so:after=3,once=on", "/x.so.d/y.so", "after=3,once=on", ""),
            ("./y.so+acud+prefetch", "./y.so", "", "+acud+prefetch"),
            ("./y.so:after=3+acud", "./y.so", "after=3", "+acud"),
        ] {
            let file = split(text).unwrap();
            assert_eq!(
                (file.path, file.parameters, file.modifiers),
                (path.into(), parameters, modifiers)
            );
        }
    }
}
