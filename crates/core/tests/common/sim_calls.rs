//! What the store calls: the simulated disk as a `Disk`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use roquet_core::disk::{Bytes, Disk, DiskFile, Space};

use super::sim_disk::{apply, Change, File, Op, SimDisk};
use super::sim_file::{Inode, Region, PAGE};

struct SimFile {
    disk: SimDisk,
    path: PathBuf,
    inode: File,
}

struct Held {
    disk: SimDisk,
    path: PathBuf,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.disk.lock_state().locks.remove(&self.path);
    }
}

fn as_index(offset: u64) -> usize {
    usize::try_from(offset).expect("an offset in memory")
}

impl DiskFile for SimFile {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let at = as_index(offset);
        let mut state = match self.disk.step(Op::Write) {
            Ok(state) => state,
            Err(error) => {
                // What fails may have been written in part.
                if error.raw_os_error().is_some() {
                    let part = data.get(..data.len() / 2).unwrap_or_default();
                    let mut inode = self.inode.lock().expect("inode");
                    if !part.is_empty() && at + part.len() <= inode.live.len() {
                        inode.write(part, at);
                    }
                }
                return Err(error);
            }
        };
        let mut inode = self.inode.lock().expect("inode");
        if at + data.len() > inode.live.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if data.is_empty() {
            return Ok(());
        }
        let pages = at / PAGE..=(at + data.len() - 1) / PAGE;
        let new = pages.filter(|page| !inode.touched.contains(page)).count();
        if !state.allocated.contains_key(&self.path) || new > 0 {
            let whole = inode.live.len() as u64;
            let full = state.allocated.get(&self.path).is_some_and(|b| *b >= whole);
            if !full {
                state.allocate(&self.path, (new * PAGE) as u64)?;
            }
        }
        inode.write(data, at);
        inode.modified = state.now;
        if state.off {
            return Err(io::Error::other("the power went off"));
        }
        Ok(())
    }

    fn write_vectored_at(&self, parts: &[&[u8]], offset: u64) -> io::Result<()> {
        self.write_at(&parts.concat(), offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        drop(self.disk.step(Op::Read)?);
        let inode = self.inode.lock().expect("inode");
        let at = as_index(offset);
        let data = inode.live.get(at..at + buffer.len());
        buffer.copy_from_slice(data.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.inode.lock().expect("inode").live.len() as u64)
    }

    fn sync(&self) -> io::Result<()> {
        let state = match self.disk.step(Op::Sync) {
            Ok(state) => state,
            Err(error) => {
                // A real kernel calls the pages clean now: no later sync will write them.
                if error.raw_os_error().is_some() {
                    self.inode.lock().expect("inode").dirty.clear();
                }
                return Err(error);
            }
        };
        if !state.lies.sync_does_nothing {
            self.inode.lock().expect("inode").sync();
        }
        Ok(())
    }

    fn map(&self) -> io::Result<Arc<dyn Bytes>> {
        let inode = self.inode.lock().expect("inode");
        Ok(Arc::new(Map(Arc::clone(&inode.live))))
    }

    fn seek_data(&self, from: u64) -> io::Result<Option<u64>> {
        let inode = self.inode.lock().expect("inode");
        let at = as_index(from);
        let page = inode.touched.range(at / PAGE..).next();
        let data = page.map(|page| (page * PAGE).max(at));
        Ok(data.filter(|at| *at < inode.live.len()).map(|at| at as u64))
    }
}

struct Map(Arc<Region>);

impl std::ops::Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Disk for SimDisk {
    fn create(&self, path: &Path, len: u64, space: Space) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.step(Op::Create)?;
        if state.files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if !path.parent().is_some_and(|dir| state.dirs.contains(dir)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.allocated.remove(path);
        if space == Space::Allocated {
            state.allocate(path, len)?;
        }
        let inode = Arc::new(Mutex::new(Inode::new(as_index(len))));
        inode.lock().expect("inode").modified = state.now;
        state.change(Change::Link(path.to_path_buf(), Arc::clone(&inode)));
        if state.off {
            return Err(io::Error::other("the power went off"));
        }
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            path: path.to_path_buf(),
            inode,
        }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            path: path.to_path_buf(),
            inode: self.find(path, Op::Open)?,
        }))
    }

    fn read_front(&self, path: &Path, most: usize) -> io::Result<Option<Vec<u8>>> {
        match self.find(path, Op::Read) {
            Ok(file) => {
                let mut data = file.lock().expect("inode").live.to_vec();
                data.truncate(most);
                Ok(Some(data))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let mut state = self.step(Op::Write)?;
        if state.capacity.is_some() {
            state.allocated.remove(path);
            state.allocate(path, data.len().next_multiple_of(PAGE) as u64)?;
        }
        if !state.files.contains_key(path) {
            if !path.parent().is_some_and(|dir| state.dirs.contains(dir)) {
                return Err(io::ErrorKind::NotFound.into());
            }
            let inode = Arc::new(Mutex::new(Inode::new(0)));
            state.change(Change::Link(path.to_path_buf(), inode));
        }
        let file = state.files.get(path).expect("just made");
        file.lock().expect("inode").replace(data);
        if state.off {
            return Err(io::Error::other("the power went off"));
        }
        Ok(())
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        let file = self.find(path, Op::Sync)?;
        if !self.lock_state().lies.sync_does_nothing {
            file.lock().expect("inode").sync();
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.step(Op::Names)?;
        let file = state.files.get(from).cloned();
        let file = file.ok_or(io::ErrorKind::NotFound)?;
        state.change(Change::Rename(from.to_path_buf(), to.to_path_buf(), file));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.step(Op::Names)?;
        if state.files.contains_key(path) {
            state.change(Change::Unlink(path.to_path_buf()));
            state.allocated.remove(path);
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.step(Op::Names)?;
        if state.files.keys().any(|file| file.starts_with(path)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.dirs.remove(path);
        state.new_dirs.remove(path);
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.step(Op::Names)?;
        for dir in path.ancestors() {
            if state.dirs.insert(dir.to_path_buf()) && dir.parent().is_some() {
                state.new_dirs.insert(dir.to_path_buf());
            }
        }
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.step(Op::SyncDir)?;
        if !state.dirs.contains(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if state.lies.sync_dir_does_nothing {
            return Ok(());
        }
        state.new_dirs.retain(|dir| dir.parent() != Some(path));
        let changes = std::mem::take(&mut state.changes);
        for change in changes {
            if change.is_in(path) {
                apply(&mut state.durable, &change);
            } else {
                state.changes.push(change);
            }
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool, u64)>> {
        let state = self.step(Op::Read)?;
        let mut rows = Vec::new();
        for dir in &state.dirs {
            if dir.parent() == Some(path) {
                rows.push((dir.clone(), true, 0));
            }
        }
        for (name, file) in &state.files {
            if name.parent() == Some(path) {
                let len = file.lock().expect("inode").live.len() as u64;
                rows.push((name.clone(), false, len));
            }
        }
        rows.sort();
        Ok(rows)
    }

    fn modified_ms(&self, path: &Path) -> io::Result<u64> {
        Ok(self.find(path, Op::Read)?.lock().expect("inode").modified)
    }

    fn space(&self, _path: &Path) -> io::Result<(u64, u64)> {
        let state = self.lock_state();
        let total = state.capacity.unwrap_or(1 << 40);
        let used: u64 = state.allocated.values().sum();
        Ok((total.saturating_sub(used), total))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let mut state = self.step(Op::Open)?;
        if !state.locks.insert(path.to_path_buf()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Held {
            disk: self.clone(),
            path: path.to_path_buf(),
        }))
    }
}
