//! The frames of one read in turn, and whether accounts allow each of them to be answered here.
//!
//! Two signatures are looked at side by side, which is cheaper, so that a frame may be judged while the one
//! before it has its turn. The table does not change meanwhile, so the judgement is that of its own turn.

use super::Room;
use crate::codec::command::{Header, FLAG_RESPONSE};
use crate::codec::error::CodecError;
use crate::codec::frame::{self, Frame};
use crate::ingest::connection::Peer;
use crate::ingest::table::Table;

/// What the frames of one read are judged by, and how far they have been looked at.
pub(in crate::ingest) struct Turns<'t, 'b> {
    table: &'t Table,
    room: &'t mut Room,
    peer: Peer,
    /// Whether the peer needs no account.
    pub(in crate::ingest) trusted: bool,
    is_on: bool,
    frame_size_max: usize,
    bytes: &'b [u8],
    /// Bytes of the frames that have had their turn.
    pub(in crate::ingest) used: usize,
    /// The next frame, if it was read already, and what was found.
    ahead: Option<(Frame<'b>, Header<'b>)>,
    judged: Option<bool>,
}

/// A frame that has its turn.
pub(in crate::ingest) struct Turn<'b> {
    pub(in crate::ingest) frame: Frame<'b>,
    pub(in crate::ingest) header: Header<'b>,
    /// All of its bytes.
    pub(in crate::ingest) whole: &'b [u8],
    /// Whether it is a request that the fast path may look at.
    pub(in crate::ingest) admits: bool,
    /// Whether, besides, its sender may have it answered.
    pub(in crate::ingest) permitted: bool,
}

impl<'t, 'b> Turns<'t, 'b> {
    pub(in crate::ingest) fn new(
        table: &'t Table,
        room: &'t mut Room,
        peer: Peer,
        bytes: &'b [u8],
        frame_size_max: usize,
    ) -> Self {
        Self {
            table,
            room,
            peer,
            trusted: table.trusts(peer),
            is_on: table.is_on(),
            frame_size_max,
            bytes,
            used: 0,
            ahead: None,
            judged: None,
        }
    }

    /// The next frame; `passing` says that all frames are for the processors.
    pub(in crate::ingest) fn next(
        &mut self,
        passing: bool,
    ) -> Result<Option<Turn<'b>>, CodecError> {
        let rest = self.bytes.get(self.used..).unwrap_or_default();
        let found = match self.ahead.take() {
            None => next(rest, self.frame_size_max)?,
            found => found,
        };
        let Some((frame, header)) = found else {
            return Ok(None);
        };
        self.used += frame.size;
        let judged = self.judged.take();
        let admits = self.is_on && !passing && header.flag & FLAG_RESPONSE == 0;
        let permitted = admits && judged.unwrap_or_else(|| self.permits(&frame, &header));
        Ok(Some(Turn {
            frame,
            header,
            whole: rest.get(..frame.size).unwrap_or_default(),
            admits,
            permitted,
        }))
    }

    /// Judges the frame that has its turn, and the next one with it.
    fn permits(&mut self, frame: &Frame<'_>, header: &Header<'_>) -> bool {
        let Some(accounts) = self.table.accounts.as_ref().filter(|_| !self.trusted) else {
            return true;
        };
        let rest = self.bytes.get(self.used..).unwrap_or_default();
        // What cannot be read is said when it has its turn.
        self.ahead = next(rest, self.frame_size_max).ok().flatten();
        let asked = (header, frame.body);
        let host = self.peer.host();
        match &self.ahead {
            Some((next, behind)) if behind.flag & FLAG_RESPONSE == 0 => {
                let both = [asked, (behind, next.body)];
                let [permitted, judged] = accounts.permit_both(both, host, self.room);
                self.judged = Some(judged);
                permitted
            }
            _ => accounts.permit(asked, host, self.room),
        }
    }
}

/// Reads the frame at the start of `bytes`; `None` when more are needed.
pub(in crate::ingest) fn next(
    bytes: &[u8],
    frame_size_max: usize,
) -> Result<Option<(Frame<'_>, Header<'_>)>, CodecError> {
    match frame::cut(bytes, frame_size_max)? {
        None => Ok(None),
        Some(frame) => frame.decode_header().map(|header| Some((frame, header))),
    }
}
