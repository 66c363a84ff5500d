//! Consistent hashing: a routing key keeps its server while other servers come and go.

use std::collections::BTreeMap;

/// Points of each server on the ring: enough that shares differ by some ten per cent.
const POINTS: u64 = 64;

/// The servers of one type by points on a ring of 64-bit hashes.
#[derive(Debug, Default)]
pub(super) struct Ring {
    points: BTreeMap<u64, i32>,
}

impl Ring {
    /// Puts a server on the ring.
    pub(super) fn add(&mut self, id: i32) {
        for point in points(id) {
            // Two servers on one point: the smaller id has it, whoever came first.
            self.points
                .entry(point)
                .and_modify(|owner| *owner = (*owner).min(id))
                .or_insert(id);
        }
    }

    /// Takes a server off the ring.
    pub(super) fn remove(&mut self, id: i32) {
        for point in points(id) {
            if self.points.get(&point) == Some(&id) {
                self.points.remove(&point);
            }
        }
    }

    /// The server of a routing key: the first point at or behind the key's hash.
    pub(super) fn find(&self, key: &[u8]) -> Option<i32> {
        let at = hash(key);
        self.points
            .range(at..)
            .next()
            .or_else(|| self.points.first_key_value())
            .map(|(_, id)| *id)
    }

    /// Whether no server is on the ring.
    pub(super) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }
}

fn points(id: i32) -> impl Iterator<Item = u64> {
    let id = u64::from(id.cast_unsigned());
    (0..POINTS).map(move |point| mix((id << 32) | point))
}

/// FNV-1a, its bits mixed once more: neighbouring keys must land far apart.
fn hash(key: &[u8]) -> u64 {
    let folded = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mix(folded)
}

fn mix(mut value: u64) -> u64 {
    value ^= value >> 33;
    value = value.wrapping_mul(0xff51_afd7_ed55_8ccd);
    value ^= value >> 33;
    value = value.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ (value >> 33)
}

#[cfg(test)]
mod tests {
    use super::Ring;

    #[test]
    fn a_key_keeps_its_server_unless_that_one_leaves() {
        let mut ring = Ring::default();
        for id in 1..=8 {
            ring.add(id);
        }
        let keys: Vec<String> = (0..4000).map(|key| format!("player-{key}")).collect();
        let before: Vec<_> = keys.iter().map(|key| ring.find(key.as_bytes())).collect();
        ring.remove(3);
        let mut moved = 0;
        for (key, owner) in keys.iter().zip(&before) {
            let now = ring.find(key.as_bytes());
            if *owner == Some(3) {
                assert_ne!(now, Some(3));
                moved += 1;
            } else {
                assert_eq!(now, *owner);
            }
        }
        assert!((200..1000).contains(&moved), "{moved} of 4000 moved");
        ring.add(3);
        let after: Vec<_> = keys.iter().map(|key| ring.find(key.as_bytes())).collect();
        assert_eq!(after, before);
    }

    #[test]
    fn an_empty_ring_finds_nobody() {
        let mut ring = Ring::default();
        assert_eq!(ring.find(b"key"), None);
        ring.add(7);
        assert_eq!(ring.find(b"key"), Some(7));
        ring.remove(7);
        assert!(ring.is_empty());
    }
}
