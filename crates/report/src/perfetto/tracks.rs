//! Which tracks there are: a process for each run, in it the program, and a group for each agent with its kernels, its
//! faults, and what comes to its memory.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;

use farside_events::About;
use farside_types::{AgentId, MemoryId};

use super::messages::{ProcessDescriptor, TrackDescriptor};
use super::packets::Packets;
use crate::objects::Words;

/// Numbers of the tracks of a run.
const RUN: u64 = 1 << 48;
/// Of these, those of an agent and its memory.
const AGENT: u64 = 1 << 32;
/// In the group of an agent.
const FAULTS: u64 = 1;
const ARRIVALS: u64 = 2;
const HELD: u64 = 3;
const FAULT_RATE: u64 = 4;
/// And a way from each memory to the group's; the first is of zeros.
const WAYS: u64 = 1 << 8;
/// And as many kernels as run at once.
const KERNELS: u64 = 1 << 10;
/// In no agent's group: the program.
const PROGRAM: u64 = 1;

/// The tracks of a run.
pub(crate) struct Tracks {
    run: u64,
    process: String,
    words: Words,
    /// Lanes of each agent that no kernel is in.
    free: HashMap<AgentId, BTreeSet<u64>>,
}

impl Tracks {
    /// Of the run of this number.
    pub(crate) fn new(number: usize, about: &About) -> Tracks {
        let About { program, machine, scheme, .. } = about;
        let process = format!("{program} on {machine}, {scheme}");
        let (run, words) = (number as u64 + 1, Words::new(about));
        Tracks { run, process, words, free: HashMap::new() }
    }

    pub(crate) fn words(&self) -> &Words {
        &self.words
    }

    /// What the program says.
    pub(crate) fn program<W: Write>(&self, packets: &mut Packets<W>) -> u64 {
        let process = self.process(packets);
        self.child(packets, process, process + PROGRAM, || "program".to_owned())
    }

    /// Faults of an agent.
    pub(crate) fn faults<W: Write>(&self, packets: &mut Packets<W>, agent: AgentId) -> u64 {
        let group = self.group(packets, agent);
        self.child(packets, group, group + FAULTS, || "faults".to_owned())
    }

    /// What comes to a memory, or leaves it.
    pub(crate) fn arrivals<W: Write>(&self, packets: &mut Packets<W>, memory: MemoryId) -> u64 {
        let group = self.group(packets, memory.agent());
        let name = || format!("pages to {}", self.words.memory(memory));
        self.child(packets, group, group + ARRIVALS, name)
    }

    /// The track of a counter and its group.
    pub(crate) fn held<W: Write>(&self, packets: &mut Packets<W>, memory: MemoryId) -> (u64, u64) {
        let group = self.group(packets, memory.agent());
        (group + HELD, group)
    }

    /// The same for pages on their way.
    pub(crate) fn way<W: Write>(
        &self,
        packets: &mut Packets<W>,
        from: Option<MemoryId>,
        to: MemoryId,
    ) -> (u64, u64) {
        let group = self.group(packets, to.agent());
        (group + WAYS + from.map_or(0, |from| 1 + u64::from(from.0)), group)
    }

    /// The same for faults.
    pub(crate) fn fault_rate<W: Write>(
        &self,
        packets: &mut Packets<W>,
        agent: AgentId,
    ) -> (u64, u64) {
        let group = self.group(packets, agent);
        (group + FAULT_RATE, group)
    }

    /// A lane in which no kernel of the agent runs, until [`Tracks::leave`].
    pub(crate) fn enter<W: Write>(&mut self, packets: &mut Packets<W>, agent: AgentId) -> u64 {
        let group = self.group(packets, agent);
        let free = self.free.entry(agent).or_insert_with(|| BTreeSet::from([0]));
        let lane = free.pop_first().unwrap_or_default();
        if free.is_empty() {
            // The lanes so far are 0 to `lane`.
            free.insert(lane + 1);
        }
        self.child(packets, group, group + KERNELS + lane, || match lane {
            0 => "kernels".to_owned(),
            lane => format!("kernels {}", lane + 1),
        })
    }

    /// The kernel in that lane has ended.
    pub(crate) fn leave(&mut self, agent: AgentId, track: u64) {
        let lane = track % AGENT - KERNELS;
        self.free.entry(agent).or_default().insert(lane);
    }

    fn process<W: Write>(&self, packets: &mut Packets<W>) -> u64 {
        let uuid = self.run * RUN;
        let process = || ProcessDescriptor {
            pid: Some(self.run as i32),
            process_name: Some(self.process.clone()),
        };
        packets.track(uuid, || TrackDescriptor {
            process: Some(process()),
            ..TrackDescriptor::default()
        });
        uuid
    }

    fn group<W: Write>(&self, packets: &mut Packets<W>, agent: AgentId) -> u64 {
        let process = self.process(packets);
        let uuid = process + AGENT * (1 + u64::from(agent.0));
        self.child(packets, process, uuid, || self.words.agent(agent).to_owned())
    }

    fn child<W: Write>(
        &self,
        packets: &mut Packets<W>,
        parent: u64,
        uuid: u64,
        name: impl FnOnce() -> String,
    ) -> u64 {
        packets.track(uuid, || TrackDescriptor {
            name: Some(name()),
            parent_uuid: Some(parent),
            ..TrackDescriptor::default()
        });
        uuid
    }
}
