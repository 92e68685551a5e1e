use proptest::prelude::*;

use super::*;

/// Any frame, within limits.
pub(crate) fn any_frame() -> impl Strategy<Value = Frame<Vec<u8>>> {
    let data = || proptest::collection::vec(any::<u8>(), 0..300);
    let ring = || (0..4usize).prop_map(|at| Ring::ALL[at]);
    let action = (0..4usize).prop_map(|at| IrqAction::ALL[at]);
    let (number, word, short) = (any::<u64>, any::<u32>, || 0..=READ_BYTES_MAX);
    let posted =
        prop_oneof![
            (word(), number(), data()).prop_map(|(region, offset, data)| Frame::RegionWrite {
                region,
                offset,
                data
            }),
            (number(), data()).prop_map(|(offset, data)| Frame::MemoryWrite { offset, data }),
            (number(), number(), any::<u8>())
                .prop_map(|(offset, bytes, value)| Frame::MemoryFill { offset, bytes, value }),
            (number(), data()).prop_map(|(address, data)| Frame::DmaWrite { address, data }),
            (word(), word()).prop_map(|(index, vector)| Frame::Interrupt { index, vector }),
            (action, word(), word(), word()).prop_map(|(action, index, start, count)| {
                Frame::IrqControl { action, index, start, count }
            }),
            (number(), number(), 0..4u32).prop_map(|(address, bytes, bits)| Frame::DmaMap {
                address,
                bytes,
                rights: MapRights::decode(bits).unwrap()
            }),
            (ring(), word(), data()).prop_map(|(ring, first, data)| Frame::RingEntries {
                ring,
                first,
                data
            }),
            (ring(), word()).prop_map(|(ring, index)| Frame::RingConsumed { ring, index }),
            ring().prop_map(|ring| Frame::RingWaits { ring }),
            (any::<u16>(), word(), number(), number()).prop_map(|(kind, errno, address, bytes)| {
                Frame::Refused { kind, errno, address, bytes }
            }),
            Just(Frame::Return),
            (word(), data()).prop_map(|(peer, data)| Frame::PeerAdmit { peer, data }),
            (word(), data()).prop_map(|(peer, data)| Frame::PeerReach { peer, data }),
            (word(), number(), number(), short()).prop_map(|(peer, transfer, offset, bytes)| {
                Frame::PeerLend { peer, transfer, offset, bytes }
            }),
            (word(), number()).prop_map(|(peer, transfer)| Frame::PeerEnd { peer, transfer }),
        ];
    let others = prop_oneof![
        (word(), number(), short()).prop_map(|(region, offset, bytes)| Frame::RegionRead {
            region,
            offset,
            bytes
        }),
        (number(), short()).prop_map(|(offset, bytes)| Frame::MemoryRead { offset, bytes }),
        (number(), short()).prop_map(|(address, bytes)| Frame::DmaRead { address, bytes }),
        (number(), number()).prop_map(|(address, bytes)| Frame::DmaUnmap { address, bytes }),
        Just(Frame::Reset),
        Just(Frame::Barrier),
        Just(Frame::Describe),
        word().prop_map(|peer| Frame::PeerReady { peer }),
        (word(), number(), number(), short()).prop_map(|(peer, transfer, offset, bytes)| {
            Frame::PeerFetch { peer, transfer, offset, bytes }
        }),
        (number(), short()).prop_map(|(transfer, bytes)| Frame::PeerRead { transfer, bytes }),
        (number(), number(), short()).prop_map(|(command, offset, bytes)| {
            Frame::MemoryReadBehind { command, offset, bytes }
        }),
        (word(), any::<bool>(), data()).prop_map(|(offset, last, data)| Frame::Data {
            offset,
            last,
            data
        }),
        Just(Frame::Done),
        word().prop_map(|errno| Frame::Failed { errno }),
    ];
    prop_oneof![posted, others]
}

fn bytes_of(frame: &Frame<Vec<u8>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.put_fields(&mut bytes);
    assert_eq!(bytes.len(), frame.kind().field_bytes(), "{frame:?}");
    assert!(bytes.len() <= FIELD_BYTES_MAX);
    assert_eq!(frame.data().is_some(), frame.kind().has_data());
    bytes.extend_from_slice(frame.data().map_or(&[], Vec::as_slice));
    bytes
}

proptest! {
    #[test]
    fn a_frame_reads_back(frame in any_frame()) {
        let bytes = bytes_of(&frame);
        let back = Frame::decode(frame.kind(), &bytes).unwrap();
        let mut again = Vec::new();
        back.put_fields(&mut again);
        again.extend_from_slice(back.data().copied().unwrap_or_default());
        prop_assert_eq!(&again, &bytes);
        prop_assert_eq!(back.kind(), frame.kind());
        prop_assert_eq!(back.data().map(|data| data.to_vec()), frame.data().cloned());
    }

    #[test]
    fn any_bytes_are_a_frame_or_refused(
        kind in 0..Kind::ALL.len(),
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let kind = Kind::ALL[kind];
        if let Ok(frame) = Frame::decode(kind, &bytes) {
            let mut again = Vec::new();
            frame.put_fields(&mut again);
            again.extend_from_slice(frame.data().copied().unwrap_or_default());
            prop_assert_eq!(again, bytes, "two ways to write one frame");
        }
    }

    #[test]
    fn a_frame_with_bytes_missing_or_too_many_is_none(frame in any_frame()) {
        let bytes = bytes_of(&frame);
        for cut in 0..frame.kind().field_bytes() {
            prop_assert!(Frame::decode(frame.kind(), &bytes[..cut]).is_err());
        }
        if !frame.kind().has_data() {
            let longer = [&bytes[..], &[0]].concat();
            prop_assert!(Frame::decode(frame.kind(), &longer).is_err());
        }
    }
}

#[test]
fn what_is_too_long_is_refused() {
    let long = Frame::MemoryWrite { offset: 0, data: vec![0; DATA_BYTES_MAX + 1] };
    assert!(Frame::decode(Kind::MemoryWrite, &bytes_of(&long)).is_err());
    let read = Frame::MemoryRead { offset: 0, bytes: READ_BYTES_MAX + 1 };
    assert!(Frame::decode(Kind::MemoryRead, &bytes_of(&read)).is_err());
}
