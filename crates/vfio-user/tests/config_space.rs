//! A configuration space is probed as a kernel probes it.

use farside_vfio_user::device::{irq, region};
use farside_vfio_user::pci::{
    Bar, BuildError, Builder, Changes, ConfigSpace, Express, Identity, Msi, Msix, command, register,
};
use proptest::prelude::*;

fn identity() -> Identity {
    Identity {
        vendor: 0x1b36,
        device: 0x0010,
        subsystem_vendor: 0x1af4,
        subsystem: 0x1100,
        class: 0x12_00_01,
        revision: 3,
    }
}

fn full() -> ConfigSpace {
    Builder::new(identity())
        .bar(0, Bar::Memory32 { size: 0x4000, prefetchable: false })
        .bar(1, Bar::Io { size: 0x20 })
        .bar(2, Bar::Memory64 { size: 1 << 34, prefetchable: true })
        .bar(4, Bar::Memory32 { size: 0x4000, prefetchable: false })
        .rom(0x1_0000)
        .interrupt_pin(1)
        .express(Express { link_speed: 3, link_width: 16 })
        .msi(Msi { vectors: 4 })
        .msix(Msix::in_bar(4, 32))
        .capability(&[9, 0, 4, 0xaa], &[0xff, 0xff, 0, 0x0f])
        .build()
        .unwrap()
}

fn u32_at(space: &ConfigSpace, at: u16) -> u32 {
    let mut bytes = [0; 4];
    space.read(u64::from(at), &mut bytes);
    u32::from_le_bytes(bytes)
}

fn write(space: &mut ConfigSpace, at: u16, value: u32) -> Changes {
    space.write(u64::from(at), &value.to_le_bytes())
}

/// Every capability by id: its offset.
fn capabilities(space: &ConfigSpace) -> Vec<(u8, u16)> {
    let mut found = Vec::new();
    let mut at = u32_at(space, register::CAPABILITIES) as u8;
    while at != 0 {
        assert!(at % 4 == 0 && found.len() < 48);
        let header = u32_at(space, u16::from(at));
        found.push((header as u8, u16::from(at)));
        at = (header >> 8) as u8;
    }
    found
}

#[test]
fn the_header_says_who_it_is() {
    let space = full();
    assert_eq!(u32_at(&space, register::VENDOR), 0x0010_1b36);
    assert_eq!(u32_at(&space, register::REVISION), 0x12_00_01_03);
    assert_eq!(u32_at(&space, register::SUBSYSTEM_VENDOR), 0x1100_1af4);
    assert_eq!(space.size(), 4096);
    assert_eq!(u32_at(&space, 0x100), 0, "no extended capability");
}

#[test]
fn bars_are_sized_as_hardware_s() {
    let mut space = full();
    for (index, expected) in [
        (0, 0xffff_c000),
        (1, 0xffff_ffe1),
        (2, 0x0000_000c),
        (3, 0xffff_fffc),
        (4, 0xffff_c000),
        (5, 0),
    ] {
        let at = register::BAR0 + 4 * index;
        write(&mut space, at, u32::MAX);
        assert_eq!(u32_at(&space, at), expected, "BAR {index}");
    }
    write(&mut space, register::ROM, u32::MAX);
    assert_eq!(u32_at(&space, register::ROM), 0xffff_0001);
}

#[test]
fn bars_take_addresses() {
    let mut space = full();
    assert!(write(&mut space, register::BAR0, 0xfe00_4000).addresses);
    write(&mut space, register::BAR0 + 4, 0xc041);
    write(&mut space, register::BAR0 + 8, 0);
    write(&mut space, register::BAR0 + 12, 0x38);
    assert_eq!(space.bar_address(0), Some(0xfe00_4000));
    assert_eq!(space.bar_address(1), Some(0xc040));
    assert_eq!(space.bar_address(2), Some(0x38_0000_0000));
    assert_eq!(space.bar_address(5), None);
    assert_eq!(space.bar_address(200), None);
    space.reset();
    assert_eq!(space.bar_address(0), Some(0));
}

#[test]
fn capabilities_are_linked() {
    let space = full();
    let ids: Vec<u8> = capabilities(&space).iter().map(|c| c.0).collect();
    assert_eq!(ids, [0x10, 0x05, 0x11, 0x09]);
    assert_eq!(u32_at(&space, register::COMMAND) >> 16 & 0x10, 0x10);
    let plain = Builder::new(identity()).build().unwrap();
    assert!(capabilities(&plain).is_empty());
    assert_eq!(u32_at(&plain, register::COMMAND) >> 16, 0);
    assert_eq!(plain.size(), 256);
}

#[test]
fn interrupts_are_switched_on() {
    let mut space = full();
    let found = capabilities(&space);
    let at = |id| found.iter().find(|c| c.0 == id).unwrap().1;
    let (msi, msix) = (at(0x05), at(0x11));
    assert_eq!(u32_at(&space, msi) >> 16, 0x84, "4 vectors, 64 bits");
    assert_eq!(u32_at(&space, msix) >> 16, 31);
    assert!(space.write(u64::from(msix + 2), &0xffffu16.to_le_bytes()).msix);
    assert!(space.msix_enabled() && space.msix_masked());
    assert_eq!(u32_at(&space, msix) >> 16, 0xc01f, "the number of vectors is read-only");
    assert!(space.write(u64::from(msi + 2), &1u16.to_le_bytes()).msi);
    assert!(space.msi_enabled());
    assert!(space.pin_enabled() && !space.is_bus_master());
    let off = u32::from(command::INTX_DISABLE | command::BUS_MASTER);
    assert!(write(&mut space, register::COMMAND, off).command);
    assert!(!space.pin_enabled() && space.is_bus_master());
    space.set_interrupt_status(true);
    assert_eq!(u32_at(&space, register::COMMAND) >> 16 & 8, 8);
    space.set_interrupt_status(false);
    assert_eq!(u32_at(&space, register::COMMAND) >> 16 & 8, 0);
}

#[test]
fn an_own_capability_keeps_its_id_and_read_only_bits() {
    let mut space = full();
    let at = capabilities(&space).last().unwrap().1;
    write(&mut space, at, u32::MAX);
    assert_eq!(u32_at(&space, at), 0xaf04_0009);
}

#[test]
fn it_describes_the_device() {
    let info = full().describe();
    let sizes: Vec<u64> = info.regions.iter().map(|region| region.size).collect();
    assert_eq!(sizes, [0x4000, 0x20, 1 << 34, 0, 0x4000, 0, 0x1_0000, 4096, 0]);
    assert!(!info.regions[region::ROM as usize].writable);
    let counts: Vec<u32> = info.irqs.iter().map(|irq| irq.count).collect();
    assert_eq!(counts, [1, 4, 32, 1, 1]);
    assert!(info.irqs[irq::INTX as usize].automasked);
}

#[test]
fn what_cannot_be_is_refused() {
    let build = |builder: Builder| builder.build().err();
    let new = || Builder::new(identity());
    let memory = |size| Bar::Memory32 { size, prefetchable: false };
    let wide = Bar::Memory64 { size: 0x1000, prefetchable: false };
    let bar = |index| Some(BuildError::Bar { index });
    assert_eq!(build(new().bar(0, memory(0x3000))), bar(0));
    assert_eq!(build(new().bar(0, memory(8))), bar(0));
    assert_eq!(build(new().bar(0, Bar::Io { size: 512 })), bar(0));
    assert_eq!(build(new().bar(6, memory(0x1000))), bar(6));
    assert_eq!(build(new().bar(5, wide)), bar(5));
    assert_eq!(build(new().bar(2, wide).bar(3, memory(16))), bar(3));
    assert_eq!(build(new().bar(1, memory(16)).bar(1, memory(16))), bar(1));
    assert_eq!(build(new().rom(1000)), bar(6));
    assert_eq!(build(new().interrupt_pin(5)), Some(BuildError::Pin));
    assert_eq!(build(new().msi(Msi { vectors: 3 })), Some(BuildError::Msi));
    assert_eq!(build(new().msi(Msi { vectors: 0 })), Some(BuildError::Msi));
    let link = Express { link_speed: 0, link_width: 1 };
    assert_eq!(build(new().express(link)), Some(BuildError::Express));
    let table = |msix| build(new().bar(4, memory(0x2000)).msix(msix));
    assert_eq!(table(Msix::in_bar(4, 256)), None);
    assert_eq!(table(Msix::in_bar(4, 257)), Some(BuildError::Msix));
    assert_eq!(table(Msix::in_bar(3, 1)), Some(BuildError::Msix));
    assert_eq!(table(Msix::in_bar(4, 0)), Some(BuildError::Msix));
    let overlapping = Msix { pba_offset: 8, ..Msix::in_bar(4, 2) };
    assert_eq!(table(overlapping), Some(BuildError::Msix));
    assert_eq!(build(new().capability(&[9], &[0])), Some(BuildError::Capability));
    let long = [9; 100];
    let two = new().capability(&long, &long).capability(&long, &long);
    assert_eq!(build(two), Some(BuildError::Full));
}

proptest! {
    #[test]
    fn no_access_panics_and_read_only_bytes_stay(
        writes in prop::collection::vec((0u64..5000, prop::collection::vec(any::<u8>(), 0..9)), 0..50),
        far in prop_oneof![any::<u64>(), u64::MAX - 8..=u64::MAX],
    ) {
        let mut space = full();
        let fresh = full();
        for (offset, data) in &writes {
            space.write(*offset, data);
        }
        space.write(far, &[0xff; 8]);
        let mut data = [0; 8];
        space.read(far, &mut data);
        prop_assert_eq!(u32_at(&space, register::VENDOR), u32_at(&fresh, register::VENDOR));
        prop_assert_eq!(capabilities(&space), capabilities(&fresh));
        space.reset();
        let (mut a, mut b) = ([0; 4096], [0; 4096]);
        space.read(0, &mut a);
        fresh.read(0, &mut b);
        prop_assert_eq!(a, b);
    }
}

#[test]
fn a_function_level_reset_is_announced_and_told() {
    let link = Express { link_speed: 3, link_width: 16 };
    let mut space = Builder::new(Identity::default()).express(link).build().unwrap();
    let mut first = [0];
    space.read(u64::from(register::CAPABILITIES), &mut first);
    let express = u64::from(first[0]);
    let mut capabilities = [0; 4];
    space.read(express + 4, &mut capabilities);
    assert_ne!(u32::from_le_bytes(capabilities) & 1 << 28, 0, "it is announced");
    assert!(!space.write(express + 8, &0x2810u16.to_le_bytes()).function_reset);
    let changes = space.write(express + 8, &0xa810u16.to_le_bytes());
    assert!(changes.function_reset);
    let mut control = [0; 2];
    space.read(express + 8, &mut control);
    assert_eq!(u16::from_le_bytes(control) & 0x8000, 0, "the bit reads as 0");
}
