//! Snapshots of the wheel: `timerwheel.<position>`, each whole at the moment its name appears
//! (spec: additions-5x §5, `timerWheelSnapshotFlush`).
//!
//! The position is the end of the timer log that the wheel knows of. A Java broker with the setting
//! takes the snapshot of the largest position and reads the log from there on, so none may name a
//! position that the log does not reach, or units that were written anew: those are removed before
//! the log changes. This engine needs no snapshot itself. After anything but an orderly stop it reads
//! the whole log, which finds damage that a snapshot would hide.

use super::wheel::Page;
use crate::disk::{Disk, Space};
use crate::store::error::StoreError;
use std::cmp::Reverse;
use std::io;
use std::path::{Path, PathBuf};

/// Snapshots that stay.
const KEPT: usize = 2;
const PREFIX: &str = "timerwheel.";
const UNFINISHED: &str = ".tmp";

/// The wheel as it was when the timer log ended at a position.
pub(super) struct Snapshot {
    pub(super) position: u64,
    /// Bytes of the file.
    pub(super) length: u64,
    pub(super) pages: Vec<Page>,
}

impl Snapshot {
    /// Writes the file durably, by a side file, and removes all snapshots but the newest.
    pub(super) fn write(&self, disk: &dyn Disk, root: &Path) -> Result<(), StoreError> {
        let path = root.join(format!("{PREFIX}{}", self.position));
        let side = root.join(format!("{PREFIX}{}{UNFINISHED}", self.position));
        let done = self.write_side(disk, &side);
        done.and_then(|()| disk.rename(&side, &path))
            .and_then(|()| disk.sync_dir(root))
            .map_err(|error| StoreError::io("write", &path, &error))?;
        remove_all_but(disk, root, |number, _| number < KEPT)
    }

    fn write_side(&self, disk: &dyn Disk, side: &Path) -> io::Result<()> {
        disk.remove(side)?;
        let file = disk.create(side, self.length, Space::Sparse)?;
        for page in &self.pages {
            file.write_at(&page.bytes, page.at)?;
        }
        file.sync()
    }
}

/// Removes the snapshots of more than the timer log has, and what is left of unfinished ones.
pub(super) fn remove_beyond(disk: &dyn Disk, root: &Path, end: u64) -> Result<(), StoreError> {
    remove_all_but(disk, root, |_, position| position <= end)
}

/// Removes every snapshot: the units that they name are about to be written anew.
pub(super) fn remove_all(disk: &dyn Disk, root: &Path) -> Result<(), StoreError> {
    remove_all_but(disk, root, |_, _| false)
}

/// Keeps those for which `keep` holds, given their number, newest first, and their position.
fn remove_all_but(
    disk: &dyn Disk,
    root: &Path,
    keep: impl Fn(usize, u64) -> bool,
) -> Result<(), StoreError> {
    let fail = |error: io::Error| StoreError::io("list", root, &error);
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    let mut gone: Vec<PathBuf> = Vec::new();
    for (path, is_folder, _) in disk.list(root).map_err(fail)? {
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(rest) = name.and_then(|name| name.strip_prefix(PREFIX)) else {
            continue;
        };
        match rest.parse() {
            Ok(position) if !is_folder => found.push((position, path)),
            Err(_) if rest.ends_with(UNFINISHED) => gone.push(path),
            _ => {}
        }
    }
    found.sort_unstable_by_key(|(position, _)| Reverse(*position));
    let stale = found.into_iter().enumerate();
    gone.extend(
        stale
            .filter(|(number, (position, _))| !keep(*number, *position))
            .map(|(_, (_, path))| path),
    );
    for path in &gone {
        disk.remove(path)
            .map_err(|error| StoreError::io("remove", path, &error))?;
    }
    if !gone.is_empty() {
        disk.sync_dir(root).map_err(fail)?;
    }
    Ok(())
}
