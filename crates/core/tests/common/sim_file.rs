//! A file of the simulated disk: what the process sees, and what would survive a power loss.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use memmap2::{MmapMut, MmapRaw};

use super::Rng;

pub const PAGE: usize = 4096;
pub const SECTOR: usize = 512;

/// Memory that is written while others read it, exactly like a mapped file.
pub struct Region {
    map: MmapRaw,
    len: usize,
}

impl Region {
    pub fn new(len: usize) -> Arc<Self> {
        let map = MmapMut::map_anon(len.max(1)).expect("memory for a simulated file");
        Arc::new(Self {
            map: map.into(),
            len,
        })
    }

    pub fn write(&self, data: &[u8], at: usize) {
        assert!(at + data.len() <= self.len);
        // SAFETY: the range was checked, and the map lives as long as `self`.
        unsafe {
            std::ptr::copy_nonoverlapping(data.as_ptr(), self.map.as_mut_ptr().add(at), data.len());
        }
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the map is `len` bytes and lives as long as `self`; like with a mapped file, a
        // reader may see a write that is under way, and readers only look at bytes once written.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr(), self.len) }
    }
}

/// The state of one file.
pub struct Inode {
    pub live: Arc<Region>,
    /// Pages that ever got data; others are holes.
    pub touched: BTreeSet<usize>,
    pub durable: BTreeMap<usize, Vec<u8>>,
    pub durable_len: usize,
    /// Pages written since the last sync.
    pub dirty: BTreeSet<usize>,
    /// The content was replaced since the last sync: it may be found empty.
    pub replaced: bool,
    pub modified: u64,
}

impl Inode {
    pub fn new(len: usize) -> Self {
        Self {
            live: Region::new(len),
            touched: BTreeSet::new(),
            durable: BTreeMap::new(),
            durable_len: 0,
            dirty: BTreeSet::new(),
            replaced: true,
            modified: 0,
        }
    }

    pub fn write(&mut self, data: &[u8], at: usize) {
        self.live.write(data, at);
        let last = (at + data.len()).max(at + 1) - 1;
        for page in at / PAGE..=last / PAGE {
            self.dirty.insert(page);
            self.touched.insert(page);
        }
    }

    pub fn replace(&mut self, data: &[u8]) {
        self.live = Region::new(data.len());
        self.touched.clear();
        self.replaced = true;
        self.dirty.clear();
        if !data.is_empty() {
            self.write(data, 0);
        }
    }

    pub fn page(&self, page: usize) -> Vec<u8> {
        let from = page * PAGE;
        let to = (from + PAGE).min(self.live.len());
        self.live.get(from..to).unwrap_or_default().to_vec()
    }

    pub fn sync(&mut self) {
        if self.replaced {
            self.durable.clear();
        }
        for page in std::mem::take(&mut self.dirty) {
            self.durable.insert(page, self.page(page));
        }
        self.durable_len = self.live.len();
        self.replaced = false;
    }

    /// One legal state of the file after a power loss.
    pub fn after_power_loss(&self, rng: &mut Rng) -> Self {
        let len = self.surviving_len(rng);
        let mut image = Self::new(len);
        let mut pages: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        if !self.replaced || len == self.durable_len {
            pages.clone_from(&self.durable);
        }
        for page in &self.dirty {
            let old = pages.get(page).cloned().unwrap_or_default();
            match rng.below(3) {
                0 => {}
                1 => {
                    pages.insert(*page, self.page(*page));
                }
                _ => {
                    pages.insert(*page, torn(old, &self.page(*page), rng));
                }
            }
        }
        for (page, data) in pages {
            let at = page * PAGE;
            let end = (at + data.len()).min(len);
            if at < end && data.iter().any(|byte| *byte != 0) {
                image.write(&data[..end - at], at);
            }
        }
        image.sync();
        image.modified = self.modified;
        image
    }

    /// Lengths are set once when a file is made, so an unsynced one is whole or nothing.
    fn surviving_len(&self, rng: &mut Rng) -> usize {
        if !self.replaced {
            return self.live.len();
        }
        match rng.below(3) {
            0 => self.durable_len,
            1 => self.live.len(),
            _ => 0,
        }
    }
}

/// Sectors of `old` and `new` mixed.
fn torn(mut old: Vec<u8>, new: &[u8], rng: &mut Rng) -> Vec<u8> {
    old.resize(new.len(), 0);
    let mask = rng.next();
    for (index, (to, from)) in old.chunks_mut(SECTOR).zip(new.chunks(SECTOR)).enumerate() {
        if mask >> index & 1 == 1 {
            to.copy_from_slice(from);
        }
    }
    old
}
