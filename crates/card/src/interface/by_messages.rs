//! What a card served over vfio-user and a client without descriptors say to one another beyond the
//! protocol (`docs/card-interface.md`, section 3).

/// The capability in VERSION, `true`, by which a client wants interrupts as messages. A card that can
/// do that says the same, and then tells of each interrupt that has no event descriptor.
pub const INTERRUPTS_CAPABILITY: &str = "farside_interrupts";

/// The number of the message by which a card tells of an interrupt, without a reply: the first that
/// vfio-user leaves to users.
pub const INTERRUPT: u16 = 0x4000;

/// Bytes of it: the type of the interrupt, as in DEVICE_SET_IRQS, and the vector.
pub const INTERRUPT_BYTES: usize = 8;

/// The bytes of an [`INTERRUPT`].
pub fn interrupt_to_bytes(index: u32, vector: u32) -> [u8; INTERRUPT_BYTES] {
    (u64::from(vector) << 32 | u64::from(index)).to_le_bytes()
}

/// Type and vector of an [`INTERRUPT`], if it is one.
pub fn interrupt_from_bytes(bytes: &[u8]) -> Option<(u32, u32)> {
    let word = u64::from_le_bytes(bytes.try_into().ok()?);
    Some((word as u32, (word >> 32) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_reads_back_and_other_lengths_are_none() {
        let bytes = interrupt_to_bytes(2, 3);
        assert_eq!(bytes, [2, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(interrupt_from_bytes(&bytes), Some((2, 3)));
        for wrong in [0, 4, 7] {
            assert_eq!(interrupt_from_bytes(&bytes[..wrong]), None);
        }
        assert_eq!(interrupt_from_bytes(&[0; 9]), None);
    }
}
