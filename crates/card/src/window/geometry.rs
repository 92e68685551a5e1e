//! How an address of the window is taken apart.

use thiserror::Error;

/// Bytes of a word of a table, as a power of two.
pub(super) const WORD_SHIFT: u32 = 3;
/// Bits of a frame's or a table's number in a word.
const NUMBER_BITS: u32 = 32;
/// Most pages of a run, as a power of two: what the word's *size* can say.
const SIZE_MAX: u32 = 31;
/// Most levels of tables.
const LEVELS_MAX: usize = 4;

/// The sizes of a window: powers of two throughout. The default has the two levels of 2^13 words, and
/// the pages of 256 KiB, that the thesis on memory management for Fletcher has (section 5.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WindowGeometry {
    page_bits: u32,
    /// Of the root first.
    level_bits: Vec<u32>,
    physical_bits: u32,
}

/// Why there is no window of such sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum WindowGeometryError {
    /// Levels.
    #[error("a window has 1 to 4 levels of tables, each of 2^1 to 2^31 words")]
    Levels,
    /// Frames.
    #[error("a memory has 2^1 to 2^32 frames, more than a run of the largest tables has pages")]
    Frames,
    /// Tables.
    #[error(
        "a table's number must fit 32 bits: there are too few words in a table for such a memory"
    )]
    Tables,
    /// The window.
    #[error("a window has less than 2^64 bytes")]
    Window,
    /// A walker that holds lines.
    #[error("a walker has two levels of tables, and a line or more, which fit a table")]
    Walker,
}

impl WindowGeometry {
    /// Pages of 2^`page_bits` bytes, tables of 2^`level_bits` words, of the root first, places in the
    /// card's memories of `physical_bits` bits.
    ///
    /// # Errors
    ///
    /// What such a window lacks.
    pub fn new(
        page_bits: u32,
        level_bits: &[u32],
        physical_bits: u32,
    ) -> Result<WindowGeometry, WindowGeometryError> {
        let levels = level_bits.len();
        if levels == 0
            || levels > LEVELS_MAX
            || level_bits.iter().any(|&bits| !(1..32).contains(&bits))
        {
            return Err(WindowGeometryError::Levels);
        }
        let below_root: u32 = level_bits[1..].iter().sum();
        let frame_bits = physical_bits.saturating_sub(page_bits);
        let frames_fit = (1..=NUMBER_BITS).contains(&frame_bits) && physical_bits <= 64;
        if !frames_fit || below_root > SIZE_MAX || below_root >= frame_bits {
            return Err(WindowGeometryError::Frames);
        }
        let table_bits =
            level_bits[1..].iter().map(|bits| physical_bits as i64 - i64::from(bits + WORD_SHIFT));
        if table_bits.clone().any(|bits| !(1..=i64::from(NUMBER_BITS)).contains(&bits))
            || physical_bits <= level_bits[0] + WORD_SHIFT
        {
            return Err(WindowGeometryError::Tables);
        }
        if page_bits + below_root + level_bits[0] >= u64::BITS {
            return Err(WindowGeometryError::Window);
        }
        Ok(WindowGeometry { page_bits, level_bits: level_bits.to_vec(), physical_bits })
    }

    /// Levels of tables.
    pub fn levels(&self) -> usize {
        self.level_bits.len()
    }

    /// Bits of an address within a page.
    pub fn page_bits(&self) -> u32 {
        self.page_bits
    }

    /// Bits of an address within the window.
    pub fn window_bits(&self) -> u32 {
        self.page_bits + self.level_bits.iter().sum::<u32>()
    }

    /// Bits of a place in a memory of the card.
    pub fn physical_bits(&self) -> u32 {
        self.physical_bits
    }

    /// Bits of a frame's number.
    pub(super) fn frame_bits(&self) -> u32 {
        self.physical_bits - self.page_bits
    }

    /// Bits of the number of a table of `level`, 0 for the root's.
    pub(super) fn table_bits(&self, level: usize) -> u32 {
        self.physical_bits - self.level_bits[level] - WORD_SHIFT
    }

    /// The bits of a page's number that the levels below `level` take.
    pub(super) fn bits_below(&self, level: usize) -> u32 {
        self.level_bits[level + 1..].iter().sum()
    }

    /// Where the word of `page` lies in a table of `level`, in bytes from the table's begin.
    pub(super) fn offset_in_table(&self, level: usize, page: u64) -> u64 {
        let index = page >> self.bits_below(level) & ((1 << self.level_bits[level]) - 1);
        index << WORD_SHIFT
    }

    /// Where table `number` of `level` begins.
    pub(super) fn table_address(&self, level: usize, number: u32) -> u64 {
        u64::from(number) << (self.level_bits[level] + WORD_SHIFT)
    }
}

impl Default for WindowGeometry {
    fn default() -> WindowGeometry {
        WindowGeometry { page_bits: 18, level_bits: vec![13, 13], physical_bits: 40 }
    }
}

/// Bytes of addresses with which every allocation finds room, however the space is fragmented
/// (equation 5.1 of the thesis): at most `allocations` at a time, of at most `allocation_bytes` each and
/// `total_bytes` together. The next power of two, as windows are; `None` if it has more than 64 bits.
pub fn virtual_bytes_needed(
    allocation_bytes: u64,
    allocations: u64,
    total_bytes: u64,
) -> Option<u64> {
    let gaps = allocation_bytes.checked_mul(allocations.checked_add(1)?)?;
    gaps.checked_add(total_bytes)?.checked_next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_thesis_needs_8_tib() {
        // 4168 GiB before it is rounded.
        assert_eq!(virtual_bytes_needed(8 * GIB, 512, 64 * GIB), Some(8192 * GIB));
        assert_eq!(virtual_bytes_needed(8 * GIB, 512, 64 * GIB + 4024 * GIB), Some(8192 * GIB));
        assert_eq!(
            virtual_bytes_needed(8 * GIB, 512, 64 * GIB + 4024 * GIB + 1),
            Some(16384 * GIB)
        );
        assert_eq!(virtual_bytes_needed(1, u64::MAX, 0), None);
        assert_eq!(virtual_bytes_needed(1 << 32, 1 << 32, 0), None);
        assert_eq!(virtual_bytes_needed(1, 1, u64::MAX), None);
        assert_eq!(virtual_bytes_needed(1 << 62, 1, 1 << 62), None);
    }

    #[test]
    fn sizes_that_no_word_can_say_are_refused() {
        use WindowGeometryError::{Frames, Levels, Tables, Window};
        let new =
            |page, levels: &[u32], physical| WindowGeometry::new(page, levels, physical).map(drop);
        assert_eq!(new(12, &[9, 9, 9, 9], 40), Ok(()));
        assert_eq!(
            new(12, &[9, 9, 9, 9], 39),
            Err(Frames),
            "a run of the root is as large as the memory"
        );
        assert_eq!(new(18, &[13, 13], 40), Ok(()));
        assert_eq!(new(12, &[9, 9, 9, 5], 40), Ok(()));
        assert_eq!(new(12, &[9], 40), Ok(()));
        assert_eq!(new(12, &[], 40), Err(Levels));
        assert_eq!(new(12, &[2; 5], 40), Err(Levels));
        assert_eq!(new(12, &[9, 0], 40), Err(Levels));
        assert_eq!(new(12, &[9, 32], 60), Err(Levels));
        assert_eq!(new(12, &[9, 9], 12), Err(Frames));
        assert_eq!(new(12, &[9, 9], 45), Err(Frames));
        assert_eq!(new(12, &[9, 9], 21), Err(Frames));
        assert_eq!(new(12, &[9, 2], 40), Err(Tables));
        assert_eq!(new(32, &[31, 31], 64), Err(Window));
        assert_eq!(new(12, &[30], 30), Err(Tables));
    }

    #[test]
    fn an_address_is_taken_apart_from_the_root_down() {
        let geometry = WindowGeometry::new(12, &[2, 3, 4], 34).unwrap();
        let page = 0b11 << 7 | 0b010 << 4 | 0b1001;
        assert_eq!(geometry.window_bits(), 21);
        let offsets = [0, 1, 2].map(|level| geometry.offset_in_table(level, page));
        assert_eq!(offsets, [0b11 * 8, 0b010 * 8, 0b1001 * 8]);
        assert_eq!((geometry.table_address(1, 3), geometry.table_address(2, 3)), (3 * 64, 3 * 128));
        assert_eq!((geometry.bits_below(0), geometry.bits_below(2)), (7, 0));
        assert_eq!(WindowGeometry::default().window_bits(), 44);
    }
}
