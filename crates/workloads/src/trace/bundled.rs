//! Excerpts of two recorded traces that come with the crate (`fixtures/README.md`).

use super::Trace;
use crate::TraceError;

/// Name, description, stream.
const EXCERPTS: [(&str, &str, &[u8]); 2] = [
    ("mm", include_str!("../../fixtures/mm.json"), include_bytes!("../../fixtures/mm.bin.zst")),
    ("st", include_str!("../../fixtures/st.json"), include_bytes!("../../fixtures/st.bin.zst")),
];

impl Trace {
    /// Names that [`Trace::bundled`] knows: `mm`, a matrix multiplication whose inputs four GPUs
    /// read; `st`, a stencil whose pages several GPUs read and write.
    pub const BUNDLED: &'static [&'static str] = &[EXCERPTS[0].0, EXCERPTS[1].0];

    /// The bundled excerpt of this name.
    ///
    /// # Errors
    /// [`TraceError::NotBundled`].
    pub fn bundled(name: &str) -> Result<Trace, TraceError> {
        match EXCERPTS.iter().find(|excerpt| excerpt.0 == name) {
            Some((name, description, stream)) => Trace::read(name, description, *stream),
            None => Err(TraceError::NotBundled { name: name.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_is_listed_is_there() {
        let accesses: Vec<u64> =
            Trace::BUNDLED.iter().map(|name| Trace::bundled(name).unwrap().accesses()).collect();
        assert_eq!(accesses, [34_320, 21_408]);
    }

    #[test]
    fn another_name_is_answered_with_those_there_are() {
        let error = Trace::bundled("bfs").unwrap_err().to_string();
        assert!(error.contains("\"bfs\"") && error.contains("mm, st"), "{error}");
    }
}
