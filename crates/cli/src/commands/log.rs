//! What the library has to say while a command runs: on standard error, a line each.

use std::fmt::{self, Write as _};
use std::io::Write as _;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Has events of `level` and of more weight written to standard error from now on.
pub(crate) fn init(level: Level) {
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    // It fails only if that was asked for before.
    let _ = tracing::subscriber::set_global_default(lines.event_format(Lines).finish());
}

/// Writes a line to standard error. If nobody listens any more that is no reason to end.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// `farside: message (field=value, field=value)`, as the command's own messages are.
struct Lines;

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut words = Words::default();
        event.record(&mut words);
        let Words { message, fields } = words;
        let fields = if fields.is_empty() { fields } else { format!(" ({fields})") };
        writeln!(writer, "farside: {message}{fields}")
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
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    /// Keeps what is written.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Kept {
        fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl std::io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.bytes().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Kept {
        type Writer = Kept;

        fn make_writer(&self) -> Kept {
            self.clone()
        }
    }

    #[test]
    fn an_event_is_a_line_with_its_fields_and_small_matters_are_left_out() {
        let kept = Kept::default();
        let lines = tracing_subscriber::fmt().with_max_level(Level::INFO).event_format(Lines);
        tracing::subscriber::with_default(lines.with_writer(kept.clone()).finish(), || {
            let error = std::fmt::Error;
            tracing::error!(function = 3, %error, place = "here", "a client cannot be served");
            tracing::info!("a client has gone");
            tracing::debug!("nobody wants to know");
        });
        let text = String::from_utf8(kept.bytes().clone()).unwrap();
        let first = format!(
            "farside: a client cannot be served (function=3, error={}, place=here)",
            std::fmt::Error
        );
        assert_eq!(text, format!("{first}\nfarside: a client has gone\n"));
    }
}
