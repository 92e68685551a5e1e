//! The space.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use farside::foreign::{Allocation, ForeignLaunch, ForeignSpace};
use farside::{
    Advice, ArgKind, Backing, CBody, CardBuffer, KernelArg, Made, MadeColumn, MemoryKind,
    OwnMemoryId, UnknownMemoryKind, body_kernel, parse_cards,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::column::Column;
use crate::error::{FarsideError, raised};
use crate::job::{Job, wait};
use crate::memory::Memory;
use crate::unlocked::Unlocked;

/// The number of the host's memory in Python.
const HOST: i64 = -1;

/// A range of pages as Python gets it: first address, bytes, state, the memory that owns it, those with a copy, why.
type Part = (u64, u64, String, Option<String>, Vec<String>, Option<String>);

/// A memory as Python gets it: kind, name, bytes, free bytes.
type OwnMemory = (String, String, u64, u64);

/// One virtual address space over host memory and cards.
#[pyclass(frozen, module = "farside")]
pub(crate) struct Space(Unlocked<ForeignSpace>);

#[pymethods]
impl Space {
    /// Opens a space.
    ///
    /// # Safety
    /// The code of `kernel_libraries` runs in this process, as that of any extension of Python.
    #[new]
    #[pyo3(signature = (cards, card_memory, card_window, address_space, processing_elements, placement, large_pages, cards_at, kernel_libraries, events))]
    #[allow(clippy::too_many_arguments)] // keywords in Python
    fn new(
        py: Python<'_>,
        cards: usize,
        card_memory: Option<u64>,
        card_window: Vec<(String, u64)>,
        address_space: Option<u64>,
        processing_elements: Option<u16>,
        placement: Option<&str>,
        large_pages: bool,
        cards_at: Option<&str>,
        kernel_libraries: Vec<PathBuf>,
        events: Option<PathBuf>,
    ) -> PyResult<Space> {
        let mut builder = farside::Space::builder().cards(cards).large_pages(large_pages);
        if let Some(bytes) = card_memory {
            builder = builder.card_memory(bytes);
        }
        let window =
            card_window.iter().map(|(kind, bytes)| Ok((kind.parse::<MemoryKind>()?, *bytes)));
        let window = window.collect::<Result<Vec<_>, UnknownMemoryKind>>();
        let window = window.map_err(|error| PyValueError::new_err(error.to_string()))?;
        builder = builder.card_window_memories(window);
        if let Some(bytes) = address_space {
            builder = builder.address_space(bytes);
        }
        if let Some(path) = events {
            builder = builder.events(path);
        }
        if let Some(elements) = processing_elements {
            builder = builder.processing_elements(elements);
        }
        if let Some(name) = placement {
            // SAFETY: as for `kernel_libraries` below.
            builder = unsafe { builder.placement_or_library(name) };
        }
        if let Some(places) = cards_at {
            builder = builder.cards_at(parse_cards(places).map_err(raised)?);
        }
        for library in kernel_libraries {
            // SAFETY: the caller in Python answers for the library, as for every extension that is imported.
            builder = unsafe { builder.kernel_library(library) };
        }
        let space = py.detach(|| builder.build()).map_err(raised)?;
        Ok(Space(Unlocked::new(ForeignSpace::new(space))))
    }

    /// Number of cards.
    #[getter]
    fn cards(&self) -> PyResult<usize> {
        Ok(self.open()?.cards().len())
    }

    /// Names of the kernels that can be called.
    #[getter]
    fn kernels(&self) -> PyResult<Vec<String>> {
        Ok(self.open()?.kernels().names().map(str::to_owned).collect())
    }

    /// Shared memory, zero.
    fn alloc(&self, py: Python<'_>, nbytes: u64, name: &str) -> PyResult<Memory> {
        let allocation = py.detach(|| self.0.alloc(nbytes, name)).map_err(raised)?;
        Ok(Memory::new(allocation, nbytes))
    }

    /// Memory of an array of the program's own, which `keep` keeps.
    fn adopt(
        &self,
        py: Python<'_>,
        address: u64,
        nbytes: u64,
        name: &str,
        keep: Py<PyAny>,
    ) -> PyResult<Memory> {
        // SAFETY: the array is kept as long as the memory is shared.
        let adopt = || unsafe { self.0.adopt(address, nbytes, name, Some(Box::new(keep))) };
        let allocation = py.detach(adopt).map_err(raised)?;
        Ok(Memory::new(allocation, nbytes))
    }

    /// A file as shared memory, with so much of the host's memory at a time.
    fn map_file(&self, py: Python<'_>, path: PathBuf, memory: u64) -> PyResult<Memory> {
        let allocation = py.detach(|| self.0.map_file(&path, memory)).map_err(raised)?;
        let nbytes = allocation.bytes();
        Ok(Memory::new(allocation, nbytes))
    }

    /// A card's own memory, zero, all of it there, in one of the card's memories; with `values`, which are as many bytes, these,
    /// which no kernel writes.
    fn alloc_on(
        &self,
        py: Python<'_>,
        card: usize,
        nbytes: u64,
        memory: i64,
        values: Option<&[u8]>,
    ) -> PyResult<Memory> {
        let memory = u8::try_from(memory).map(OwnMemoryId).map_err(|_| {
            PyValueError::new_err(format!(
                "card {card} has no memory number {memory} of its own; own_memories({card}) lists them"
            ))
        })?;
        let options = Backing::Eager.in_memory(memory);
        let own = py.detach(|| match values {
            None => self.0.alloc_on(card, nbytes, options),
            Some(values) => self.0.copy_on(card, values, options),
        });
        Ok(Memory::new(own.map_err(raised)?, nbytes))
    }

    /// What a kernel has handed over in its card's own memory.
    fn take_over(&self, py: Python<'_>, card: usize, addr: u64, nbytes: u64) -> PyResult<Memory> {
        let space = self.open()?;
        let card = space.card(card).map_err(raised)?;
        let made = Made { addr, len: nbytes };
        let own: Result<CardBuffer<u8>, _> = py.detach(|| space.take_over(card, made));
        let allocation = self.0.keep(Allocation::Own(own.map_err(raised)?));
        Ok(Memory::new(allocation, nbytes))
    }

    /// A column that a kernel has handed over: addresses and lengths of values, offsets and validity, and the number of
    /// rows, which are of a format of Arrow's C data interface.
    fn take_over_column(
        &self,
        py: Python<'_>,
        card: usize,
        parts: [(u64, u64); 3],
        len: u64,
        format: &str,
    ) -> PyResult<Column> {
        let space = self.open()?;
        let card = space.card(card).map_err(raised)?;
        let [values, offsets, validity] = parts.map(|(addr, len)| Made { addr, len });
        let made = MadeColumn { values, offsets, validity, len };
        py.detach(|| {
            Column::take_over(&space, card, made, format, |bytes| {
                self.0.keep(Allocation::Own(bytes))
            })
        })
    }

    /// A card's own memories in the order of their numbers: kind, name, bytes, and those that nobody has.
    fn own_memories(&self, py: Python<'_>, card: usize) -> PyResult<Vec<OwnMemory>> {
        let all = py.detach(|| self.0.own_memories(card)).map_err(raised)?;
        let told = |it: farside::OwnMemory| (it.kind.to_string(), it.name, it.bytes, it.bytes_free);
        Ok(all.into_iter().map(told).collect())
    }

    /// The number of one of a card's own memories.
    fn own_memory(&self, py: Python<'_>, card: usize, name: &str) -> PyResult<u8> {
        let space = self.open()?;
        let card = space.card(card).map_err(raised)?;
        let OwnMemoryId(number) = py.detach(|| space.own_memory(card, name)).map_err(raised)?;
        Ok(number)
    }

    /// A new stream.
    fn stream(&self) -> PyResult<u32> {
        Ok(self.open()?.stream().number())
    }

    /// Launches a kernel by its name, or `function`, the address of a `farside_body`, for which `keep` lives on.
    /// `arguments` are records: kind, bytes of an element, word, bytes.
    #[pyo3(signature = (name, arguments, card, stream, time_limit, after, function, keep))]
    #[allow(clippy::too_many_arguments)] // keywords in Python
    fn launch(
        &self,
        py: Python<'_>,
        name: &str,
        arguments: Vec<(u8, u32, u64, u64)>,
        card: usize,
        stream: Option<u32>,
        time_limit: Option<f64>,
        after: Vec<PyRef<'_, Job>>,
        function: Option<usize>,
        keep: Option<Py<PyAny>>,
    ) -> PyResult<Job> {
        let records = arguments.into_iter().map(record).collect::<PyResult<Vec<_>>>()?;
        let function = function.map(body).transpose()?;
        // SAFETY: it is what the package compiled, and `keep` holds its code.
        let function = function.map(|body| unsafe { body_kernel(body) });
        let after: Vec<_> = after.iter().map(|job| (job.id, Arc::clone(&*job.job))).collect();
        let limit = time_limit.map(|seconds| {
            Duration::try_from_secs_f64(seconds)
                .map_err(|error| PyValueError::new_err(format!("time_limit={seconds}: {error}")))
        });
        let limit = limit.transpose()?;
        let stream = stream.map(farside::Stream::of_number);
        let kept = keep.map(|keep| Box::new(keep) as _);
        let launch = ForeignLaunch {
            kernel: name,
            function,
            records,
            card,
            stream,
            limit,
            after: &after,
            kept,
        };
        // SAFETY: that Python itself leaves alone meanwhile what is lent is what the package's documentation asks for; its
        // accesses are not Rust's.
        let (id, job) = py.detach(|| unsafe { self.0.launch(launch) }).map_err(raised)?;
        Ok(Job { id, job: Unlocked::new(job) })
    }

    /// Moves memory. Gives the pages moved.
    fn migrate(&self, py: Python<'_>, address: u64, bytes: u64, to: i64) -> PyResult<u64> {
        let to = self.0.memory_of(card_number(to)?).map_err(raised)?;
        self.with(py, address, bytes, |space, words| space.migrate(words, to))
    }

    /// Brings memory as far as there is room. Gives the pages moved.
    fn prefetch(&self, py: Python<'_>, address: u64, bytes: u64, to: i64) -> PyResult<u64> {
        let to = self.0.memory_of(card_number(to)?).map_err(raised)?;
        self.with(py, address, bytes, |space, words| space.prefetch(words, to))
    }

    /// Moves memory and keeps it there.
    fn pin(&self, py: Python<'_>, address: u64, bytes: u64, at: i64) -> PyResult<()> {
        let at = self.0.memory_of(card_number(at)?).map_err(raised)?;
        self.with(py, address, bytes, |space, words| space.pin(words, at))
    }

    /// Undoes one pin.
    fn unpin(&self, py: Python<'_>, address: u64, bytes: u64) -> PyResult<()> {
        self.with(py, address, bytes, |space, words| space.unpin(words))
    }

    /// Whether kernels may write memory.
    fn set_read_only(&self, py: Python<'_>, address: u64, bytes: u64, on: bool) -> PyResult<()> {
        self.with(py, address, bytes, |space, words| space.set_read_only(words, on))
    }

    /// Tells how memory will be used.
    fn advise(
        &self,
        py: Python<'_>,
        address: u64,
        bytes: u64,
        advice: &str,
        on: bool,
        memory: Option<i64>,
    ) -> PyResult<()> {
        let card = memory.map(card_number).transpose()?;
        let agent = card.map(|card| self.0.agent_of(card)).transpose().map_err(raised)?;
        let memory = card.map(|card| self.0.memory_of(card)).transpose().map_err(raised)?;
        let advice = match (advice, memory) {
            ("read_mostly", _) => Advice::ReadMostly(on),
            ("whole_blocks", _) => Advice::WholeBlocks(on),
            ("preferred", memory) => Advice::Preferred(memory.filter(|_| on)),
            ("accessed_by", _) => match agent {
                Some(agent) => Advice::AccessedBy(agent, on),
                None => {
                    return Err(PyValueError::new_err("advise(…, \"accessed_by\") needs memory="));
                }
            },
            (other, _) => {
                let known = "read_mostly, whole_blocks, preferred, accessed_by";
                return Err(PyValueError::new_err(format!(
                    "there is no advice `{other}`; there is {known}"
                )));
            }
        };
        self.with(py, address, bytes, |space, words| space.advise(words, advice))
    }

    /// Where the parts of memory are.
    fn locate(&self, py: Python<'_>, address: u64, bytes: u64) -> PyResult<Vec<Part>> {
        let own = self.own_parts(py, address, bytes)?;
        if !own.is_empty() {
            return Ok(own.into_iter().map(own_part).collect());
        }
        let parts = self.with(py, address, bytes, |space, words| space.locate(words))?;
        let part = |located: farside::Located| {
            let copies = located.copies.iter().map(|memory| memory.to_string()).collect();
            (
                located.range.start.addr().0,
                located.range.bytes(),
                format!("{:?}", located.state).to_lowercase(),
                located.owner.map(|memory| memory.to_string()),
                copies,
                located.reason.map(|reason| reason.to_string()),
            )
        };
        Ok(parts.into_iter().map(part).collect())
    }

    /// Why the page at an address is placed as it is, in words.
    fn why(&self, py: Python<'_>, address: u64) -> PyResult<String> {
        if let Some(own) = self.own_parts(py, address, 1)?.first() {
            return Ok(own.to_string());
        }
        let space = self.open()?;
        let why = py.detach(|| space.why(farside::VirtAddr(address))).map_err(raised)?;
        Ok(why.to_string())
    }

    /// What happened so far: as text, and as JSON.
    fn report(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let space = self.open()?;
        py.detach(|| {
            let report = space.report();
            let json = serde_json::to_string(&report).map_err(|error| {
                FarsideError::new_err(format!("the report is no JSON: {error}"))
            })?;
            Ok((report.to_string(), json))
        })
    }

    /// Has what happened so far in the event log, and gives the log's path, if there is one.
    fn events_so_far(&self, py: Python<'_>) -> PyResult<Option<PathBuf>> {
        let space = self.open()?;
        py.detach(|| space.events_so_far()).map_err(raised)
    }

    /// The event log's path, if there is one.
    fn event_log(&self) -> PyResult<Option<PathBuf>> {
        Ok(self.open()?.event_log())
    }

    /// Waits for all kernels and closes the space. Arrays over its memory live on.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        for job in self.0.jobs().map_err(raised)? {
            // Whether it failed is its future's to tell.
            if let Err(error) = wait(py, &job, None)
                && !error.is_instance_of::<FarsideError>(py)
            {
                return Err(error);
            }
        }
        py.detach(|| self.0.close()).map_err(raised)
    }

    /// Tells all kernels to stop.
    fn cancel_all(&self, py: Python<'_>) -> PyResult<()> {
        let jobs = self.0.jobs().map_err(raised)?;
        py.detach(|| jobs.iter().for_each(|job| job.cancel()));
        Ok(())
    }
}

impl Space {
    fn open(&self) -> PyResult<farside::Space> {
        self.0.open().map_err(raised)
    }

    /// Whether a kernel that has not ended holds memory that is to be given back.
    pub(crate) fn check_unused(&self, memory: &Allocation) -> Result<(), farside::Error> {
        self.0.check_unused(memory, "the array was not given back")
    }

    /// Where bytes of a card's own memory are; nothing of other memory.
    fn own_parts(
        &self,
        py: Python<'_>,
        address: u64,
        bytes: u64,
    ) -> PyResult<Vec<farside::OwnPart>> {
        let space = self.open()?;
        py.detach(|| space.own_parts(farside::VirtAddr(address), bytes)).map_err(raised)
    }

    /// Does something with the words that have these bytes, without the interpreter's lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        address: u64,
        bytes: u64,
        act: impl FnOnce(&farside::Space, &[AtomicU32]) -> Result<T, farside::Error> + Send,
    ) -> PyResult<T> {
        let bytes = address..address.saturating_add(bytes);
        py.detach(|| self.0.with(bytes, act)).map_err(raised)
    }
}

/// A part of a card's own memory as Python gets it.
fn own_part(part: farside::OwnPart) -> Part {
    let owner = part.memory.map(|memory| format!("{}, {}", part.card, memory.name));
    let state = if owner.is_some() { "own" } else { "fresh" };
    (part.range.start.addr().0, part.range.bytes(), state.to_owned(), owner, Vec::new(), None)
}

/// A card's number; None for the host's.
fn card_number(number: i64) -> PyResult<Option<usize>> {
    if number == HOST {
        return Ok(None);
    }
    usize::try_from(number).map(Some).map_err(|_| {
        PyValueError::new_err(format!(
            "there is no memory {number}; a card's is its number, the host's is {HOST}"
        ))
    })
}

/// A record of an argument.
fn record((kind, element, word, bytes): (u8, u32, u64, u64)) -> PyResult<KernelArg> {
    let kind = match kind {
        0 => ArgKind::Value,
        1 => ArgKind::Read,
        2 => ArgKind::Write,
        3 => ArgKind::Shared,
        other => {
            return Err(PyValueError::new_err(format!("there is no kind {other} of arguments")));
        }
    };
    Ok(KernelArg { kind, element, word, bytes })
}

/// The body at an address.
fn body(address: usize) -> PyResult<CBody> {
    if address == 0 {
        return Err(PyValueError::new_err("a kernel's function is at no address"));
    }
    // SAFETY: the package passes addresses of functions that Numba has compiled with this signature.
    Ok(unsafe { std::mem::transmute::<usize, CBody>(address) })
}
