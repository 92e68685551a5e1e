//! A client that drives a function by hand: for what no driver would do.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use farside_card::interface::{
    CommandEntry, CompletionEntry, ENTRY_BYTES, ExtentArg, ExtentList, KernelArg, Operation,
    RingHeader, RingKind, entry_address, entry_from_bytes, entry_to_bytes, register, ring_bytes,
};
use farside_linux::shared::SharedMemory;
use farside_types::{Asid, JobId};
use farside_vfio_user::client::MapRequest;
use farside_vfio_user::unix::{CallError, UnixClient};

/// BAR0.
const REGISTERS: u32 = 0;
/// Bus address of the memory that a client has for rings and lists.
pub const BUS: u64 = 1 << 32;
/// Its size.
const BYTES: u64 = 8 << 20;
/// Entries of each ring.
const ENTRIES: u32 = 256;
/// How long a message may take.
const LIMIT: Duration = Duration::from_secs(2);

/// See the module.
pub struct RawClient {
    /// The connection.
    pub client: UnixClient,
    memory: SharedMemory,
    commands: u64,
    completions: u64,
    produced: u32,
    consumed: u32,
    next_tag: u64,
    /// Where the next list goes.
    used: u64,
}

impl RawClient {
    /// Connects to a function, as soon as it is free, and enables its rings.
    ///
    /// # Panics
    /// If it does not become free within 10 seconds, or does not work.
    #[track_caller]
    pub fn connect(socket: &Path) -> RawClient {
        let end = Instant::now() + Duration::from_secs(10);
        let client = loop {
            match UnixClient::connect(socket, LIMIT) {
                Ok(client) => break client,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        RawClient::over(client).expect("the function works")
    }

    /// Enables the rings of a function that has been connected to.
    ///
    /// # Errors
    /// What the card says.
    pub fn over(client: UnixClient) -> Result<RawClient, CallError> {
        let memory = SharedMemory::new(BYTES).expect("some memory");
        let (commands, completions) = (0, ring_bytes(ENTRIES));
        let used = completions + ring_bytes(ENTRIES);
        let mut raw = RawClient {
            client,
            memory,
            commands,
            completions,
            produced: 0,
            consumed: 0,
            next_tag: 1,
            used: used.next_multiple_of(4096),
        };
        let file = raw.memory.file().try_clone_to_owned().expect("a descriptor");
        raw.map(BUS, BYTES, &file)?;
        for (kind, at) in [(RingKind::Command, commands), (RingKind::Completion, completions)] {
            let at_register = register::ring(kind);
            raw.write64(at_register + register::RING_BASE, BUS + at)?;
            raw.write32(at_register + register::RING_ENTRIES, ENTRIES)?;
        }
        raw.write32(register::CONTROL, register::CONTROL_ENABLE)?;
        Ok(raw)
    }

    /// Shares memory.
    ///
    /// # Errors
    /// What the card says.
    pub fn map(&mut self, address: u64, size: u64, file: &OwnedFd) -> Result<(), CallError> {
        let request = MapRequest { address, size, readable: true, writable: true, offset: 0 };
        self.client.dma_map(&request, Some(file.as_fd()))
    }

    /// Writes a register.
    ///
    /// # Errors
    /// What the card says.
    pub fn write32(&mut self, offset: u64, value: u32) -> Result<(), CallError> {
        self.client.region_write(REGISTERS, offset, &value.to_le_bytes())
    }

    fn write64(&mut self, offset: u64, value: u64) -> Result<(), CallError> {
        self.client.region_write(REGISTERS, offset, &value.to_le_bytes())
    }

    /// Reads a register.
    ///
    /// # Errors
    /// What the card says.
    pub fn read64(&mut self, offset: u64) -> Result<u64, CallError> {
        let mut bytes = [0; 8];
        self.client.region_read(REGISTERS, offset, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Puts bytes into the memory. Gives their bus address.
    ///
    /// # Panics
    /// If there is no more room.
    pub fn put(&mut self, bytes: &[u8]) -> u64 {
        let at = self.used;
        self.memory.write(at, bytes).expect("there is room for lists");
        self.used = (at + bytes.len() as u64).next_multiple_of(64);
        BUS + at
    }

    /// Puts a command into the ring, without a doorbell. Gives its tag.
    pub fn push(&mut self, asid: u16, operation: Operation) -> u64 {
        let tag = self.next_tag;
        self.next_tag += 1;
        let entry = CommandEntry { tag, asid: Asid(asid), operation }.to_entry();
        let at = entry_address(self.commands, ENTRIES, self.produced);
        self.memory.write(at, &entry_to_bytes(&entry)).expect("within the ring");
        self.produced = self.produced.wrapping_add(1);
        let producer = self.commands + RingHeader::PRODUCER;
        self.memory.store(producer, self.produced).expect("within the ring");
        tag
    }

    /// Rings the doorbell, by a message.
    ///
    /// # Errors
    /// What the card says.
    pub fn ring(&mut self) -> Result<(), CallError> {
        self.write32(register::DOORBELL, 1)
    }

    /// Gives a command and waits for its completion.
    ///
    /// # Errors
    /// The card is gone, or does not complete it within 10 seconds.
    pub fn run(&mut self, asid: u16, operation: Operation) -> Result<CompletionEntry, CallError> {
        let tag = self.push(asid, operation);
        self.ring()?;
        self.await_completion(tag)
    }

    /// The next completion, if there is one.
    pub fn poll(&mut self) -> Option<CompletionEntry> {
        let producer = self.memory.load(self.completions + RingHeader::PRODUCER)?;
        if producer == self.consumed {
            return None;
        }
        let mut bytes = [0; ENTRY_BYTES as usize];
        self.memory.read(entry_address(self.completions, ENTRIES, self.consumed), &mut bytes)?;
        self.consumed = self.consumed.wrapping_add(1);
        self.memory.store(self.completions + RingHeader::CONSUMER, self.consumed)?;
        CompletionEntry::from_entry(&entry_from_bytes(&bytes)).ok()
    }

    /// The id of a kernel.
    ///
    /// # Errors
    /// The card is gone.
    pub fn kernel(&mut self, name: &str) -> Result<u32, CallError> {
        let address = self.put(name.as_bytes());
        let found = self.run(0, Operation::Kernel { address, bytes: name.len() as u32 })?;
        Ok(found.value as u32)
    }

    /// Puts the launch of a kernel into the ring, in address space 0, without a doorbell. Gives its
    /// tag.
    ///
    /// # Errors
    /// The card is gone.
    pub fn launch(&mut self, job: u64, name: &str, args: &[KernelArg]) -> Result<u64, CallError> {
        let kernel = self.kernel(name)?;
        let words = args.iter().flat_map(|arg| arg.to_words());
        let records: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let address = if args.is_empty() { 0 } else { self.put(&records) };
        let args = ExtentList { address, count: args.len() as u32 };
        let message = ExtentList { address: 0, count: 0 };
        Ok(self.push(0, Operation::Launch { job: JobId(job), kernel, pe: None, args, message }))
    }

    /// Waits for the completion of a command; what else is completed meanwhile is forgotten.
    ///
    /// # Errors
    /// The card is gone, or does not complete it within 10 seconds.
    pub fn await_completion(&mut self, tag: u64) -> Result<CompletionEntry, CallError> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(completion) = self.poll() {
                if completion.tag == tag {
                    return Ok(completion);
                }
                continue;
            }
            if Instant::now() > end {
                return Err(CallError::TimedOut(Duration::from_secs(10)));
            }
            // Whoever is gone is noticed.
            self.read64(register::GENERATION)?;
        }
    }

    /// A list of extents, in memory.
    pub fn list(&mut self, extents: &[farside_card::interface::Extent]) -> ExtentArg {
        let words = extents.iter().flat_map(|extent| extent.to_words());
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let address = self.put(&bytes);
        let count = extents.len() as u32;
        ExtentArg::List(ExtentList { address, count })
    }
}
