//! Cards in simulated time: the machine of the multi-FPGA SVM paper, 2 to 16 cards of it.
//!
//! A [`CardsSpec`] says what the machine is like, a [`CardMachine`] carries the commands of the
//! driver of `farside-svm` out on it, in integer picoseconds. The MMU is the one of `farside-card`.
//! [`measure`] has the experiments of the paper, [`paper`] what it prints.
//!
//! ```
//! use farside_sim::cards::{CardMachine, CardsSpec, Layout, Work};
//! use farside_types::CardId;
//!
//! let spec = CardsSpec::preset("as-published")?.with_overrides(&[("machine.transport", "peer")])?;
//! let mut machine = CardMachine::new(spec)?;
//! let array = machine.allocate(1 << 20, "array")?;
//! machine.place(array, CardId(0), Layout::Contiguous)?;
//! let migration = machine.migrate(array, CardId(1).memory())?;
//! let job = machine.run(CardId(1), Work::Update { pages: array })?;
//! assert_eq!((migration.pages, job.faults), (256, 0));
//! # Ok::<(), farside_sim::cards::CardsError>(())
//! ```

mod card;
mod error;
mod host;
mod machine;
pub mod measure;
pub mod paper;
mod pe;
mod program;
mod spec;
mod transfer;
mod wires;
mod workload;

pub use error::CardsError;
pub use machine::CardMachine;
pub use program::{JobReport, Layout, Migration, Steps};
pub use spec::{
    CardsSpec, DmaSpec, DriverSpec, EthernetSpec, HostSpec, MachineSpec, MmuSpec, PcieSpec, PeSpec,
    Topology, Transport,
};
pub use workload::Work;
