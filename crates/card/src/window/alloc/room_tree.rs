//! Which region has room: a tree of maxima.

/// Children of a node: compared at once in hardware.
const CHILDREN: usize = 8;

/// A value for each region, and above them the maxima of each eight. The first region with at least so much
/// is found in one step a level.
#[derive(Clone, Debug)]
pub(super) struct RoomTree {
    /// The regions' own values first; the last level has at most eight.
    levels: Vec<Vec<u64>>,
}

impl RoomTree {
    /// Of `regions`, none of which has room.
    pub(super) fn new(regions: usize) -> RoomTree {
        let mut levels = vec![vec![0; regions]];
        let mut len = regions;
        while len > CHILDREN {
            len = len.div_ceil(CHILDREN);
            levels.push(vec![0; len]);
        }
        RoomTree { levels }
    }

    /// What is said of a region now.
    pub(super) fn set(&mut self, region: usize, room: u64) {
        self.levels[0][region] = room;
        let mut index = region;
        for level in 1..self.levels.len() {
            index /= CHILDREN;
            self.levels[level][index] = children(&self.levels[level - 1], index).max().unwrap_or(0);
        }
    }

    pub(super) fn get(&self, region: usize) -> u64 {
        self.levels[0][region]
    }

    /// The first region with at least `room`, which is not 0.
    pub(super) fn first(&self, room: u64) -> Option<usize> {
        let mut index = 0;
        for level in self.levels.iter().rev() {
            let within = children(level, index).position(|has| has >= room)?;
            index = index * CHILDREN + within;
        }
        Some(index)
    }
}

fn children(level: &[u64], node: usize) -> impl Iterator<Item = u64> {
    level.iter().skip(node * CHILDREN).take(CHILDREN).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_region_with_room_is_found() {
        for regions in [1, 7, 8, 9, 64, 65, 700] {
            let mut tree = RoomTree::new(regions);
            let mut plain = vec![0; regions];
            for step in 0..2000u64 {
                let region = (step * 7919 + step / 3) as usize % regions;
                let room = step * 31 % 19;
                tree.set(region, room);
                plain[region] = room;
                let wanted = 1 + step % 20;
                let expected = plain.iter().position(|&has| has >= wanted);
                assert_eq!(tree.first(wanted), expected, "{regions} regions");
                assert_eq!(tree.get(region), room);
            }
        }
    }
}
