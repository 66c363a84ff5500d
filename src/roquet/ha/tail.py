"""How a slave shows that the end of its log is the master's, before anything is copied.

The protocol of a pair has no handshake: the first 8 bytes say where the slave's log ends, and say
nothing about what is in it. A slave of ours writes seven words of 8 bytes before them, in one
write: a mark, where the compared range ends, how long it is, and a digest of it. Each word is a
negative number, and a Java master believes only the last whole number of what it has read, so that
it sees the report alone. A master of ours compares and answers with a header whose length no frame
has; a Java master begins with a frame or a heartbeat, and then nothing was compared.

Invariants:
- a master never sends a byte of its log to a slave whose digest differs;
- a slave appends nothing before it has the answer, or knows that there will be none;
- a slave has proven no more than the digest covers, which is whole records;
- only a digest of a whole window, or of all from where a file begins, proves anything: few bytes
  can be guessed.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import struct
from typing import TYPE_CHECKING

from roquet.ha.frames import HEADER, REPORT, PeerFault

if TYPE_CHECKING:
    from roquet.ha.log import ReplicatedLog

WINDOW = 256 * 1024
"""Bytes at the end of the slave's log that are compared."""
_MARK = b"\x81ROQTAIL"
_WORD = 8
_PAYLOAD = 7
_DIGEST_SIZE = 4 * _PAYLOAD
_WORDS = 7
CLAIM_SIZE = _WORDS * _WORD
_NUMBER = struct.Struct(">Q")
_TOP = 1 << 63
_OWN_OFFSET, _FRONT = 28, 36
"""Where a record says at which offset it begins."""


class Verdict(enum.IntEnum):
    """What a master answers to a digest: the length field of a header without a piece."""

    PROCEED = -1
    """The end is the same, or the master does not have all of it any more."""
    DIFFERS = -2
    """The master has other bytes there."""
    AHEAD = -3
    """The slave's log ends behind the master's."""
    GONE = -4
    """The master's log begins behind the slave's end."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tail:
    """A range at the end of a log and the digest of its bytes."""

    end: int
    size: int
    digest: bytes

    @property
    def begin(self) -> int:
        """Offset of the first byte compared."""
        return self.end - self.size

    def is_full(self, file_bytes: int) -> bool:
        """Tell whether it covers as much as a slave can show, whose files have `file_bytes`."""
        return self.size == WINDOW or (self.size > 0 and self.begin % file_bytes == 0)

    def encode(self) -> bytes:
        """Return what is written before the first report."""
        pieces = [self.digest[at : at + _PAYLOAD] for at in range(0, _DIGEST_SIZE, _PAYLOAD)]
        words = [b"%c%s" % (0x84 + number, piece) for number, piece in enumerate(pieces)]
        numbers = [_NUMBER.pack(_TOP | number) for number in (self.end, self.size)]
        return b"".join((_MARK, *numbers, *words))


def tail_of(log: ReplicatedLog) -> Tail:
    """Return the end of a slave's own log. Raises StoreFault."""
    end = log.limit
    size = max(0, min(WINDOW, end - log.begin))
    return Tail(end, size, _digest(log, end - size, end))


def is_same(log: ReplicatedLog, tail: Tail) -> bool | None:
    """Compare with a master's log; None when it has not all of the range. Raises StoreFault."""
    if not tail.size or tail.begin < log.begin or tail.end > log.limit:
        return None
    return _digest(log, tail.begin, tail.end) == tail.digest


def doubtful_end(log: ReplicatedLog, report: int, end: int) -> int:
    """Return the end of what a slave without a proof may have in part. Raises StoreFault.

    That is its report, when a record of the log, which ends at `end`, begins there. Else the slave
    may have the beginning of another record there, and where this one ends is not looked for.
    """
    if report in {0, end}:
        return report
    front = log.read(report, _FRONT)
    own = front[_OWN_OFFSET:_FRONT]
    return report if own == _NUMBER.pack(report) else end


def _digest(log: ReplicatedLog, begin: int, end: int) -> bytes:
    digest = hashlib.sha256()
    while begin < end:
        piece = log.read(begin, end - begin)
        if not piece:
            break
        digest.update(piece)
        begin += len(piece)
    return digest.digest()[:_DIGEST_SIZE]


class Arrival:
    """The master's side: the first words of a slave, with or without a digest."""

    def __init__(self) -> None:
        self._data = b""

    def receive(self, data: bytes) -> tuple[Tail | None, int, bytes] | None:
        """Return (the slave's tail, its first report, bytes behind); None while bytes are missing.

        Without a digest the tail is None. Raises PeerFault for words that mean nothing.
        """
        self._data += data
        size = CLAIM_SIZE if self._data[:1] == _MARK[:1] else 0
        if len(self._data) < size + REPORT.size:
            return None
        tail = _claim(self._data[:CLAIM_SIZE]) if size else None
        (report,) = REPORT.unpack_from(self._data, size)
        if report < 0:
            raise PeerFault(f"reports a negative offset, {report}")
        if tail is not None and tail.end > report:
            raise PeerFault(f"shows its log up to {tail.end} and reports {report}")
        return tail, report, self._data[size + REPORT.size :]

    @property
    def missing(self) -> str:
        """What was written so far, for the log."""
        return f"wrote {len(self._data)} bytes, which is no report"


def _claim(data: bytes) -> Tail:
    words = [data[at : at + _WORD] for at in range(0, CLAIM_SIZE, _WORD)]
    end, size = (_NUMBER.unpack(word)[0] ^ _TOP for word in words[1:3])
    tags = bytes(word[0] for word in words[3:])
    if words[0] != _MARK or tags != b"\x84\x85\x86\x87" or size > min(WINDOW, end):
        raise PeerFault("shows the end of its log in a form that is not known")
    return Tail(end, size, b"".join(word[1:] for word in words[3:]))


class Answer:
    """The slave's side: what the master says first."""

    def __init__(self) -> None:
        self._data = b""

    def receive(self, data: bytes) -> tuple[Verdict | None, bytes] | None:
        """Return (verdict, bytes behind it); None while bytes are missing.

        The verdict is None for a master that compares nothing; all its bytes are left then.
        """
        self._data += data
        if len(self._data) < HEADER.size:
            return None
        _, size = HEADER.unpack_from(self._data)
        try:
            verdict = Verdict(size)
        except ValueError:
            return None, self._data
        return verdict, self._data[HEADER.size :]


def encode_verdict(verdict: Verdict, offset: int) -> bytes:
    """Return what a master answers; `offset` is where its own log ends."""
    return HEADER.pack(offset, verdict)
