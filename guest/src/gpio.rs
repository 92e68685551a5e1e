//! A device of somebody else's that was borrowed from another host: `farside-vfio-user`'s example of one, eight output
//! pins and eight input pins that follow them. All of it goes over the link: registers, interrupts, resets.

use std::os::fd::{AsFd, OwnedFd};

use farside_linux::vfio::{Device, InterruptKind, RegionIndex};
use rustix::event::EventfdFlags;

use crate::edu::taken;
use crate::report::{Check, Report};
use crate::wait::{expect, wait_for};
use crate::{Failure, sysfs};

const VENDOR: u16 = 0x494f;
const DEVICE: u16 = 0x0dc8;

const OUTPUT: u64 = 0;
const INPUT: u64 = 4;
/// 1 while an interrupt is up.
const PENDING: u64 = 8;

const CHECKS: [Check<Device>; 4] = [
    ("registers", registers),
    ("wire", wire),
    ("messages", messages),
    ("function-reset", function_reset),
];

pub(crate) fn run(report: &mut Report) {
    if let Some(mut device) = report.note("open", open()) {
        report.run(&CHECKS, &mut device);
    }
}

fn open() -> Result<Device, Failure> {
    let address = sysfs::find(VENDOR, DEVICE)?;
    sysfs::bind_to_vfio(address)?;
    let device = Device::open(address)?;
    // Messages are written by it.
    device.set_bus_master(true)?;
    Ok(device)
}

fn set(device: &Device, pins: u8) -> Result<(), Failure> {
    Ok(device.write(RegionIndex::Bar0, OUTPUT, &[pins])?)
}

fn byte(device: &Device, at: u64) -> Result<u8, Failure> {
    let mut byte = [0];
    device.read(RegionIndex::Bar0, at, &mut byte)?;
    Ok(byte[0])
}

fn lower(device: &Device) -> Result<(), Failure> {
    device.write(RegionIndex::Bar0, PENDING, &[1])?;
    expect("what is up", byte(device, PENDING)?, 0)
}

fn event() -> Result<OwnedFd, Failure> {
    Ok(rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)
}

/// A read comes behind the writes before it.
fn registers(device: &mut Device) -> Result<(), Failure> {
    for pins in [0xa5, 0x5a, 0xff] {
        set(device, pins)?;
        expect("the input pins", byte(device, INPUT)?, pins)?;
    }
    lower(device)
}

/// The kernel masks a wire when it has fired.
fn wire(device: &mut Device) -> Result<(), Failure> {
    let event = event()?;
    device.set_interrupts(InterruptKind::Intx, &[Some(event.as_fd())])?;
    set(device, 1)?;
    wait_for("the wire", || taken(&event))?;
    lower(device)?;
    Ok(device.clear_interrupts(InterruptKind::Intx)?)
}

fn messages(device: &mut Device) -> Result<(), Failure> {
    let event = event()?;
    device.set_interrupts(InterruptKind::Msi, &[Some(event.as_fd())])?;
    for pins in 2..10 {
        set(device, pins)?;
        let count = wait_for("the message", || taken(&event))?;
        expect("messages for one change", count, 1)?;
    }
    lower(device)?;
    Ok(device.clear_interrupts(InterruptKind::Msi)?)
}

fn function_reset(device: &mut Device) -> Result<(), Failure> {
    set(device, 0x77)?;
    device.reset()?;
    expect("the input pins after a reset", byte(device, INPUT)?, 0)
}
