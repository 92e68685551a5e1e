//! What the library has to say while a command runs: on standard error, a line each.

use std::fmt::{self, Write as _};
use std::io::Write as _;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Has events of `level` and of more weight written to standard error from now on.
pub(crate) fn tell(level: Level) {
    // It fails only if that was asked for before.
    let _ = tracing::subscriber::set_global_default(Lines { level });
}

/// Writes a line to standard error. If nobody listens any more that is no reason to end.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Writes events; spans it does not know.
struct Lines {
    level: Level,
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        say(&line(event));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// `farside: message (field=value, field=value)`.
fn line(event: &Event<'_>) -> String {
    let mut words = Words::default();
    event.record(&mut words);
    let Words { message, fields } = words;
    if fields.is_empty() {
        format!("farside: {message}")
    } else {
        format!("farside: {message} ({fields})")
    }
}

#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Visit for Words {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string has no way to fail.
        let _ = match (field.name(), self.fields.is_empty()) {
            ("message", _) => write!(self.message, "{value:?}"),
            (name, true) => write!(self.fields, "{name}={value:?}"),
            (name, false) => write!(self.fields, ", {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Keeps the lines instead of writing them.
    struct Kept(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Kept {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            Lines { level: Level::INFO }.enabled(metadata)
        }

        fn new_span(&self, span: &Attributes<'_>) -> Id {
            Lines { level: Level::INFO }.new_span(span)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            self.0.lock().expect("no test panics with it").push(line(event));
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn an_event_is_a_line_with_its_fields_and_small_matters_are_left_out() {
        let kept = Arc::new(Mutex::new(Vec::new()));
        tracing::subscriber::with_default(Kept(Arc::clone(&kept)), || {
            let error = std::fmt::Error;
            tracing::error!(function = 3, %error, place = "here", "a client cannot be served");
            tracing::info!("a client has gone");
            tracing::debug!("nobody wants to know");
        });
        let lines = kept.lock().expect("no thread panicked with it");
        let first = format!(
            "farside: a client cannot be served (function=3, error={}, place=here)",
            std::fmt::Error
        );
        assert_eq!(*lines, [first.as_str(), "farside: a client has gone"]);
    }
}
