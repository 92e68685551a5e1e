//! What hosts say of themselves as others pass it on: strict, with every length bounded.

use farside_lease::DeviceName;

use super::{DEVICES_MAX, Published};
use crate::proto::{Device, HostRecord};

/// Bytes of a text in a record, at most.
const TEXT_MAX: usize = 512;

/// Whether a record has the lengths that one can have.
pub(super) fn is_sound(record: &HostRecord) -> bool {
    let is_device = |device: &Device| {
        DeviceName::new(&device.name).is_ok()
            && [&device.description, &device.holder, &device.why]
                .iter()
                .all(|text| text.len() <= TEXT_MAX)
    };
    record.address.len() <= TEXT_MAX
        && record.devices.len() <= DEVICES_MAX
        && record.devices.iter().all(is_device)
}

/// About how much memory it takes, in bytes.
pub(super) fn weight(said: &Published) -> usize {
    let device = |device: &Device| {
        let texts = [&device.name, &device.description, &device.holder, &device.why];
        size_of::<Device>() + texts.iter().map(|text| text.len()).sum::<usize>()
    };
    said.address.len() + said.devices.iter().map(device).sum::<usize>()
}
