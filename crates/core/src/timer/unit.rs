//! One unit of the timer log: 52 bytes that lead from a slot of the wheel to a message of the
//! commit log (spec: store §16.3).

use crate::codec::cursor::Cursor;
use crate::codec::record::MAGIC_BLANK;

/// Bytes of a unit.
pub const UNIT_SIZE: usize = 52;
const UNIT_BYTES: u32 = 52;
const _: () = assert!(UNIT_SIZE == UNIT_BYTES as usize);
/// Bytes of the filler that closes a file of the timer log.
pub(super) const BLANK_SIZE: usize = 16;

const PRESENT: i32 = 1;
const ROLL: i32 = 2;
const DELETE: i32 = 4;

/// One waiting message, or one request to cancel one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Position of the unit that entered the same slot before this one; −1 for the first.
    pub previous: i64,
    /// Whether the message only waits for its next turn: its time is beyond the window.
    pub rolls: bool,
    /// Whether the message cancels another one.
    pub cancels: bool,
    /// The wheel's time when the unit was written, Unix milliseconds.
    pub written_ms: i64,
    /// From then until the slot fires, milliseconds.
    pub wait_ms: i32,
    /// Physical offset of the message.
    pub physical_offset: i64,
    /// Bytes of the message's record.
    pub size: i32,
    /// Java's hash of the topic that the message is for.
    pub topic_hash: i32,
}

impl Unit {
    /// The time of the slot that the unit belongs to, Unix milliseconds.
    pub fn slot_ms(&self) -> i64 {
        self.written_ms.saturating_add(i64::from(self.wait_ms))
    }

    /// The bytes on disk.
    pub fn encode(&self) -> [u8; UNIT_SIZE] {
        let mut magic = PRESENT;
        if self.rolls {
            magic |= ROLL;
        }
        if self.cancels {
            magic |= DELETE;
        }
        let mut bytes = [0; UNIT_SIZE];
        let parts: [&[u8]; 9] = [
            &UNIT_BYTES.to_be_bytes(),
            &self.previous.to_be_bytes(),
            &magic.to_be_bytes(),
            &self.written_ms.to_be_bytes(),
            &self.wait_ms.to_be_bytes(),
            &self.physical_offset.to_be_bytes(),
            &self.size.to_be_bytes(),
            &self.topic_hash.to_be_bytes(),
            &[0; 8],
        ];
        let mut rest = bytes.as_mut_slice();
        for part in parts {
            let (place, behind) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = behind;
        }
        bytes
    }

    /// Reads a unit; `None` for bytes that are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Cursor::new(bytes.get(..UNIT_SIZE)?);
        let size = from.u32()?;
        let previous = from.i64()?;
        let magic = from.i32()?;
        let unit = Self {
            previous,
            rolls: magic & ROLL != 0,
            cancels: magic & DELETE != 0,
            written_ms: from.i64()?,
            wait_ms: from.i32()?,
            physical_offset: from.i64()?,
            size: from.i32()?,
            topic_hash: from.i32()?,
        };
        let flags = PRESENT | ROLL | DELETE;
        let is_unit = size == UNIT_BYTES
            && magic & PRESENT != 0
            && magic & !flags == 0
            && previous >= -1
            && unit.physical_offset >= 0
            && unit.size > 0;
        is_unit.then_some(unit)
    }
}

/// The filler that closes a file with `remaining` bytes left.
pub(super) fn blank(remaining: u32) -> [u8; BLANK_SIZE] {
    let mut bytes = [0; BLANK_SIZE];
    let (size, rest) = bytes.split_at_mut(4);
    size.copy_from_slice(&remaining.to_be_bytes());
    let (_, magic) = rest.split_at_mut(8);
    magic.copy_from_slice(&MAGIC_BLANK.to_be_bytes());
    bytes
}

/// Whether a filler stands here.
pub(super) fn is_blank(bytes: &[u8]) -> bool {
    bytes.get(12..BLANK_SIZE) == Some(&MAGIC_BLANK.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::{blank, is_blank, Unit, UNIT_SIZE};

    /// What Java RocketMQ 5.5.0 wrote for a message with a delay of three seconds.
    const JAVA: [u8; UNIT_SIZE] = [
        0, 0, 0, 52, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 1, 0, 0, 1, 161, 251, 214,
        201, 192, 0, 0, 11, 184, 0, 0, 0, 0, 0, 0, 29, 50, 0, 0, 1, 99, 247, 117, 135, 156, 0, 0,
        0, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn unit_of_java_decodes_and_encodes_to_the_same_bytes() {
        let unit = Unit::decode(&JAVA).expect("a unit");
        assert_eq!(
            (unit.previous, unit.rolls, unit.cancels),
            (-1, false, false)
        );
        assert_eq!(
            (unit.wait_ms, unit.physical_offset, unit.size),
            (3000, 7474, 355)
        );
        assert_eq!(unit.encode(), JAVA);
    }

    #[test]
    fn kinds_of_units_keep_their_numbers() {
        let unit = Unit::decode(&JAVA).expect("a unit");
        for (rolls, cancels, magic) in [
            (false, false, 1),
            (true, false, 3),
            (false, true, 5),
            (true, true, 7),
        ] {
            let kind = Unit {
                rolls,
                cancels,
                previous: 0,
                ..unit
            };
            let bytes = kind.encode();
            assert_eq!(bytes[12..16], [0, 0, 0, magic]);
            assert_eq!(Unit::decode(&bytes), Some(kind));
        }
        assert_eq!(unit.slot_ms(), unit.written_ms + 3000);
    }

    #[test]
    fn unit_with_wrong_fields_is_none() {
        // Not present, a flag that nobody knows, a negative position, or offset, or size.
        for (at, byte) in [
            (3, 51),
            (15, 0),
            (15, 2),
            (15, 9),
            (4, 128),
            (11, 254),
            (28, 128),
            (36, 128),
        ] {
            let mut bytes = JAVA;
            bytes[at] = byte;
            assert_eq!(Unit::decode(&bytes), None, "byte {at}");
        }
        let mut first = Unit::decode(&JAVA).expect("a unit");
        first.physical_offset = 0;
        first.size = 1;
        assert_eq!(Unit::decode(&first.encode()), Some(first));
        first.size = 0;
        assert_eq!(Unit::decode(&first.encode()), None);
        assert_eq!(Unit::decode(&JAVA[..51]), None);
        assert_eq!(Unit::decode(&[0; UNIT_SIZE]), None);
    }

    #[test]
    fn blank_is_recognized() {
        assert!(is_blank(&blank(100)));
        assert!(!is_blank(&JAVA));
    }
}
