//! Where a result of the cards differs from that of the plain host run.

use std::fmt;

use farside_cli::graph::Graph;
use farside_cli::graph::reference::UNREACHED;

/// The first difference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Difference {
    /// One vertex has another value.
    Vertex {
        /// What it is called.
        name: String,
        /// The cards' value.
        cards: String,
        /// The host's value.
        host: String,
        /// How many vertices differ.
        count: usize,
    },
    /// A single value differs.
    Value {
        /// The cards' value.
        cards: u64,
        /// The host's value.
        host: u64,
    },
    /// There are more or fewer values.
    Length {
        /// Values of the cards.
        cards: usize,
        /// Values of the host.
        host: usize,
    },
}

impl Difference {
    /// Compares levels of breadth-first search.
    pub(crate) fn of_levels(graph: &Graph, cards: &[u32], host: &[u32]) -> Option<Difference> {
        let level = |&level: &u32| match level {
            UNREACHED => "not reached".to_owned(),
            level => format!("level {level}"),
        };
        Difference::first(graph, cards, host, |a, b| a == b, level)
    }

    /// Compares ranks, bit by bit.
    pub(crate) fn of_ranks(graph: &Graph, cards: &[f64], host: &[f64]) -> Option<Difference> {
        let rank = |rank: &f64| format!("rank {rank:e} ({:#018x})", rank.to_bits());
        Difference::first(graph, cards, host, |a, b| a.to_bits() == b.to_bits(), rank)
    }

    /// Compares checksums.
    pub(crate) fn of_checksums(cards: u64, host: u64) -> Option<Difference> {
        (cards != host).then_some(Difference::Value { cards, host })
    }

    fn first<T>(
        graph: &Graph,
        cards: &[T],
        host: &[T],
        same: impl Fn(&T, &T) -> bool,
        show: impl Fn(&T) -> String,
    ) -> Option<Difference> {
        if cards.len() != host.len() {
            return Some(Difference::Length { cards: cards.len(), host: host.len() });
        }
        let mut differ = (0u32..).zip(cards.iter().zip(host)).filter(|(_, (a, b))| !same(a, b));
        let (vertex, (a, b)) = differ.next()?;
        let name = graph.name(vertex).unwrap_or_default().into_owned();
        let count = 1 + differ.count();
        Some(Difference::Vertex { name, cards: show(a), host: show(b), count })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Vertex { name, cards, host, count } => write!(
                f,
                "vertex `{name}` has {cards} on the cards and {host} on the host ({count} \
                 vertices differ)"
            ),
            Difference::Value { cards, host } => {
                write!(f, "the checksum is {cards:#018x} on the cards and {host:#018x} on the host")
            }
            Difference::Length { cards, host } => {
                write!(f, "there are {cards} values from the cards and {host} from the host")
            }
        }
    }
}
