//! What the driver orders of a GPU: commands, and what an invalidation waits for.

use serde::{Deserialize, Serialize};

/// `[command]`: a GPU's command ring. Commands run one after the other, in ring order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CommandSpec {
    /// From the driver's doorbell until the GPU sees the command, in ns. Default 150: one way
    /// over PCIe (`link.pcie_ns`).
    pub submit_ns: u64,
    /// From the end of a command until the driver sees it, in ns. Default 150: one way
    /// over PCIe (`link.pcie_ns`).
    pub complete_ns: u64,
    /// Every command, in ns. Default 20; assumed.
    pub base_ns: u64,
    /// Per page mapped, unmapped or protected, in ns. Default 10; assumed.
    pub page_ns: u64,
    /// Flush of pipeline and caches and shootdown of the TLBs, per invalidating command, in ns,
    /// besides the drain of accesses in flight (GRIT, section II-B: steps; no number). Default
    /// 100; assumed.
    pub invalidate_ns: u64,
    /// Start of a kernel, in ns. Default 5000: a few microseconds are usual on today's GPUs; assumed.
    pub launch_ns: u64,
}

impl Default for CommandSpec {
    fn default() -> CommandSpec {
        CommandSpec {
            submit_ns: 150,
            complete_ns: 150,
            base_ns: 20,
            page_ns: 10,
            invalidate_ns: 100,
            launch_ns: 5_000,
        }
    }
}

/// `[flush]`: what an invalidation waits for, and what it empties.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FlushSpec {
    /// How. Default `pipeline`: GRIT, section II-B; see [`FlushMode`].
    pub mode: FlushMode,
    /// Until when the GPU stands still that an invalidation has emptied. Default `drained`: assumed; see
    /// [`Until`].
    pub until: Until,
    /// What is emptied on a GPU that keeps its page and may not write it any more, because another one gets a
    /// copy. Default `pipeline`, as for any invalidation. GRIT's section II-B3 has a flush for
    /// the collapse alone, which is `page`.
    pub demote: FlushMode,
    /// Whom the migration empties that an access counter has asked for. Default `users`: assumed;
    /// see [`Told`].
    pub counter: Told,
    /// What accesses to other memories do while a migration goes on. Default `open`: assumed; see [`Far`].
    pub far: Far,
}

/// What accesses to memories other than a GPU's own do while a migration goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Far {
    /// They go on.
    #[default]
    Open,
    /// A migration begins when those under way are over, and others wait until it has ended: MGPUSim's driver drains
    /// every GPU's port to the others first, and opens it last (v3.0.0, driver/driver.go:561, :804).
    Closed,
}

/// Until when a GPU stands still.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Until {
    /// Until its own invalidation is over.
    #[default]
    Drained,
    /// Until the migration is over that has stopped it (MGPUSim v3.0.0, driver/driver.go:747).
    Moved,
}

/// Who is told of a migration that an access counter asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// GPUs that have a mapping of a page of it.
    #[default]
    Users,
    /// Every GPU, each once (GRIT, section II-B2, step 4).
    All,
}

/// What a GPU does when a translation, or the right to write, is taken away from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlushMode {
    /// No compute unit issues until all accesses in flight are over, dirty lines are written back
    /// and caches and TLBs are empty (GRIT, section II-B).
    #[default]
    Pipeline,
    /// Only accesses to these pages are waited for, and only their lines and translations go:
    /// asynchronous compute unit draining (Griffin; GRIT, section VI-C).
    Page,
}
