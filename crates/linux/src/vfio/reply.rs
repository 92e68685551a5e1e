//! Replies of the kernel that end in a chain of capabilities.
//!
//! Owns the growing of the buffer and the walk along the chain, both bounded: a kernel that answers
//! nonsense gives an error or no capability, never an endless loop.

use bytemuck::AnyBitPattern;

use super::abi::CapHeader;

/// Longest reply that is read; real ones have hundreds of bytes.
pub(super) const REPLY_BYTES_MAX: usize = 64 << 10;

const HEADER_BYTES: usize = size_of::<CapHeader>();

/// The structure `T` and the capabilities that follow.
#[derive(Debug)]
pub(super) struct Reply<T> {
    pub(super) fixed: T,
    bytes: Vec<u8>,
}

impl<T: AnyBitPattern> Reply<T> {
    /// `None` if the bytes are fewer than a `T`.
    pub(super) fn new(bytes: Vec<u8>) -> Option<Reply<T>> {
        let fixed = bytemuck::pod_read_unaligned(bytes.get(..size_of::<T>())?);
        Some(Reply { fixed, bytes })
    }

    /// What follows the header of capability `id` in the chain that begins at byte `first`, up to
    /// the end of the reply: capabilities do not say how long they are.
    pub(super) fn capability(&self, first: u32, id: u16) -> Option<&[u8]> {
        let mut at = first as usize;
        for _ in 0..self.bytes.len() / HEADER_BYTES {
            if at < size_of::<T>() {
                return None;
            }
            let bytes = self.bytes.get(at..)?;
            let header: CapHeader = bytemuck::pod_read_unaligned(bytes.get(..HEADER_BYTES)?);
            if header.id == id {
                return Some(&bytes[HEADER_BYTES..]);
            }
            at = header.next as usize;
        }
        None
    }
}

/// A count (32 bits, then 32 reserved), and as many pairs of 64 bits: the form of every list among
/// the capabilities. `None` if the list is cut short.
pub(super) fn pairs(body: &[u8]) -> Option<Vec<(u64, u64)>> {
    let count: u32 = bytemuck::pod_read_unaligned(body.get(..4)?);
    let list = body.get(8..)?;
    let bytes = (count as usize).checked_mul(16)?;
    let pair = |pair: &[u8]| {
        (bytemuck::pod_read_unaligned(&pair[..8]), bytemuck::pod_read_unaligned(&pair[8..]))
    };
    Some(list.get(..bytes)?.chunks_exact(16).map(pair).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXED: usize = 8;

    /// A reply with capabilities (id, next, body) one after the other.
    fn reply(capabilities: &[(u16, u32, &[u8])]) -> Reply<u64> {
        let mut bytes = vec![0; FIXED];
        for &(id, next, body) in capabilities {
            bytes.extend(bytemuck::bytes_of(&CapHeader { id, version: 1, next }));
            bytes.extend(body);
        }
        Reply::new(bytes).unwrap()
    }

    #[test]
    fn a_capability_is_found_along_the_chain() {
        let reply = reply(&[(7, 20, &[1, 2, 3, 4]), (9, 0, &[5, 6])]);
        assert_eq!(reply.capability(8, 9), Some(&[5, 6][..]));
        assert_eq!(reply.capability(8, 7).unwrap()[..4], [1, 2, 3, 4]);
        assert_eq!(reply.capability(8, 1), None);
    }

    #[test]
    fn a_chain_that_bites_its_tail_or_leaves_the_reply_ends() {
        let chain = reply(&[(7, 16, &[]), (9, 8, &[])]);
        assert_eq!(chain.capability(8, 1), None);
        for next in [1, 25, u32::MAX] {
            assert_eq!(reply(&[(7, next, &[])]).capability(8, 1), None);
        }
        assert!(Reply::<u64>::new(vec![0; 7]).is_none());
    }

    #[test]
    fn a_list_is_read_whole_or_not_at_all() {
        let mut body = vec![2, 0, 0, 0, 0, 0, 0, 0];
        for word in [1u64, 2, 3, 4] {
            body.extend(word.to_ne_bytes());
        }
        assert_eq!(pairs(&body), Some(vec![(1, 2), (3, 4)]));
        assert_eq!(pairs(&body[..body.len() - 1]), None);
        body[..4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(pairs(&body), None);
    }
}
