//! Reading one commit-log file that nobody has recovered: records, and what is none.
//!
//! The file is read, never mapped, so that a file that shrinks meanwhile ends the scan and nothing
//! else: where its length was known and it is no broker's any more, what is missing is damage. The
//! bytes may be those of a file on a disk or of any other place (`ReadAt`). The scan always begins at the first byte of the file, where a record begins too; readers of
//! a later part of the file take the same steps and ignore what is not theirs, so that all of them
//! see the same records and the same damage. A step depends on no checksum: where a body's CRC
//! differs, or the end of a record was never written, its lengths still say where the next one
//! begins, and what is inside them is never taken for records.

use crate::codec::error::CodecError;
use crate::codec::record::{self, Parsed, RecordHead, RecordView, Why, MAGIC_V1, MAGIC_V2};
use crate::disk::file_disk;
use crate::disk::segment::all_zero;
use crate::recovery::extent::extent;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a record that are believed; a larger length is damage.
pub const RECORD_BYTES_MAX: usize = 64 << 20;
/// Bytes read at a time of a file on a disk.
const WINDOW: usize = 1 << 20;
/// Bytes asked for at a time from elsewhere: each request waits for a network.
const FAR_WINDOW: usize = 8 << 20;
/// Bytes searched at a time.
const BLOCK: usize = 1 << 16;

/// Log offsets that hold no readable record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// First byte.
    pub begin: u64,
    /// Behind the last byte.
    pub end: u64,
    /// What is wrong.
    pub why: String,
}

/// What a file is to the log. Offsets are those of the log.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Offset of the file's first byte.
    pub base: u64,
    /// Where the next file begins, or the file should end.
    pub end: u64,
    /// Whether the log ends in this file: zeros up to its end are no damage then.
    pub last: bool,
    /// Whether a broker may be writing: a half record at the end is no damage then.
    pub live: bool,
    /// Nothing at or behind this offset is read.
    pub stop: u64,
    /// The log ends before the first record stored later (Unix milliseconds).
    pub stop_time: i64,
}

/// One step of a scan.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<R> {
    /// A record, and what was made of it.
    Record(R),
    /// Bytes that are passed over.
    Damage(Damage),
    /// Nothing follows.
    End,
}

/// How the bytes at a place are to be passed over.
#[derive(Clone, Copy)]
enum Next {
    Skip(usize, Why),
    Search(&'static str),
    Zeros,
    Done,
}

/// Bytes that can be read at any place.
pub trait ReadAt: Send {
    /// Fills some of `into` with the bytes from `at` on; 0 where there are none any more.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, into, at)
    }
}

/// A walk over one file.
pub struct LogScan {
    file: Box<dyn ReadAt>,
    window_min: usize,
    len: u64,
    place: Place,
    at: u64,
    done: bool,
    /// Ranges of the file that are no holes, in order.
    data: Vec<(u64, u64)>,
    window: Vec<u8>,
    window_at: u64,
}

impl LogScan {
    /// Opens a file for reading.
    pub fn open(path: &Path, place: Place) -> io::Result<Self> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let len = len.min(place.end.saturating_sub(place.base));
        let data = file_disk::data_ranges(&file, len)?;
        Ok(Self::new(Box::new(file), WINDOW, len, data, place))
    }

    /// Scans `len` bytes of another place than a disk. Nothing is known of holes there.
    pub fn over(bytes: Box<dyn ReadAt>, len: u64, place: Place) -> Self {
        let len = len.min(place.end.saturating_sub(place.base));
        Self::new(bytes, FAR_WINDOW, len, vec![(0, len)], place)
    }

    fn new(
        file: Box<dyn ReadAt>,
        window_min: usize,
        len: u64,
        data: Vec<(u64, u64)>,
        place: Place,
    ) -> Self {
        Self {
            file,
            window_min,
            len,
            place,
            at: 0,
            done: false,
            data,
            window: Vec::new(),
            window_at: 0,
        }
    }

    /// Log offset of the next step.
    pub fn offset(&self) -> u64 {
        self.place.base + self.at
    }

    /// Takes one step; `visit` sees the record when there is one. Fails when the disk does.
    pub fn step<R>(
        &mut self,
        check_crc: bool,
        visit: impl FnOnce(&RecordView<'_>) -> R,
    ) -> io::Result<Step<R>> {
        let here = self.offset();
        if self.done || here >= self.place.stop {
            self.done = true;
            return Ok(Step::End);
        }
        if self.at >= self.len {
            self.done = true;
            return Ok(self.short());
        }
        let size = self.fill_record(self.at)?;
        let next = match record::parse(self.from(self.at), 0, check_crc) {
            Parsed::Record { view, size } if view.physical_offset.cast_unsigned() == here => {
                let behind = view.store_timestamp > self.place.stop_time;
                if behind || here + u64::from(size) > self.place.stop {
                    Next::Done
                } else {
                    let made = visit(&view);
                    self.at += u64::from(size);
                    return Ok(Step::Record(made));
                }
            }
            Parsed::Record { .. } => Next::Search("a record that belongs elsewhere"),
            Parsed::Blank { size } => self.blank(size),
            Parsed::End => Next::Zeros,
            // What lies inside the lengths of a record is content, whatever it looks like.
            Parsed::Broken { why, .. } => match (size, extent(self.from(self.at), here)) {
                (Some(size), Some(_)) => Next::Skip(size, why),
                _ => Next::Search(text(why)),
            },
        };
        self.pass(next)
    }

    // --- inside -------------------------------------------------------------------------------

    /// The file ends here without a filler.
    fn short<R>(&self) -> Step<R> {
        // The end of the log's last file is where it ended when the scan was planned.
        if self.place.live || self.offset() >= self.place.end {
            return Step::End;
        }
        self.damage(self.at, self.place.end, "the file ends here")
    }

    fn blank(&self, size: u32) -> Next {
        let end = self.offset() + u64::from(size);
        if end == self.place.end || (self.place.last && end >= self.place.base + self.len) {
            Next::Done
        } else {
            Next::Search("a filler of another length")
        }
    }

    fn pass<R>(&mut self, next: Next) -> io::Result<Step<R>> {
        let begin = self.at;
        match next {
            Next::Done => {
                self.done = true;
                Ok(Step::End)
            }
            Next::Skip(size, why) => {
                let half = self.place.live && why != Why::Checksum;
                if half && self.search(begin + size as u64)?.0.is_none() {
                    // Somebody is writing it.
                    self.done = true;
                    return Ok(Step::End);
                }
                self.at += size as u64;
                Ok(self.damage(begin, self.offset(), text(why)))
            }
            Next::Zeros => match self.search(begin)? {
                (None, dirty) if dirty == begin && self.may_end() => {
                    self.done = true;
                    Ok(Step::End)
                }
                found => Ok(self.resume(begin, found, "zeros")),
            },
            Next::Search(why) => {
                let found = self.search(begin + 1)?;
                Ok(self.resume(begin, found, why))
            }
        }
    }

    fn resume<R>(&mut self, begin: u64, found: (Option<u64>, u64), why: &str) -> Step<R> {
        let (start, dirty) = found;
        if let Some(start) = start {
            self.at = start;
            return self.damage(begin, self.offset(), why);
        }
        self.done = true;
        if self.place.live {
            return Step::End;
        }
        let end = if self.place.last && self.place.stop == u64::MAX {
            // What was made ready for later records is not lost.
            self.place.base + dirty
        } else {
            self.place.end
        };
        self.damage(begin, end, why)
    }

    /// Whether the log may end here: it is not known to go on.
    fn may_end(&self) -> bool {
        self.place.live || (self.place.last && self.place.stop == u64::MAX)
    }

    fn damage<R>(&self, begin: u64, end: u64, why: &str) -> Step<R> {
        Step::Damage(Damage {
            begin: self.place.base + begin,
            end: end.min(self.place.stop),
            why: why.to_owned(),
        })
    }

    /// Finds the next whole record with a right checksum that stands where it says, and behind it
    /// or else before the end of the file the last byte that is not zero.
    fn search(&mut self, from: u64) -> io::Result<(Option<u64>, u64)> {
        let (mut at, mut dirty) = (from, from);
        let mut blank = true;
        while at < self.len {
            if blank {
                // Most of what is searched was made ready for later records: a hole.
                let behind = self.data.partition_point(|(_, end)| *end <= at);
                match self.data.get(behind) {
                    Some((begin, _)) => at = at.max(*begin),
                    None => break,
                }
            }
            self.fill(at, BLOCK)?;
            let bytes = self.from(at);
            let bytes = bytes.get(..BLOCK).unwrap_or(bytes);
            if bytes.is_empty() {
                break;
            }
            let size = bytes.len();
            blank = all_zero(bytes);
            if !blank {
                let last = bytes.iter().rposition(|byte| *byte != 0);
                dirty = last.map_or(dirty, |last| at + last as u64 + 1);
            }
            let found = if blank {
                Vec::new()
            } else {
                candidates(bytes, at, from)
            };
            for start in found {
                if self.is_record(start)? {
                    return Ok((Some(start), dirty));
                }
            }
            // A magic number may begin in one block and end in the next.
            let step = if size == BLOCK { BLOCK - 3 } else { size };
            at += step as u64;
        }
        Ok((None, dirty))
    }

    fn is_record(&mut self, at: u64) -> io::Result<bool> {
        if self.fill_record(at)?.is_none() || !self.in_place(at) {
            return Ok(false);
        }
        Ok(matches!(
            record::parse(self.from(at), 0, true),
            Parsed::Record { .. }
        ))
    }

    fn in_place(&self, at: u64) -> bool {
        RecordHead::read(self.from(at))
            .is_some_and(|head| head.physical_offset.cast_unsigned() == self.place.base + at)
    }

    /// Reads the record that may be at `at`; its size when that is believable.
    fn fill_record(&mut self, at: u64) -> io::Result<Option<usize>> {
        self.fill(at, 8)?;
        let number = |bytes: &[u8], at: usize| {
            let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
            found.map(|four| u32::from_be_bytes(*four))
        };
        let (size, magic) = {
            let bytes = self.from(at);
            (number(bytes, 0), number(bytes, 4))
        };
        let size = match (size, magic) {
            (Some(size), Some(MAGIC_V1 | MAGIC_V2)) => size as usize,
            _ => return Ok(None),
        };
        if size > RECORD_BYTES_MAX {
            return Ok(None);
        }
        self.fill(at, size)?;
        Ok(Some(size))
    }

    /// What is held from `at` on.
    fn from(&self, at: u64) -> &[u8] {
        at.checked_sub(self.window_at)
            .and_then(|skip| self.window.get(usize::try_from(skip).ok()?..))
            .unwrap_or_default()
    }

    /// Holds at least `need` bytes from `at` on, or all that the file has.
    fn fill(&mut self, at: u64, need: usize) -> io::Result<()> {
        let held = self.from(at).len();
        let left = usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX);
        if held >= need.min(left) {
            return Ok(());
        }
        let gone = self.window.len() - held;
        self.window.copy_within(gone.., 0);
        self.window_at = at;
        self.window.resize(need.max(self.window_min).min(left), 0);
        let mut known = held;
        while let Some(rest) = self.window.get_mut(known..).filter(|it| !it.is_empty()) {
            match self.file.read_at(rest, at + known as u64) {
                Ok(0) => {
                    self.window.truncate(known);
                    self.len = at + known as u64;
                }
                Ok(count) => known += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Where records may begin whose magic number is in `bytes`, which are at `at`.
fn candidates(bytes: &[u8], at: u64, from: u64) -> Vec<u64> {
    let (v1, v2) = (MAGIC_V1.to_be_bytes(), MAGIC_V2.to_be_bytes());
    let places = bytes.windows(4).enumerate();
    places
        .filter(|(_, four)| *four == v1 || *four == v2)
        .filter_map(|(index, _)| (at + index as u64).checked_sub(4))
        .filter(|start| *start >= from)
        .collect()
}

/// What is wrong with bytes, for people.
pub fn text(why: Why) -> &'static str {
    match why {
        Why::Magic => "no record's magic number",
        Why::Length => "a length that does not fit",
        Why::Sum => "lengths that do not add up to the record's size",
        Why::Checksum => "a body CRC that differs",
    }
}

/// A record that is whole but cannot be shown, as damage.
pub fn content(begin: u64, size: u32, error: &CodecError) -> Damage {
    Damage {
        begin,
        end: begin + u64::from(size),
        why: error.to_string(),
    }
}
