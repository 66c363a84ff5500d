//! The disk of the operating system, in a folder of its own.

use super::FileDisk;
use crate::disk::{Disk, Space};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "roquet-disk-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_map_shows_later_writes_and_writes_stay_inside() {
    let folder = Folder::new();
    let disk = FileDisk::new();
    for space in [Space::Allocated, Space::Sparse] {
        let path = folder.0.join(format!("{space:?}"));
        let file = disk.create(&path, 8192, space).unwrap();
        let map = file.map().unwrap();
        assert_eq!(map.len(), 8192);
        assert!(map.iter().all(|byte| *byte == 0));
        file.write_at(b"abc", 4095).unwrap();
        file.write_vectored_at(&[b"", b"de", b"f"], 4098).unwrap();
        file.sync().unwrap();
        assert_eq!(&map[4095..4101], b"abcdef");
        assert_eq!(
            file.write_at(b"xy", 8191).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert_eq!(disk.open(&path).unwrap().len().unwrap(), 8192);
        assert_eq!(
            disk.create(&path, 1, space).map(|_| ()).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
    }
}

#[test]
fn holes_are_skipped() {
    let folder = Folder::new();
    let path = folder.0.join("holes");
    let file = FileDisk::new()
        .create(&path, 1 << 20, Space::Sparse)
        .unwrap();
    assert_eq!(file.seek_data(0).unwrap(), None);
    file.write_at(b"x", 700_000).unwrap();
    let found = file.seek_data(0).unwrap().unwrap();
    assert!(found <= 700_000);
    let hole = file.seek_hole(found).unwrap();
    assert!(hole > 700_000 && hole <= 1 << 20);
    assert_eq!(file.seek_data(1 << 20).unwrap(), None);
}

#[test]
fn one_lock_at_a_time() {
    let folder = Folder::new();
    let disk = FileDisk::new();
    let path = folder.0.join("lock");
    let held = disk.lock(&path).unwrap();
    let again = disk.lock(&path).map(|_| ()).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::WouldBlock);
    drop(held);
    drop(disk.lock(&path).unwrap());
    assert_eq!(disk.read(&path).unwrap().unwrap(), b"lock");
}

#[test]
fn front_of_a_file_longer_than_all_memory_is_read() {
    let folder = Folder::new();
    let disk = FileDisk::new();
    let path = folder.0.join("timercheck");
    let file = disk.create(&path, 1 << 43, Space::Sparse).unwrap();
    file.write_at(b"begin", 0).unwrap();
    let front = disk.read_front(&path, 8).unwrap().unwrap();
    assert_eq!(front, b"begin\0\0\0");
    assert!(front.capacity() < 4096);
}

#[test]
fn small_files_and_folders() {
    let folder = Folder::new();
    let disk = FileDisk::new();
    let inner = folder.0.join("a/b");
    disk.create_dir(&inner).unwrap();
    disk.write(&inner.join("f"), b"long text").unwrap();
    disk.write(&inner.join("f"), b"short").unwrap();
    disk.sync_file(&inner.join("f")).unwrap();
    disk.sync_dir(&inner).unwrap();
    assert_eq!(disk.read(&inner.join("f")).unwrap().unwrap(), b"short");
    for (most, found) in [(0, &b""[..]), (3, b"sho"), (5, b"short"), (6, b"short")] {
        let front = disk.read_front(&inner.join("f"), most).unwrap();
        assert_eq!(front.unwrap(), found);
    }
    assert_eq!(disk.read(&inner.join("g")).unwrap(), None);
    disk.rename(&inner.join("f"), &inner.join("g")).unwrap();
    let listed = disk.list(&folder.0.join("a")).unwrap();
    assert_eq!(listed.len(), 1);
    assert!(listed[0].1);
    assert!(disk.modified_ms(&inner.join("g")).unwrap() > 1_600_000_000_000);
    disk.remove(&inner.join("g")).unwrap();
    disk.remove(&inner.join("g")).unwrap();
    disk.remove_dir(&inner).unwrap();
    disk.remove_dir(&inner).unwrap();
    assert!(disk.list(&inner).unwrap().is_empty());
    let (free, total) = disk.space(&folder.0).unwrap();
    assert!(free > 0 && free <= total);
}

#[test]
fn refusals_of_the_system_name_the_file() {
    let folder = Folder::new();
    let disk = FileDisk::new();
    let full = folder.0.join("full");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let error = disk.write(&full, b"x").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(error.to_string().starts_with(full.to_str().unwrap()));
    let gone = folder.0.join("gone");
    let error = disk.open(&gone).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().starts_with(gone.to_str().unwrap()));
    let path = folder.0.join("file");
    let file = disk.create(&path, 1, Space::Sparse).unwrap();
    let error = file.write_at(b"xy", 0).unwrap_err();
    assert!(error.to_string().starts_with(path.to_str().unwrap()));
}
