//! Index files from a disk: whatever they hold, looking ends and a key that is put is found.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roquet_core::disk::Disk;
use roquet_core::index::Index;
use roquet_core_fuzz::common::sim_disk::SimDisk;
use std::path::Path;
use std::sync::Arc;

const SLOTS: u32 = 4;
const ENTRIES: u32 = 8;
const SIZE: usize = 40 + 4 * SLOTS as usize + 20 * ENTRIES as usize;
const MOST: usize = 64;

fn look(index: &Index) -> Option<Vec<u64>> {
    let found = index.query("T", b"k", MOST, i64::MIN, i64::MAX).ok()?;
    assert!(found.len() <= MOST && found.is_sorted());
    Some(found)
}

fn use_it(files: &[u8], safe: Option<i64>, phy: u64) {
    let disk = SimDisk::new();
    for (number, file) in files.chunks(SIZE).take(3).enumerate() {
        let mut whole = file.to_vec();
        whole.resize(SIZE, 0);
        let name = format!("/s/index/2026010100000000{number}");
        disk.plant(Path::new(&name), &whole);
    }
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let Ok(index) = Index::open(Arc::clone(&disk), "/s/index", SLOTS, ENTRIES, safe) else {
        return;
    };
    look(&index);
    let known = index.last().1;
    let put = index.put("T", &[b"k"], phy, 1_700_000_000_000);
    if put.is_ok() && phy >= known {
        assert!(look(&index).is_none_or(|found| found.contains(&phy)));
    }
    if index.sync().is_ok() {
        drop(index);
        let index = Index::open(disk, "/s/index", SLOTS, ENTRIES, Some(0));
        let index = index.expect("what was made durable can be opened");
        look(&index);
        let _ = index.truncate(phy / 2);
        look(&index);
        let _ = index.delete_expired(phy);
        look(&index);
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((head, rest)) = data.split_first_chunk::<9>() else {
        return;
    };
    let [mode, phy @ ..] = *head;
    let phy = u64::from_be_bytes(phy) >> 1;
    let safe = [None, Some(0), Some(1_700_000_000_000), Some(i64::MAX)];
    use_it(rest, safe[usize::from(mode) % safe.len()], phy);
});
