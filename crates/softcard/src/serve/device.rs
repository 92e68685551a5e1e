//! A function as vfio-user shows it: configuration space, BARs and interrupts.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_card::interface::{pci, register};
use farside_types::PAGE_SIZE;
use farside_vfio_user::device::{DeviceInfo, IoFd, IoFdKind, Region, SparseArea};
use farside_vfio_user::pci::{Bar, Builder, ConfigSpace, Express, Identity, Msix};
use farside_vfio_user::server::{Bus, Device};
use farside_vfio_user::{DmaMap, DmaUnmap, Errno, SetIrqs};

use super::leased_function::LeasedFunction;
use super::windows::BUS_BYTES;
use farside_linux::lock::lock;

/// Region numbers.
const REGISTERS: u32 = pci::BAR_REGISTERS as u32;
const MEMORY: u32 = pci::BAR_MEMORY as u32;
const MSIX: u32 = pci::BAR_MSIX as u32;
const CONFIG: u32 = farside_vfio_user::device::region::CONFIG;

/// How long a reset by the bus waits for kernels and copies to end.
const RESET_LIMIT: Duration = Duration::from_secs(1);

/// One client's view of a function.
pub(super) struct FunctionDevice {
    leased: Arc<LeasedFunction>,
    config: ConfigSpace,
    msix: Vec<u8>,
}

/// The configuration space of a function with `frames` frames.
pub(super) fn config_space(frames: u32) -> ConfigSpace {
    let identity = Identity {
        vendor: pci::VENDOR,
        device: pci::DEVICE,
        subsystem_vendor: pci::VENDOR,
        subsystem: pci::DEVICE,
        class: pci::CLASS,
        revision: 1,
    };
    let bar32 = |size| Bar::Memory32 { size, prefetchable: false };
    let msix = Msix {
        vectors: pci::VECTORS,
        table_bar: pci::BAR_MSIX as u8,
        table_offset: pci::MSIX_TABLE,
        pba_bar: pci::BAR_MSIX as u8,
        pba_offset: pci::MSIX_PENDING,
    };
    let memory = Bar::Memory64 { size: pci::bar_memory_bytes(frames), prefetchable: true };
    Builder::new(identity)
        .bar(pci::BAR_REGISTERS as u8, bar32(pci::BAR_REGISTERS_BYTES as u32))
        .bar(pci::BAR_MEMORY as u8, memory)
        .bar(pci::BAR_MSIX as u8, bar32(pci::BAR_MSIX_BYTES as u32))
        .msix(msix)
        .express(Express { link_speed: 4, link_width: 16 })
        .build()
        .expect("these BARs and capabilities fit together")
}

/// What a client is told of a function: its memory may be mapped, its doorbell is a descriptor.
pub(super) fn describe(
    config: &ConfigSpace,
    leased: &LeasedFunction,
) -> Result<DeviceInfo, std::io::Error> {
    let doorbell: Arc<OwnedFd> = Arc::new(leased.doorbell().as_fd().try_clone_to_owned()?);
    let frames = leased.memory.frames();
    let (file, offset) = leased.memory.file();
    let area = SparseArea { offset: 0, size: u64::from(frames) * PAGE_SIZE as u64 };
    let bell = IoFd {
        offset: register::DOORBELL,
        size: 4,
        flags: 0,
        kind: IoFdKind::IoEventFd { datamatch: 0 },
        fd: doorbell,
    };
    Ok(config
        .describe()
        .dma_end(BUS_BYTES)
        .region(REGISTERS, Region::read_write(pci::BAR_REGISTERS_BYTES).io_fds(vec![bell]))
        .region(
            MEMORY,
            Region::read_write(pci::bar_memory_bytes(frames)).mapped(file, offset, vec![area]),
        ))
}

impl FunctionDevice {
    pub(super) fn new(leased: Arc<LeasedFunction>, config: ConfigSpace) -> FunctionDevice {
        FunctionDevice { leased, config, msix: vec![0; pci::BAR_MSIX_BYTES as usize] }
    }

    /// The bytes of the memory that an access reaches; beyond the frames there are none.
    fn memory_part(&self, offset: u64, bytes: usize) -> Option<(*mut u8, usize)> {
        let size = u64::from(self.leased.memory.frames()) * PAGE_SIZE as u64;
        let left = usize::try_from(size.checked_sub(offset)?).ok()?;
        let at = self.leased.memory.base().wrapping_add(offset as usize);
        Some((at, bytes.min(left)))
    }

    fn reset_all(&mut self) -> Result<(), Errno> {
        self.config.reset();
        self.msix.fill(0);
        self.reset_function()
    }

    fn reset_function(&mut self) -> Result<(), Errno> {
        let reset = register::CONTROL_RESET.to_le_bytes();
        self.leased.with(|f, card, bus| f.write_register(card, bus, register::CONTROL, &reset));
        let end = Instant::now() + RESET_LIMIT;
        loop {
            let mut status = [0; 4];
            self.leased.with(|f, card, _| f.read_register(card, register::STATUS, &mut status));
            if u32::from_le_bytes(status) & register::STATUS_RESETTING == 0 {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(Errno::BUSY);
            }
            self.leased.give_up_late_jobs();
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Device for FunctionDevice {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        match region {
            REGISTERS => {
                self.leased.with(|function, card, _| function.read_register(card, offset, data));
            }
            MEMORY => {
                data.fill(0xff);
                if let Some((at, bytes)) = self.memory_part(offset, data.len()) {
                    // SAFETY: the part lies within the memory's mapping; others may write it at the
                    // same time, and the client then sees any mixture.
                    unsafe { std::ptr::copy_nonoverlapping(at, data.as_mut_ptr(), bytes) };
                }
            }
            MSIX => {
                let start = offset as usize;
                data.copy_from_slice(self.msix.get(start..start + data.len()).ok_or(Errno::INVAL)?);
            }
            CONFIG => self.config.read(offset, data),
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn region_write(
        &mut self,
        _bus: &mut Bus<'_>,
        region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Errno> {
        match region {
            REGISTERS => {
                self.leased.with(|f, card, bus| f.write_register(card, bus, offset, data));
                // Whatever it was: an enabled function looks at its rings, and says that it sleeps.
                self.leased.serve_doorbell();
            }
            MEMORY => {
                if let Some((at, bytes)) = self.memory_part(offset, data.len()) {
                    // SAFETY: as in `region_read`.
                    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), at, bytes) };
                }
            }
            MSIX => {
                let start = offset as usize;
                let part = self.msix.get_mut(start..start + data.len()).ok_or(Errno::INVAL)?;
                part.copy_from_slice(data);
            }
            CONFIG => {
                if self.config.write(offset, data).function_reset {
                    self.reset_all()?;
                }
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn pauses(&self) -> bool {
        // From here on commands may need memory that is reached by messages.
        self.leased.needs_messages() && !self.leased.staging.is_connected()
    }

    fn dma_map(&mut self, map: DmaMap) -> Result<(), Errno> {
        self.leased.map(map)
    }

    fn dma_unmap(&mut self, unmap: DmaUnmap) -> Result<(), Errno> {
        self.leased.windows.unmap(unmap);
        Ok(())
    }

    fn set_irqs(&mut self, set: SetIrqs<'_>) -> Result<(), Errno> {
        lock(&self.leased.interrupts).apply(set)
    }

    fn reset(&mut self, _bus: &mut Bus<'_>) -> Result<(), Errno> {
        self.reset_all()
    }
}
