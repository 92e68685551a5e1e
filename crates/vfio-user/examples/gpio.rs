//! A tiny PCI device: eight output pins, and eight input pins that follow them.
//!
//! ```text
//! cargo run -p farside-vfio-user --example gpio -- /tmp/gpio.sock
//! cargo run -p farside-vfio-user --example poke -- /tmp/gpio.sock write 0 0 a5
//! cargo run -p farside-vfio-user --example poke -- /tmp/gpio.sock read 0 4 1
//! ```
//!
//! QEMU takes it too:
//!
//! ```text
//! qemu-system-x86_64 … -object memory-backend-memfd,id=m0,size=512M,share=on \
//!   -machine memory-backend=m0 \
//!   -device '{"driver":"vfio-user-pci","socket":{"path":"/tmp/gpio.sock","type":"unix"}}'
//! ```
//!
//! BAR 0: byte 0 sets the output pins, byte 4 shows the input pins, byte 8 is 1 while an interrupt is
//! up (write it to lower it). Each change of a pin raises an interrupt.

use std::error::Error;
use std::thread;

use farside_vfio_user::device::{irq, region};
use farside_vfio_user::pci::{Bar, Builder, ConfigSpace, Identity, Msi};
use farside_vfio_user::unix::{Connection, Interrupts, Listener, Session};
use farside_vfio_user::{Bus, Device, Errno, Limits, Server, SetIrqs};

struct Gpio {
    config: ConfigSpace,
    interrupts: Interrupts,
    registers: [u8; 16],
}

const OUTPUT: usize = 0;
const INPUT: usize = 4;
const PENDING: usize = 8;

impl Gpio {
    fn new() -> Result<Gpio, Box<dyn Error>> {
        let identity =
            Identity { vendor: 0x494f, device: 0x0dc8, class: 0xff_00_00, ..Identity::default() };
        let config = Builder::new(identity)
            .bar(0, Bar::Memory32 { size: 16, prefetchable: false })
            .interrupt_pin(1)
            .msi(Msi { vectors: 1 })
            .build()?;
        let interrupts = Interrupts::new(&config.describe());
        Ok(Gpio { config, interrupts, registers: [0; 16] })
    }

    fn set_output(&mut self, pins: u8) -> Result<(), Errno> {
        let changed = self.registers[INPUT] != pins;
        self.registers[OUTPUT] = pins;
        self.registers[INPUT] = pins;
        if changed { self.interrupt() } else { Ok(()) }
    }

    fn interrupt(&mut self) -> Result<(), Errno> {
        self.registers[PENDING] = 1;
        if self.config.msi_enabled() {
            self.interrupts.raise(irq::MSI, 0)?;
            return Ok(());
        }
        // The pin is a level: drivers that share the line look at the status register.
        self.config.set_interrupt_status(true);
        if self.config.pin_enabled() {
            self.interrupts.raise(irq::INTX, 0)?;
        }
        Ok(())
    }

    fn lower(&mut self) {
        self.registers[PENDING] = 0;
        self.config.set_interrupt_status(false);
        self.interrupts.lower(irq::INTX, 0);
    }

    /// The pin was switched off or on again.
    fn command_changed(&mut self) -> Result<(), Errno> {
        if self.registers[PENDING] != 0 && self.config.pin_enabled() && !self.config.msi_enabled() {
            self.interrupts.raise(irq::INTX, 0)?;
        }
        Ok(())
    }
}

impl Device for Gpio {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        if region == region::CONFIG {
            self.config.read(offset, data);
            return Ok(());
        }
        let offset = offset as usize;
        data.copy_from_slice(&self.registers[offset..offset + data.len()]);
        Ok(())
    }

    fn region_write(
        &mut self,
        _bus: &mut Bus<'_>,
        region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Errno> {
        if region == region::CONFIG {
            let changes = self.config.write(offset, data);
            return if changes.command { self.command_changed() } else { Ok(()) };
        }
        for (at, &value) in (offset as usize..).zip(data) {
            match at {
                OUTPUT => self.set_output(value)?,
                PENDING if value != 0 => self.lower(),
                _ => {}
            }
        }
        Ok(())
    }

    fn set_irqs(&mut self, set: SetIrqs<'_>) -> Result<(), Errno> {
        self.interrupts.apply(set)?;
        // A level that is still high raises the unmasked pin again.
        self.command_changed()
    }

    fn reset(&mut self, _bus: &mut Bus<'_>) -> Result<(), Errno> {
        self.config.reset();
        self.registers = [0; 16];
        Ok(())
    }
}

/// One client at a time; a second one is told that the device is busy.
fn refuse(connection: Connection) {
    thread::spawn(move || {
        let Ok(mut gpio) = Gpio::new() else { return };
        let server = Server::refusing(Errno::BUSY, Limits::default());
        // The session ends with the refusal.
        let _ = Session::new(connection, server).run(&mut gpio);
    });
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: gpio SOCKET")?;
    let listener = Listener::bind(&path)?;
    println!("serving {path}");
    let mut current: Option<thread::JoinHandle<()>> = None;
    loop {
        let connection = listener.accept()?;
        if current.as_ref().is_some_and(|session| !session.is_finished()) {
            refuse(connection);
            continue;
        }
        let mut gpio = Gpio::new()?;
        let server = Server::new(gpio.config.describe(), Limits::default())?;
        current = Some(thread::spawn(move || {
            if let Err(error) = Session::new(connection, server).run(&mut gpio) {
                eprintln!("{error}");
            }
        }));
    }
}
