//! Checkpoints from a disk: what was read is written again alike.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roquet_core::recovery::checkpoint::{Checkpoint, CheckpointFile};
use roquet_core_fuzz::common::sim_disk::SimDisk;
use std::path::Path;

const OURS: std::ops::Range<usize> = 64..96;

fn read(data: &[u8]) {
    let found = Checkpoint::decode(data);
    assert_eq!(Checkpoint::decode(&found.encode()), found);
    let disk = SimDisk::new();
    disk.plant(Path::new("/s/checkpoint"), data);
    let (file, there) = CheckpointFile::open(&disk, Path::new("/s")).expect("any file will do");
    assert!(there.is_none_or(|there| there == found));
    file.write(&found).expect("a file that has room");
    file.sync().expect("a disk that works");
}

fuzz_target!(|data: &[u8]| {
    read(data);
    // With a sum that fits, our block counts.
    if let Some(block) = data.get(OURS) {
        let sum = u64::from(crc32fast::hash(block)).to_be_bytes();
        let mut valid = data.to_vec();
        valid.truncate(OURS.end);
        valid.extend(sum);
        read(&valid);
    }
});
