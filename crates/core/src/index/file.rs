//! One index file: header, slots and entries, partly in memory.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::entry::{seconds_between, Entry, ENTRY_SIZE};
use super::header::{int, Header, HEADER_SIZE};
use crate::disk::{Disk, DiskFile};

/// Slots are kept and written in pieces of the file of this size.
const PAGE: usize = 4096;
/// Entries are written out when so many bytes wait.
const BLOCK: usize = 64 * 1024;
/// A chain is followed so far at most; who stores one key this often does not need an index.
const CHAIN_MAX: usize = 200_000;

/// How big the parts of a file are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) slots: u32,
    pub(super) entries: u32,
}

impl Shape {
    pub(super) fn file_size(self) -> u64 {
        self.slots_end() + u64::from(self.entries) * ENTRY_SIZE as u64
    }

    fn slots_end(self) -> u64 {
        HEADER_SIZE as u64 + 4 * u64::from(self.slots)
    }

    fn slot_at(self, hash: i32) -> u64 {
        HEADER_SIZE as u64 + 4 * (u64::from(hash.unsigned_abs()) % u64::from(self.slots.max(1)))
    }

    pub(super) fn entry_at(self, number: i32) -> u64 {
        self.slots_end() + u64::from(number.unsigned_abs()) * ENTRY_SIZE as u64
    }

    /// The number that no entry of a full file reaches.
    pub(super) fn limit(self) -> i32 {
        i32::try_from(self.entries).unwrap_or(i32::MAX)
    }
}

struct Page {
    bytes: Vec<u8>,
    dirty: bool,
}

/// Pieces of the slot table by number: slots are drawn by hash, so every key looks for another.
#[derive(Default)]
struct Pages(Vec<Option<Page>>);

impl Pages {
    fn get(&self, number: u64) -> Option<&Page> {
        self.0.get(usize::try_from(number).ok()?)?.as_ref()
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Page> {
        self.0.get_mut(usize::try_from(number).ok()?)?.as_mut()
    }

    fn insert(&mut self, number: u64, page: Page) {
        let Ok(at) = usize::try_from(number) else {
            return;
        };
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        if let Some(place) = self.0.get_mut(at) {
            *place = Some(page);
        }
    }

    /// Those in memory, with their numbers.
    fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Page)> {
        let numbered = (0..).zip(&mut self.0);
        numbered.filter_map(|(number, page)| Some((number, page.as_mut()?)))
    }
}

/// What changes while a file is filled.
pub(super) struct State {
    pub(super) header: Header,
    /// Pieces of the slot table that were used since the last sync, by number.
    pages: Pages,
    /// Entries from number `tail_from` on, not written yet.
    tail: Vec<u8>,
    tail_from: i32,
    /// The file has no slot that is not in `pages`, so nothing needs to be read.
    blank: bool,
    pub(super) changed: bool,
}

impl State {
    pub(super) fn new(header: Header, blank: bool) -> Self {
        Self {
            header,
            pages: Pages::default(),
            tail: Vec::new(),
            tail_from: header.next,
            blank,
            changed: blank,
        }
    }

    /// Drops what is only in memory and starts over with `header`, trusting no slot on disk.
    pub(super) fn reset(&mut self, header: Header) {
        *self = Self::new(header, true);
    }

    /// Frees the buffers, all of which is written: up to 20 MB of slots, which are read again when
    /// they are needed.
    fn free(&mut self) {
        debug_assert!(self.tail.is_empty());
        self.pages = Pages::default();
        self.tail = Vec::new();
    }

    /// Bytes of slots and entries in memory.
    #[cfg(test)]
    pub(super) fn buffered(&self) -> usize {
        let pages = self.pages.0.iter().flatten();
        self.tail.capacity() + pages.map(|page| page.bytes.len()).sum::<usize>()
    }

    /// Takes the entries that are not written yet, as if they were.
    pub(super) fn take_tail(&mut self) -> Vec<u8> {
        self.tail_from = self.header.next;
        std::mem::take(&mut self.tail)
    }
}

/// One index file.
pub(super) struct IndexFile {
    pub(super) path: PathBuf,
    pub(super) shape: Shape,
    pub(super) disk: Arc<dyn Disk>,
    state: Mutex<State>,
    open: Mutex<Option<Arc<dyn DiskFile>>>,
}

impl IndexFile {
    pub(super) fn new(disk: Arc<dyn Disk>, path: PathBuf, shape: Shape, state: State) -> Self {
        Self {
            path,
            shape,
            disk,
            state: Mutex::new(state),
            open: Mutex::new(None),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn header(&self) -> Header {
        self.lock().header
    }

    /// The open file; it stays open until [`IndexFile::close`].
    pub(super) fn handle(&self) -> io::Result<Arc<dyn DiskFile>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*open {
            return Ok(Arc::clone(file));
        }
        let file = self.disk.open(&self.path)?;
        *open = Some(Arc::clone(&file));
        Ok(file)
    }

    pub(super) fn keep_open(&self, file: Arc<dyn DiskFile>) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
    }

    pub(super) fn close(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Adds an entry; false when the file is full. On an error nothing was added.
    pub(super) fn add(&self, hash: i32, phy: i64, time: i64) -> io::Result<bool> {
        let mut state = self.lock();
        if state.header.next >= self.shape.limit() {
            return Ok(false);
        }
        if state.tail.len() >= BLOCK {
            self.write_entries(&mut state)?;
        }
        if state.header.next <= 1 {
            state.header.begin_time = time;
            state.header.begin_phy = phy;
        }
        let seconds = seconds_between(state.header.begin_time, time);
        self.link(&mut state, hash, phy, seconds)?;
        state.header.end_time = time;
        state.header.end_phy = phy;
        Ok(true)
    }

    /// Appends an entry and makes it the newest of its slot.
    pub(super) fn link(
        &self,
        state: &mut State,
        hash: i32,
        phy: i64,
        seconds: i32,
    ) -> io::Result<()> {
        let next = state.header.next;
        let slot = self.slot(state, self.shape.slot_at(hash))?;
        let newest = int(slot);
        let previous = if newest > 0 && newest < next {
            newest
        } else {
            0
        };
        slot.copy_from_slice(&next.to_be_bytes());
        let entry = Entry {
            hash,
            phy,
            seconds,
            previous,
        };
        state.tail.extend_from_slice(&entry.encode());
        // Nobody reads it back, and a damaged header may have any number here.
        let used = state.header.slots_used;
        state.header.slots_used = used.saturating_add(i32::from(previous == 0));
        state.header.next = next + 1;
        state.changed = true;
        Ok(())
    }

    /// The four bytes of a slot, to be changed.
    fn slot<'a>(&self, state: &'a mut State, at: u64) -> io::Result<&'a mut [u8]> {
        let number = at / PAGE as u64;
        if state.pages.get(number).is_none() {
            let bytes = self.load_page(state, number)?;
            let page = Page {
                bytes,
                dirty: false,
            };
            state.pages.insert(number, page);
        }
        let page = state.pages.get_mut(number);
        let page = page.ok_or(io::ErrorKind::NotFound)?;
        page.dirty = true;
        let from = usize::try_from(at - number * PAGE as u64).unwrap_or(0);
        let slot = page.bytes.get_mut(from..from + 4);
        slot.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn load_page(&self, state: &State, number: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; PAGE];
        if !state.blank {
            let from = number * PAGE as u64;
            let len = self.shape.file_size().saturating_sub(from);
            let len = usize::try_from(len).unwrap_or(PAGE).min(PAGE);
            let part = bytes.get_mut(..len).unwrap_or_default();
            self.handle()?.read_at(part, from)?;
        }
        Ok(bytes)
    }

    fn write_entries(&self, state: &mut State) -> io::Result<()> {
        if state.tail.is_empty() {
            return Ok(());
        }
        let at = self.shape.entry_at(state.tail_from);
        self.handle()?.write_at(&state.tail, at)?;
        state.tail.clear();
        state.tail_from = state.header.next;
        Ok(())
    }

    /// Writes all but the header of a full file and frees its buffers; [`Self::sync`] makes it
    /// durable.
    ///
    /// Checkpoints are a minute apart, and small files fill in less: each would keep its entries
    /// and slots in memory until then.
    pub(super) fn spill(&self) -> io::Result<()> {
        let mut state = self.lock();
        self.write_entries(&mut state)?;
        self.write_slots(&mut state)?;
        state.free();
        Ok(())
    }

    /// Writes the entries that wait.
    pub(super) fn write_tail(&self) -> io::Result<()> {
        self.write_entries(&mut self.lock())
    }

    fn write_slots(&self, state: &mut State) -> io::Result<()> {
        let file = self.handle()?;
        let end = self.shape.slots_end();
        if state.blank {
            // Stale slots may lie where no page is in memory.
            super::rebuild::clear_holes(&*file, HEADER_SIZE as u64, end, |at| {
                state.pages.get(at / PAGE as u64).is_some()
            })?;
            state.blank = false;
        }
        for (number, page) in state.pages.iter_mut() {
            if !page.dirty {
                continue;
            }
            let from = (number * PAGE as u64).max(HEADER_SIZE as u64);
            let to = ((number + 1) * PAGE as u64).min(end);
            let skip = usize::try_from(from - number * PAGE as u64).unwrap_or(0);
            let len = usize::try_from(to.saturating_sub(from)).unwrap_or(0);
            let bytes = page.bytes.get(skip..skip + len).unwrap_or_default();
            file.write_at(bytes, from)?;
            page.dirty = false;
        }
        Ok(())
    }

    /// Makes everything added so far durable; the header last, once what it counts is.
    pub(super) fn sync(&self) -> io::Result<()> {
        let header = {
            let mut state = self.lock();
            if !state.changed {
                return Ok(());
            }
            self.write_entries(&mut state)?;
            self.write_slots(&mut state)?;
            state.free();
            state.changed = false;
            state.header
        };
        let file = self.handle()?;
        file.sync()?;
        file.write_at(&header.encode(), 0)?;
        file.sync()
    }

    /// Appends what has this hash and a time inside to `out`, newest first, until `max` are there.
    pub(super) fn find(
        &self,
        hash: i32,
        max: usize,
        (begin, end): (i64, i64),
        out: &mut Vec<u64>,
    ) -> io::Result<()> {
        let (header, mut number) = {
            let mut state = self.lock();
            if !state.header.overlaps(begin, end) {
                return Ok(());
            }
            let newest = self.peek(&mut state, self.shape.slot_at(hash))?;
            let known = newest > 0 && newest < state.header.next;
            (state.header, if known { newest } else { 0 })
        };
        for _ in 0..CHAIN_MAX {
            if number <= 0 || out.len() >= max {
                break;
            }
            let entry = self.entry(number)?;
            let time = header.time_of(&entry);
            // Only whole seconds are stored: the message may be up to 999 ms younger.
            let inside = time.saturating_add(999) >= begin && time <= end;
            if entry.hash == hash && inside {
                if let Ok(phy) = u64::try_from(entry.phy) {
                    out.push(phy);
                }
            }
            if time.saturating_add(999) < begin || entry.previous >= number {
                break;
            }
            number = entry.previous;
        }
        Ok(())
    }

    fn peek(&self, state: &mut State, at: u64) -> io::Result<i32> {
        let number = at / PAGE as u64;
        if let Some(page) = state.pages.get(number) {
            let from = usize::try_from(at - number * PAGE as u64).unwrap_or(0);
            return Ok(int(page.bytes.get(from..).unwrap_or_default()));
        }
        if state.blank {
            return Ok(0);
        }
        let mut bytes = [0; 4];
        self.handle()?.read_at(&mut bytes, at)?;
        Ok(int(&bytes))
    }

    fn entry(&self, number: i32) -> io::Result<Entry> {
        {
            let state = self.lock();
            if number >= state.tail_from {
                let skip = usize::try_from(number - state.tail_from).unwrap_or(0) * ENTRY_SIZE;
                return Ok(Entry::decode(state.tail.get(skip..).unwrap_or_default()));
            }
        }
        let mut bytes = [0; ENTRY_SIZE];
        let at = self.shape.entry_at(number);
        self.handle()?.read_at(&mut bytes, at)?;
        Ok(Entry::decode(&bytes))
    }
}
