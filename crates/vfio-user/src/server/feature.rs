//! DEVICE_FEATURE: what a device can do besides, by number.

use super::commands::Item;
use super::event::Body;
use super::{Errno, Message, OTHER_REPLY_BYTES, Restore, Server};
use crate::device::Feature;
use crate::wire::{FEATURE_GET, FEATURE_MASK, FEATURE_PROBE, FEATURE_SET, FEATURE_SIZE, u32_at};

impl Server {
    /// A probe is answered here. As Linux does it: a feature that the device does not have is ENOTTY,
    /// one that it has and not in this way is EINVAL.
    pub(super) fn device_feature(&mut self, message: &Message) -> Result<Option<Item>, Errno> {
        let payload = self.payload(message, FEATURE_SIZE)?;
        let (room, flags) = (u32_at(payload, 0), u32_at(payload, 4));
        let operation = flags & !FEATURE_MASK;
        if (room as usize) < FEATURE_SIZE || payload.len() > FEATURE_SIZE + OTHER_REPLY_BYTES {
            return Err(Errno::INVAL);
        }
        let number = (flags & FEATURE_MASK) as u16;
        let known = self.info.features.iter().find(|feature| feature.number == number);
        let feature = *known.ok_or(Errno::NOTTY)?;
        match operation {
            FEATURE_GET if feature.readable => {
                let room = room - FEATURE_SIZE as u32;
                let body = Body::FeatureGet { flags, room };
                let token = Server::token(&message.header, body, Restore::Nothing);
                Ok(Some(Item::FeatureGet { token, feature: number, room }))
            }
            FEATURE_SET if feature.writable => {
                let data = message.payload.start + FEATURE_SIZE..message.payload.end;
                let body = Body::FeatureSet { payload: payload.to_vec() };
                let token = Server::token(&message.header, body, Restore::Nothing);
                Ok(Some(Item::FeatureSet { token, feature: number, data }))
            }
            _ if operation & FEATURE_PROBE != 0 && can(&feature, operation & !FEATURE_PROBE) => {
                let echo = payload.to_vec();
                self.answer(message, &[&echo], Vec::new());
                Ok(None)
            }
            _ => Err(Errno::INVAL),
        }
    }
}

/// Whether a feature has all of these operations, and they exist.
fn can(feature: &Feature, operations: u32) -> bool {
    let allowed = [(feature.readable, FEATURE_GET), (feature.writable, FEATURE_SET)];
    let allowed = allowed.iter().filter(|(can, _)| *can).fold(0, |all, (_, flag)| all | flag);
    operations & !allowed == 0
}
