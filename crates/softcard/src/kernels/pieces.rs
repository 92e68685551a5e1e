//! Ranges in pieces: how a kernel walks over more than it should hold at once.

use std::ops::Range;

use farside_types::PAGE_SIZE;

/// Bytes, of all ranges together, that a kernel takes by one `with`. Larger pieces move no faster,
/// and whoever wants one of their pages waits longer.
pub const PIECE_BYTES: usize = 2 << 20;

/// Cuts `len` items into pieces for [`crate::KernelContext::with`]. An item takes `item_bytes`
/// bytes, of all ranges together. Pieces have at most [`PIECE_BYTES`] bytes, but at least one item.
pub fn pieces(len: usize, item_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let fit = (PIECE_BYTES / item_bytes.max(1)).max(1);
    // Whole pages of each range where they fit, so that no page is asked for twice.
    let step = if fit > PAGE_SIZE { fit - fit % PAGE_SIZE } else { fit };
    (0..len).step_by(step).map(move |from| from..len.min(from.saturating_add(step)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_in_order_and_are_small() {
        for (len, bytes) in [(0, 8), (1, 8), (1 << 20, 8), ((1 << 20) + 1, 12), (5, 3 << 20)] {
            let mut next = 0;
            for piece in pieces(len, bytes) {
                assert_eq!(piece.start, next, "{len} items of {bytes} bytes");
                assert!(piece.len() == 1 || piece.len() * bytes <= PIECE_BYTES);
                next = piece.end;
            }
            assert_eq!(next, len, "{len} items of {bytes} bytes");
        }
        assert_eq!(pieces(1 << 20, 8).count(), 4);
        assert_eq!(pieces(10, 0).collect::<Vec<_>>(), vec![0..10; 1]);
    }
}
