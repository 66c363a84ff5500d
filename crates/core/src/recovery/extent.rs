//! How far a record reaches that may be unfinished or damaged: by its lengths alone.

use crate::codec::host;
use crate::codec::record::{self, MAGIC_V1, MAGIC_V2, SYS_BORN_HOST_V6, SYS_STORE_HOST_V6};

const PHYSICAL_OFFSET_AT: usize = 28;
const SYS_FLAG_AT: usize = 36;
/// Bytes in front of the body, the two hosts apart.
const HEAD_SIZE: usize = 72;

/// The size of the record at log offset `at`, of which `bytes` has the front; `None` when its
/// lengths do not agree as far as they were written.
///
/// What lies inside these bytes is content. It may hold whatever a producer likes, records too, and
/// says nothing about the log.
pub(crate) fn extent(bytes: &[u8], at: u64) -> Option<u32> {
    let size = number(bytes, 0)?;
    let magic = number(bytes, 4)?;
    let offset = bytes.get(PHYSICAL_OFFSET_AT..)?.first_chunk::<8>()?;
    if (magic != MAGIC_V1 && magic != MAGIC_V2) || u64::from_be_bytes(*offset) != at {
        return None;
    }
    let whole = bytes.get(..size as usize)?;
    let flags = number(bytes, SYS_FLAG_AT)?.cast_signed();
    let hosts = [SYS_BORN_HOST_V6, SYS_STORE_HOST_V6].map(|bit| record::host_size(flags, bit));
    let body_at = HEAD_SIZE + hosts.iter().sum::<usize>();
    let body_size = number(bytes, body_at - 4)? as usize;
    let behind = whole.get(body_at..)?.get(body_size..)?;
    let (topic_size, behind) = match magic {
        MAGIC_V1 => behind
            .split_first_chunk::<1>()
            .map(|(it, rest)| (usize::from(it[0]), rest))?,
        _ => behind
            .split_first_chunk::<2>()
            .map(|(it, rest)| (usize::from(u16::from_be_bytes(*it)), rest))?,
    };
    if topic_size == 0 {
        // Every record has a topic: nothing was written from here on.
        return Some(size);
    }
    let (properties_size, left) = behind.get(topic_size..)?.split_first_chunk::<2>()?;
    let told = usize::from(u16::from_be_bytes(*properties_size));
    let fits = told == left.len() || told == 0 || told == left.len() & 0xFF00;
    fits.then_some(size)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*four))
}

const _: () = assert!(HEAD_SIZE + 2 * host::V4_SIZE + 3 == record::RECORD_SIZE_MIN);

#[cfg(test)]
mod tests {
    use super::extent;
    use crate::codec::record::{self, NewRecord};

    fn made(topic: &[u8], host: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let new = NewRecord {
            topic,
            queue_id: 1,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 1,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: b"body",
            properties: &[b'p'; 300],
        };
        record::encode(&new, &mut bytes).unwrap();
        record::patch(&mut bytes, 7, 4096, 9);
        bytes
    }

    #[test]
    fn extent_of_a_record_cut_anywhere_behind_its_body_length_is_its_size() {
        for (topic, host) in [(&[b't'; 9][..], &[1; 8][..]), (&[b't'; 200], &[1; 20])] {
            let whole = made(topic, host);
            let size = u32::try_from(whole.len()).unwrap();
            let head = 72 + 2 * host.len();
            for written in head..=whole.len() {
                let mut torn = whole[..written].to_vec();
                torn.resize(whole.len() + 50, 0);
                assert_eq!(extent(&torn, 4096), Some(size), "{written}");
                assert_eq!(extent(&torn, 4097), None);
            }
        }
    }

    #[test]
    fn extent_of_a_record_whose_size_is_wrong_is_none() {
        let whole = made(b"topic", &[1; 8]);
        let size = u32::try_from(whole.len()).unwrap();
        for wrong in [size - 1, size + 1, size + 200, 0, u32::MAX] {
            let mut bytes = whole.clone();
            bytes.resize(whole.len() + 500, 0);
            bytes[..4].copy_from_slice(&wrong.to_be_bytes());
            assert_eq!(extent(&bytes, 4096), None, "{wrong}");
        }
    }
}
