//! Notes beside the checkpoint, with a sum that fits: half a row is no row.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roquet_core::recovery::deleted::Deleted;
use roquet_core_fuzz::common::sim_disk::SimDisk;
use std::path::Path;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    bytes.extend(u64::from(crc32fast::hash(data)).to_be_bytes());
    let disk = SimDisk::new();
    disk.plant(Path::new("/s/deletedTopics"), &bytes);
    let open =
        || Deleted::open(Arc::new(disk.clone()), Path::new("/s")).expect("a disk that works");
    let note = open();
    let rows = note.list();
    assert!(!note.was_damaged() || rows.is_empty());
    // A row has a length and a number beside its name.
    assert!(16 * rows.len() <= data.len());
    for (topic, end) in &rows {
        assert!(!note.covers(topic, *end));
        assert!(*end == 0 || note.covers(topic, end - 1));
    }
    note.add("T", 7).expect("a disk that has room");
    let again = open();
    assert!(!again.was_damaged() && again.covers("T", 6));
});
