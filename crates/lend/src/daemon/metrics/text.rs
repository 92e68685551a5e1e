//! The text that Prometheus reads (exposition format 0.0.4).

use std::fmt::{Display, Write};

/// Families of metrics, each with its samples.
#[derive(Debug, Default)]
pub(super) struct Exposition(String);

/// What a family is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Exposition {
    /// Begins a family; its samples follow.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { text: &mut self.0, name }
    }

    /// A family of one number.
    pub(super) fn one(&mut self, name: &'static str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help).sample(&[], value);
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// See [`Exposition::family`].
pub(super) struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Family<'_> {
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.named("", labels, value);
    }

    /// A sample of one part of a histogram.
    pub(super) fn named(&mut self, part: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.text, "{}{part}", self.name);
        for (at, (name, value)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"{}\"", escaped(value));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{after} {value}");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_as_prometheus_reads_them() {
        let mut text = Exposition::default();
        text.one("a_total", Kind::Counter, "How many.", 3);
        text.family("b", Kind::Gauge, "With labels.").sample(&[("x", "1"), ("y", "\"\\\n")], 0.5);
        let wanted = "# HELP a_total How many.\n# TYPE a_total counter\na_total 3\n\
                      # HELP b With labels.\n# TYPE b gauge\nb{x=\"1\",y=\"\\\"\\\\\\n\"} 0.5\n";
        assert_eq!(text.into_text(), wanted);
    }
}
