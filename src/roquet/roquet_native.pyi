# The compiled core as Python sees it. `make native-lint` compares this file with the built module.
#
# Conventions: times are Unix milliseconds, offsets and sizes bytes unless "queue offset" is said.
# A host is its 4 or 16 address bytes followed by the port as i32 (8 or 20 bytes), as on disk.
# Calls that can take longer than a millisecond release the GIL.

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias, final

from typing_extensions import Buffer

__all__ = [
    "ArrowBatch",
    "BalancerHeader",
    "Exchange",
    "Filter",
    "GrpcConsumers",
    "GrpcForwarder",
    "GrpcSends",
    "GrpcServer",
    "GrpcTls",
    "HeaderPlan",
    "Ingest",
    "LogLink",
    "LogReader",
    "NetConnection",
    "NetThreads",
    "PairTls",
    "RemotingTls",
    "SendForwarder",
    "SinkEncoder",
    "Store",
    "StoreError",
    "TimerWheel",
    "TlsSession",
    "checkpoint_of",
    "copy_popped",
    "crc32",
    "decode_frames",
    "decode_messages",
    "decode_records",
    "deleted_topics",
    "encode_command",
    "feed_log",
    "first_panic",
    "follow_another_log",
    "follow_deletions",
    "follow_log",
    "is_locked",
    "java_hashes",
    "lead_log",
    "log_bytes",
    "log_deletions",
    "log_limit",
    "plant_panic",
    "project_records",
    "rebuild_index_file",
    "rebuild_piece",
    "rebuild_queue_file",
    "rebuild_span",
    "records_to_arrow",
    "settle_log",
    "share_arenas",
    "sink_key",
    "sum_records",
    "sum_rows",
    "take_renewed",
    "watch_panics",
]

def crc32(data: Buffer) -> int:
    """Zlib CRC-32 without its top bit."""

# --- frames -------------------------------------------------------------------------------------

def decode_frames(
    data: Buffer, frame_size_max: int = 16_777_216
) -> tuple[
    list[tuple[int, int, int, str, int, int, str | None, dict[str, str] | None, bytes]], int
]:
    """Cut and decode the whole frames at the start of `data`.

    Returns (frames, bytes used). A frame is (encoding, code, flag, language, version, opaque,
    remark, ext, body). Raises ValueError, saying what is wrong, as soon as the first bytes cannot
    become a frame (spec: wire §2, bad input B1-B4); what follows whole frames raises when it is
    the first.
    """

def encode_command(
    encoding: int,
    code: int,
    flag: int,
    language: str,
    version: int,
    opaque: int,
    remark: str | None,
    ext: Mapping[str, str] | None,
    body: Buffer,
    body_apart: bool = False,
) -> bytes:
    """Encode one whole frame, length included; without its body when `body_apart`."""

# --- records ------------------------------------------------------------------------------------

def decode_records(
    data: Buffer, check_crc: bool = True
) -> list[
    tuple[
        int, int, int, int, int, int, int, int, bytes, int, bytes, int, int, bytes, str, bytes, int
    ]
]:
    """Decode stored records that follow each other without a gap (a pull response's body).

    A record is (total size, body crc, queue id, flag, queue offset, physical offset, sys flag,
    born time, born host, store time, store host, reconsume times, prepared transaction offset,
    body, topic, properties as stored, magic). Bodies stay compressed. Raises ValueError on a
    length that does not fit or a CRC that differs.
    """

def decode_messages(
    data: Buffer, broker_name: str, host_text: Callable[[bytes], str]
) -> list[_MessageRow]:
    """Decode stored records that follow each other into what a client's message is made of.

    A row is (topic, body as stored, properties, offset id, queue id, queue offset, physical offset,
    total size, born time, born host, store time, store host, flag, sys flag, body crc, reconsume
    times, prepared transaction offset, broker name). `host_text` writes a host of 8 or 20 bytes; it is called for a host that is not the one of the
    record before. Raises as `decode_records` does.
    """

def project_records(records: Buffer, text: str) -> bytes:
    """Return stored records with only the fields that a projection wants, bodies never.

    Raises ValueError for a projection that is none, and for bytes that are no records.
    """

@final
class ArrowBatch:
    """A finished record batch; hand it to `pyarrow.record_batch`."""

    num_rows: Final[int]
    next: Final[tuple[int, int] | None]
    """(body, byte) where the next batch goes on, when this one was full before the end."""
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[Any, Any]: ...

_SinkTexts: TypeAlias = tuple[int, Buffer | None, Buffer, Buffer | None]
"""Rows in front, validity, offsets, data: the buffers of an Arrow array of texts or bytes."""
_SinkLists: TypeAlias = tuple[int, Buffer | None, Buffer]
"""Rows in front, validity, offsets: the buffers of an Arrow array of lists or maps."""
_SinkFrame: TypeAlias = tuple[int, bytes, int, str]
"""Lot, body of a batch send, messages in it, unique key of the first."""

@final
class SinkEncoder:
    """Encodes rows of Arrow batches into bodies of batch sends, one open body for each lot.

    The key of a row without one is `sink_key(key_prefix, number)`, its number counted over all
    calls; properties named in `left_out` are left out. A body is full at `chunk_rows` rows, or when
    it would become longer than `size_max` bytes. With `alone`, and for rows with a delay, a message
    need not fit into a batch.
    """

    def __new__(
        cls,
        key_prefix: str,
        left_out: Sequence[str],
        *,
        size_max: int,
        chunk_rows: int,
        alone: bool = False,
    ) -> SinkEncoder: ...
    @property
    def bytes(self) -> int:
        """Bytes of the bodies that are not full."""

    def add(
        self,
        rows: int,
        lots: Buffer,
        body: _SinkTexts,
        *,
        keys: _SinkTexts | tuple[_SinkLists, _SinkTexts] | None = None,
        tags: _SinkTexts | None = None,
        properties: tuple[_SinkLists, _SinkTexts, _SinkTexts] | None = None,
        sharding: _SinkTexts | None = None,
        unique: _SinkTexts | None = None,
        delay: Buffer | None = None,
    ) -> tuple[list[_SinkFrame], tuple[int, str, str] | None]:
        """Take rows; return the bodies that became full, and what is wrong with a row.

        `lots` and `delay` are 32-bit numbers in the machine's order, one a row. What is wrong is
        (row, kind, detail): `no body`, `body size` with its bytes, `key`, `property` with its name,
        `properties size` or `batch size`; the encoder is of no use then. Nobody may write to the
        buffers meanwhile: the GIL is released.
        """

    def finish(self) -> list[_SinkFrame]:
        """Return the bodies that are not full, in the order of their lots."""

def sink_key(prefix: str, row: int) -> str:
    """The unique key of a row: half of the SHA-256 of `prefix` and the number, 32 hex digits."""

def java_hashes(rows: int, column: _SinkTexts) -> bytes:
    """Java's String.hashCode of each text, as 32-bit numbers in the machine's order; null is 0."""

def sum_rows(rows: int, offsets: Buffer, unique: _SinkTexts, body: _SinkTexts) -> int:
    """Sum the CRC-32 of rows: queue offset in decimal, space, unique key, space, body.

    `offsets` are 64-bit numbers in the machine's order, `unique` and `body` the buffers of arrays,
    whose nulls are empty. Raises ValueError when there are fewer offsets than rows.
    """

def sum_records(
    bodies: Sequence[bytes],
    *,
    bucket: int,
    begin: int = 0,
    end: int = ...,
    stored_begin: int = ...,
    stored_end: int = ...,
    decompress_max: int = 67_108_864,
) -> list[tuple[int, int, int, int, int]]:
    """Sum up stored records by buckets of `bucket` offsets.

    A row for each bucket that has messages: its number, count, checksum, first and last offset. The
    checksum is the XOR of Spark's `xxhash64(queueOffset, coalesce(uniqKey, ''), body)`. `begin` and
    `end` are queue offsets, `stored_begin` and `stored_end` Unix milliseconds.

    Raises ValueError for bytes that are no records and bodies that cannot be unpacked.
    """

def records_to_arrow(
    bodies: Sequence[bytes],
    broker_name: str,
    *,
    columns: Sequence[str] | None = None,
    begin: int = 0,
    end: int = ...,
    tags: Sequence[str] | None = None,
    decompress_max: int = 67_108_864,
    check_crc: bool = True,
    rows_max: int = ...,
    bytes_max: int = ...,
    start: tuple[int, int] = ...,
    projected: bool = False,
) -> ArrowBatch:
    """Decode pull response bodies into one batch with the columns of the Spark source.

    Only rows with begin <= queue offset < end are kept, and only those whose TAGS is one of
    `tags` when given. The batch ends early, saying so in `next`, at `rows_max` rows or `bytes_max`
    bytes; `start` is such a `next`. Column order and types: docs/design/spark.md. With `projected`
    records that a broker has left bodies out of are read too. Raises ValueError, for the column
    `body` as well then.
    """

@final
class LogReader:
    """The records of one part of one commit-log file. Offsets are those of the log.

    The file begins at `base` and should end at `file_end`; records and damage that begin in
    [begin, end) are this reader's. `stored` is a half-open range of store times. `read` takes the
    place of the file at `path`: a function (place, bytes) that returns fewer bytes only where the
    file ends, and the file's length. What it raises, `next` raises.
    """

    def __new__(
        cls,
        path: str,
        base: int,
        file_end: int,
        begin: int,
        end: int,
        *,
        broker_name: str = "",
        columns: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        topics: Sequence[str] | None = None,
        stored: tuple[int, int] = ...,
        last: bool = False,
        live: bool = False,
        stop: int = ...,
        stop_time: int = ...,
        rows_max: int = 16_384,
        bytes_max: int = 33_554_432,
        decompress_max: int = 67_108_864,
        read: tuple[Callable[[int, int], bytes], int] | None = None,
    ) -> LogReader:
        """Open the file. Raises OSError."""
    def next(self) -> tuple[ArrowBatch, list[tuple[int, int, str]]] | None:
        """Return a batch and the damage (begin, end, why) passed meanwhile; None at the end."""

def checkpoint_of(data: bytes) -> tuple[int, int, int | None]:
    """Read a `checkpoint` file: (log time, confirmed offset, durable end if ours is valid)."""

def is_locked(path: str) -> bool:
    """Whether a broker holds the lock file at `path`; the lock is not taken. Raises OSError."""

# --- rebuilding ---------------------------------------------------------------------------------

def rebuild_piece(
    piece: str,
    path: str,
    base: int,
    file_end: int,
    begin: int,
    end: int,
    *,
    delays: Sequence[int],
    deleted: Mapping[str, int],
    last: bool = False,
) -> tuple[
    tuple[int, int, int, int],
    tuple[int, int, int] | None,
    list[tuple[str, int, int, int, int, int, int, list[int], bool]],
    list[tuple[str, str, int]],
    list[tuple[int, int, str]],
]:
    """Read what of a commit-log file begins in [begin, end); write queue units and keys to `piece`.

    Returns (records, bytes, first byte of keys, keys), the last record's begin, end and store time,
    the queues (topic, queue id, first byte, units, first queue offset, behind the last, first log
    offset, log offsets of records at queue offset 0, gapless), records without a queue (topic, why,
    count) and damage (begin, end, why). Raises OSError.
    """

def rebuild_span(run: tuple[str, int, int], cut: int, floor: int) -> tuple[int, int, int, int]:
    """Look at units (piece, first byte, count) of records behind `cut`, from queue offset `floor` on.

    Returns how many there are, the first queue offset, the one behind the last, and the log offset
    behind the last record. Raises OSError.
    """

def rebuild_queue_file(
    path: str,
    begin: int,
    units: int,
    first: int,
    runs: Sequence[tuple[str, int, int]],
    cut: int,
    floor: int,
) -> int:
    """Write the queue file of `units` from queue offset `begin` on; return its messages.

    `first` is the queue's first offset. Raises OSError.
    """

def rebuild_index_file(
    path: str, slots: int, entries: int, runs: Sequence[tuple[str, int, int]]
) -> int:
    """Write an index file of keys (piece, first byte, count); return how many. Raises OSError."""

def deleted_topics(root: str) -> list[tuple[str, int]]:
    """Read a store's note of deleted topics: name, end of the log at that moment. Raises StoreError."""

# --- store --------------------------------------------------------------------------------------

class StoreError(Exception):
    """The store cannot do it; `args` is (kind, text), kind one of `corrupt disk_full io locked closed usage`."""

@final
class Filter:
    """A compiled SQL92 filter; it may be used from any thread."""

    def __new__(cls, steps: Sequence[tuple[object, ...]]) -> Filter:
        """Check the steps of `roquet.protocol.sql92.compiler`. Raises ValueError."""
    @staticmethod
    def by_origin(steps: Mapping[str, Sequence[tuple[object, ...]]]) -> Filter:
        """Make the filter of a retry topic from the steps for each topic of origin. Raises ValueError."""
    def evaluate(self, properties: bytes) -> bool | None:
        """Run on a property text; None is SQL's null. Raises ValueError where the values do not fit."""
    def matches(self, properties: bytes) -> bool:
        """Tell whether a message with this property text is wanted."""

@final
class HeaderPlan:
    """The fields of one typed header: (field, name on the wire, `str bool i32 i64`, required)."""

    def __new__(cls, rows: Sequence[tuple[str, str, str, bool]]) -> HeaderPlan: ...
    def read(self, ext: dict[str, str]) -> dict[str, Any] | None:
        """Return the values by field, those that are there.

        None when a required one is missing, or one is not plain digits that surely fit, or no
        ASCII: whoever asks looks closer then.
        """

@final
class TimerWheel:
    """Messages of any delay of one store, and the thread that fires them. Every method may be called from any thread."""

    @staticmethod
    def open(
        store: Store,
        *,
        log_file_size: int,
        precision_ms: int,
        window: int,
        flush_ms: int,
        key_has_topic: bool,
    ) -> TimerWheel:
        """Load `timerwheel`, `timerlog` and `config/timercheck`, or make them; nothing fires before `start`. Raises StoreError."""
    @staticmethod
    def saved_checkpoint(folder: str) -> bytes | None:
        """The 56 bytes of the checkpoint that a wheel of this config folder saved last; None without one, or for a damaged one. Raises StoreError."""
    def start(self) -> None:
        """Start the thread; twice is once."""
    def close(self) -> None:
        """Stop the thread and make everything durable. Call it before the store is closed. Raises StoreError."""
    def allow(self, enqueues: bool, dequeues: bool) -> None:
        """Whether messages enter the wheel, and whether due ones fire; both at first."""
    def set_snapshots(self, every_ms: int) -> None:
        """Make snapshots of the wheel, `timerwheel.<position>`, each so many milliseconds; 0: none, as at first."""
    def waiting_at(self, time_ms: int) -> int:
        """Messages waiting in the slot of a time, Unix milliseconds."""
    def distribution(self, bounds_ms: Sequence[int]) -> list[int]:
        """Waiting messages due before each bound and not before the last one, milliseconds from now, ascending."""
    def metrics(self) -> list[tuple[str, int, int]]:
        """Waiting messages: (topic, count, time of the last change in Unix milliseconds)."""
    def traffic(self) -> list[tuple[str, int, int, list[int], int]]:
        """What entered and left for each topic since the start: (topic, entered, stored where it was meant for, entered by class of delay, sum of the delays in seconds). The classes end at 60, 600, 3,600, 43,200, 86,400 and 259,200 s; the last has no bound."""
    def set_metrics(self, rows: Sequence[tuple[str, int, int]]) -> None:
        """Take over waiting messages by topic from the last run; a wheel that was made anew counts its own."""
    def recount(self, below: int) -> list[tuple[str, int, int]] | None:
        """Count what waits for topics with fewer than `below` messages and correct the counts: (topic, before, after) of each that was wrong. None when it has to be tried later. May take seconds."""
    def checkpoint(self) -> bytes:
        """The 56 bytes of the checkpoint (spec: store §8, timercheck)."""
    def trouble(self) -> str | None:
        """Why the wheel cannot go on at the moment."""
    def stats(self) -> dict[str, int]:
        """Counters `enqueued fired rolled cancelled unreadable refused waits broken_chains`; `read_ms`, `write_ms` and `behind`; what the start found: `rebuilt_units` (-1 for none), `cut_bytes`, `replayed`."""

@final
class NetConnection:
    """A connection that a thread of `NetThreads` serves."""

    def write(self, data: Buffer) -> bool:
        """Write whole frames behind all others.

        True: the peer does not take what is there, and `drained` comes when it does again.
        """
    def unsent(self) -> int:
        """Bytes that are not in the socket's buffer yet."""
    def pause(self, paused: bool) -> None:
        """Read no further, or go on."""
    def prove(self) -> None:
        """An account was proven on this connection."""
    def close(self) -> None:
        """Close once everything is written and no send waits for its answer."""
    def abort(self) -> None:
        """Close at once."""
    def finish(self, frames: int) -> None:
        """The handlers have finished the first `frames` frames that came out, and have no other."""
    def took(self, size: int) -> None:
        """Work on frames has begun whose news said that they take so many bytes."""
    def give_back(self) -> None:
        """Want it back from its thread, if nothing is left to do for it there.

        `back` or `stays` follows, unless it has ended. What is written before that may be lost.
        """
    def socket(self) -> int:
        """Take its descriptor after `back`, once. Raises ValueError."""
    def session(self) -> TlsSession | None:
        """Take its TLS after `socket`, once; None when it is plain."""
    def take_back(self, ingest: Ingest | None, *, works: bool, waits: bool) -> tuple[bytes, bool]:
        """Take over what was known of its peer, once: (start of a frame, whether held pulls are due).

        `ingest` knows the connection already; its handlers have requests of it in hand
        (`works`) or are to get some yet (`waits`). Raises ValueError.
        """
    def traffic(self) -> int:
        """A number that moves with everything that is read or written."""

@final
class RemotingTls:
    """How a remoting port speaks TLS."""

    def __new__(
        cls,
        *,
        cert: bytes,
        key: bytes | None,
        password: str,
        versions: tuple[bool, bool],
        trust: bytes | None = None,
        demands: bool = False,
    ) -> RemotingTls:
        """Read PEM: certificate chain, its key (None: in the same file), who signs clients' certificates.

        Without `trust` none is asked for; `demands`: clients have to show one. `versions`: whether 1.2
        is spoken, and 1.3. Raises ValueError with what is wrong.
        """
    def session(self) -> TlsSession:
        """Begin a connection, which keeps what it began with."""

@final
class TlsSession:
    """The server's side of one connection's TLS, without its socket."""

    def take(self, sealed: Buffer) -> tuple[bytes, int]:
        """Take what the peer sent; return what that held, and flags.

        1: `output` is to be sent; 2: the handshake is not done; 4: the peer says that nothing
        follows. Raises ValueError with what is wrong; what `output` has is to be sent then.
        """
    def output(self) -> bytes:
        """Return what has to be sent now."""
    def seal(self, plain: Buffer) -> bytes:
        """Return the form in which bytes are sent. Raises ValueError before the handshake is done."""
    def farewell(self) -> bytes:
        """Return what tells the peer that nothing follows."""

@final
class GrpcTls:
    """How the port of gRPC speaks TLS. Connections keep what they began with."""

    def __new__(
        cls,
        *,
        cert: bytes,
        key: bytes | None,
        password: str,
        trust: bytes | None,
        demands: bool,
        versions: tuple[bool, bool],
    ) -> GrpcTls:
        """Read PEM: certificate chain, its key (None: in the same file), who signs clients' certificates.

        `demands`: clients have to show one. `versions`: whether 1.2 is spoken, and 1.3. Raises
        ValueError, which says what is wrong.
        """

@final
class BalancerHeader:
    """What a balancer says of a client before anything else: a header of the PROXY protocol."""

    def __new__(cls) -> BalancerHeader:
        """Begin with nothing."""

    def wanted(self) -> int:
        """Return how many bytes have to be taken next, 0 when the header is whole.

        Raises ValueError for what is none, or too long.
        """

    def take(self, data: Buffer) -> None:
        """Take bytes, of which there may be no more than are wanted."""

    def client(self) -> str | None:
        """Return `ip:port` of the client that a whole header names, None for nobody.

        Raises ValueError for a header that says nothing that can be.
        """

@final
class GrpcServer:
    """A thread that serves connections of gRPC; which methods there are it does not know."""

    def __new__(
        cls,
        fd: int,
        streaming: list[str],
        *,
        connections: int,
        address_connections: int,
        calls: int,
        header_bytes: int,
        message_bytes: int,
        inbound_bytes: int,
        connection_inbound_bytes: int,
        account_inbound_bytes: int,
        outbound_bytes: int,
        resets: int,
        idle_ms: int,
        patience_ms: int,
        tls: GrpcTls | None = None,
        only_tls: bool = False,
        balancers: Sequence[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]] = ...,
        secrets: Mapping[str, bytes] | None = None,
    ) -> GrpcServer:
        """Serve a listening socket, whose descriptor is the thread's from now on. Raises OSError.

        Of `connections` one client's address has `address_connections` at most.
        `streaming` are the paths whose requests are streams. `calls` is for each connection,
        `resets` are those of calls by a client in ten seconds, `outbound_bytes` are answers that a
        connection has not read: one with more is closed. `patience_ms` is for a whole request,
        progress of an answer and the answer to a ping. `balancers` are networks (address, bits)
        whose peers say by the PROXY protocol for whom they speak. `secrets` by access key: with
        them nothing of a call is read before one of these accounts has signed it, or `admit`.
        """
    def descriptor(self) -> int:
        """Readable while `take` has something."""
    def take(self) -> list[tuple[Any, ...]]:
        """Take news: what happened, the number it is about, and more.

        `call`: connection, path, `ip:port` of the client, ours, authority, metadata as pairs,
        the request or None where requests are streams or nobody has signed. `message`: its bytes. `ended`: the client
        sends no further messages. `gone`: nobody waits for the answer, the number means nothing any
        more. `drained`, `closed`: numbers of connections. `refused`: 0, `ip:port` of a peer whose
        connection was closed as it began, and why.
        """
    def set_tls(self, tls: GrpcTls) -> None:
        """Have connections that are accepted from now on use a certificate."""
    def set_secrets(self, secrets: Mapping[str, bytes] | None) -> None:
        """Say anew by which secrets calls may be signed; None: nobody has to sign."""
    def admit(self, call: int, most: int) -> bool:
        """Read messages of at most so many bytes of a call that no account has signed.

        False when the call has ended.
        """
    def send(self, call: int, message: bytes) -> bool:
        """Send a message of an answer; false when the call has ended."""
    def send_framed(self, call: int, messages: Buffer) -> bool:
        """Send messages of an answer that are framed already; false when the call has ended."""
    def finish(self, call: int, status: int, text: str) -> bool:
        """End a call; false when it has ended."""
    def is_slow(self, call: int) -> bool:
        """Whether its connection has too much to read; then `drained` or `closed` follows."""
    def close(self, connection: int) -> None:
        """End a connection at once."""
    def counts(self) -> tuple[int, int]:
        """Connections and calls."""
    def leave(self) -> None:
        """Accept no further connections and tell clients to go elsewhere (GOAWAY).

        Calls under way go on, and so do those that a client began before it heard of it.
        """
    def stop(self) -> None:
        """Leave, wait up to 3 s for calls under way, end the thread."""

@final
class GrpcSends:
    """Answers plain sends of one port from the fast path of a broker of this process."""

    def __new__(
        cls,
        *,
        body: int,
        properties: int,
        property_bytes: int,
        group: int,
        checks_type: bool,
        reserved: set[str],
    ) -> GrpcSends:
        """Say what a message may have; sizes are bytes, of which 0 stands for no limit."""
    @staticmethod
    def queue_of_group(group: str, queues: int) -> int:
        """The queue of a message group."""
    def take(self, server: GrpcServer, ingest: Ingest, now_ms: int) -> list[tuple[Any, ...]]:
        """Take all news of a server, but for the sends that are answered here.

        Those are stored by the rows of the ingest, and counted with `take_called`.
        """

@final
class GrpcForwarder:
    """Takes plain calls of one port to brokers of a cluster, and their answers back."""

    def __new__(
        cls,
        sends: GrpcSends,
        consumers: GrpcConsumers,
        *,
        template: str,
        template_queues: int,
        version: int,
        frame_max: int,
        send_ms: int,
        ack_ms: int,
        calls_max: int,
    ) -> GrpcForwarder:
        """Say what is plain, and how brokers are asked; times are milliseconds."""
    def put(
        self, topic: str, takes: tuple[bool, bool], places: Sequence[tuple[str, int]], until_ms: int
    ) -> None:
        """Let messages of a topic pass until a steady time: those without a group, and with one.

        Places are brokers with the queues that each has for writing.
        """
    def forget(self, topic: str) -> None:
        """Leave a topic to the front."""
    def open(self, broker: str, line: int) -> None:
        """Know the connection to a broker."""
    def retire(self, broker: str) -> None:
        """Ask a broker nothing more until it has another connection."""
    def close(self, line: int) -> list[_ForwardedCall]:
        """Forget a connection that has ended; the calls whose answers cannot come any more."""
    def late(self, steady_ms: int) -> list[_ForwardedCall]:
        """The calls that have waited for too long."""
    def held(self, line: int) -> int:
        """Bytes of a line's incomplete frame."""
    def counts(self) -> tuple[int, int]:
        """How many sends and how many calls with acknowledgements wait for a broker."""
    def take(
        self, server: GrpcServer, now: tuple[int, int], settles: Callable[[str], bool]
    ) -> tuple[list[tuple[Any, ...]], list[tuple[int, bytes, list[int]]], list[str]]:
        """Take all news of a server at a steady and a Unix time.

        Return what is for the front; for each line its key, frames to write, and the calls that
        they are of; and brokers without a line. `settles` tells whether acknowledgements of a
        client end nothing but the flight of messages.
        """
    def take_back(self, calls: Sequence[int]) -> list[tuple[Any, ...]]:
        """Take calls back, as news, whose frames were not written."""
    def feed(
        self, server: GrpcServer, line: int, data: Buffer
    ) -> tuple[bool, bytes, list[_ForwardedCall], list[tuple[Any, ...]], str] | None:
        """Take bytes of a broker, and answer the calls that they end.

        Return whether any call had an answer, frames that are for others, calls to be told, calls
        that are news again, and why the connection is broken; None for nothing but plain answers.
        """

@final
class SendForwarder:
    """Takes plain sends of the remoting protocol to brokers, and the answers back."""

    def __new__(
        cls, *, frame_max: int, patience_ms: int, sends_max: int, typed: Sequence[str]
    ) -> SendForwarder:
        """Say what is allowed, and which properties give a message a type."""
    def put(self, topic: str, broker: str, line: int, until_ms: int) -> None:
        """Let sends to a topic of a broker pass by a connection until a steady time."""
    def forget(self, steady_ms: int | None) -> None:
        """Forget what counts no more at a steady time; with None, everything."""
    def waits(self) -> int:
        """How many sends wait for a broker."""
    def held(self, key: int) -> int:
        """Bytes of a connection's incomplete frame."""
    def close(self, key: int) -> list[tuple[int, int, int, bytes]]:
        """Forget a connection of either side; the sends whose answers cannot come any more.

        Each is the keys of the client's and the broker's connection, the client's opaque, and the
        frame.
        """
    def late(self, steady_ms: int) -> list[tuple[int, int, int, bytes]]:
        """The sends that have waited for too long."""
    def take_back(self, numbers: Sequence[int]) -> bytes:
        """Take sends back, as frames, that were not written."""
    def ask(
        self, client: int, data: Buffer, steady_ms: int
    ) -> tuple[list[tuple[int, bytes, list[int]]], bytes, str]:
        """Take bytes of a client.

        Return frames to write with the key of the connection and their numbers, frames for the
        handlers, and why the client's connection is broken.
        """
    def answer(
        self, line: int, data: Buffer
    ) -> tuple[list[tuple[int, bytes]], bytes, list[tuple[int, int, int, bytes]], str]:
        """Take bytes of a broker.

        Return answers to write with the key of the client, frames for others, sends that the broker
        has not looked at, and why its connection is broken.
        """

@final
class GrpcConsumers:
    """Answers plain receives and acknowledgements of one port in the same way."""

    def __new__(
        cls,
        *,
        topics: set[str],
        topic_prefix: str,
        group_prefix: str,
        reserved: set[str],
        broker: str,
    ) -> GrpcConsumers:
        """Say which names clients may not use, which no user's property has, and the broker's name."""
    def give(
        self, ingest: Ingest, wish: _Wish, tags: Sequence[str], attempts_max: int
    ) -> tuple[_Given, list[tuple[str, str]]] | None:
        """All parts of a receive's answer, framed, and (id, receipt handle) of each message.

        Without tags every message is wanted. None: there are none, or the services have to look at
        one; nothing has changed then.
        """
    def popped(
        self,
        stored: Buffer,
        *,
        topic: str,
        broker: str,
        pop: tuple[int, int, int],
        tables: tuple[str, str],
        tags: Sequence[str],
        attempts_max: int,
        now_ms: int,
    ) -> tuple[bytes, list[tuple[str, str]]] | None:
        """All parts of a receive's answer, framed, of what another broker answers to a pop.

        With (id, receipt handle) of each message. `pop` is its time, its invisible time and its revive
        queue, `tables` are those of start offsets and of offsets. None leaves the answer to the front:
        it is empty, cannot be read, or has a message that needs a further step.
        """
    def acknowledge(self, ingest: Ingest, peer: str, request: Buffer, now_ms: int) -> bytes | None:
        """The answer to acknowledgements whose records are stored; None leaves them to the front.

        Some may be stored then as well: a second record does no harm.
        """

@final
class NetThreads:
    """Threads that serve connections: they read, answer what the rows admit, and write. Linux only."""

    def __new__(
        cls,
        threads: int,
        ingest: Ingest | None = None,
        *,
        frame_size_max: int,
        connection_max: int,
        total_max: int,
        water: tuple[int, int | None],
        strangers: tuple[int, int, int] | None = None,
    ) -> NetThreads:
        """Start them; `ingest` was made for as many. Sizes are bytes. Raises OSError.

        `connection_max` and `total_max` bound starts of frames and unwritten output; a connection
        with more output than the first of `water` is not read until it has the second, by default a
        quarter of that. `strangers` bounds peers that have proven no account: one whose frame names
        none, all such, all whose frame names one.
        """
    def descriptors(self) -> list[int]:
        """One a thread, readable while `take` has something."""
    def adopt(
        self, fd: int, key: int, host: bytes, pulls: bool, tls: RemotingTls | None = None
    ) -> NetConnection:
        """Give a connected socket, which is the thread's from now on, to the thread with the fewest.

        With `tls` it is agreed on there; `agreed` is the first news then, or `closed` says why not.
        """
    def take(
        self, thread: int
    ) -> list[
        tuple[
            Literal["frames", "left", "agreed", "drained", "stays", "back", "closed"],
            int,
            list[_Frame],
            int,
            int,
            int,
            str,
            int,
            bytes,
        ]
    ]:
        """Take news: (what, connection, frames, time, wait, size, why it is closed, count, raw).

        Frames that are about popped messages, and left to the loop for that, are `count` frames in
        `raw`, as they were read.

        The time is when frames were read, in Unix milliseconds; the wait is for how many they had
        lain in the kernel by then, if their connection was not read meanwhile; `took` is to be told
        of the size.
        `frames` are for the handlers, `left` is a held pull for them, `closed` or `back` is the
        last of a connection.
        """
    def set_now(self, now_ms: int, stands: bool = False) -> None:
        """Go by the clock that says this now, in Unix milliseconds; one that `stands` moves only so."""
    def set_beside(self, size: int) -> None:
        """Count bytes that the loop keeps for connections of its own towards the common bound."""
    def used(self) -> int:
        """Bytes kept for all connections."""
    def listen(self) -> bool:
        """Have the descriptor of a thread readable once, without news, when a peer of it writes.

        True when no peer has written since this was asked before.
        """
    def connections(self) -> list[int]:
        """How many connections each thread has."""
    def fail(self, remark: str) -> None:
        """Refuse all sends that wait for a flush: it failed."""
    def set_replicated(self, offset: int) -> None:
        """Slaves have copied the log up to `offset`."""
    def lapse(self, offset: int) -> None:
        """No slave can prove a copy up to `offset`."""
    def removed(self, topic: str) -> None:
        """A topic has gone: pulls that wait for it are answered."""
    def stop(self) -> None:
        """Close all connections at once and end the threads."""

@final
class Store:
    """One message store in one folder. Every method may be called from any thread."""

    @staticmethod
    def open(config: Mapping[str, str | int | bool]) -> Store:
        """Load and recover. `config` keys are Java's MessageStoreConfig names; unknown ones raise StoreError("usage")."""
    def start(self) -> None:
        """Create `abort`, start the flush and dispatch threads."""
    def close(self) -> None:
        """Drain dispatch, flush everything, write the checkpoint, remove `abort`, release `lock`. Twice is once."""

    # Writing. Status numbers are Java's PutMessageStatus ordinals (spec: store §11.2).
    def put(
        self,
        topic: str,
        queue_id: int,
        body: Buffer,
        properties: Buffer,
        *,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int = 0,
        born_host: bytes = ...,
        store_host: bytes = ...,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> tuple[int, int, int, int, int]:
        """Append one message: (status, physical offset, size, queue offset, store time).

        It is in the log when this returns, and durable when `flushed_offset` has reached
        physical offset + size.
        """
    def put_many(
        self,
        messages: Sequence[
            tuple[str, int, Buffer, Buffer, int, int, int, bytes, bytes, int, int, bool]
        ],
    ) -> tuple[list[tuple[int, int, int, int]], int]:
        """Append messages one behind the other, with one write where they fit into one file.

        A message is (topic, queue id, body, properties, flag, sys flag, born timestamp, born host,
        store host, reconsume times, prepared transaction offset, whether it was accepted before:
        then it gets its light queues, however many there are). Returns (status, physical offset,
        size, queue offset) of each and the store time of all. One that is refused leaves the
        others alone; when the log takes no more, or a message would make a light queue too many,
        all behind have the status that says why.
        """
    def put_batch(
        self,
        topic: str,
        queue_id: int,
        elements: Sequence[tuple[int, bytes, bytes]],
        *,
        sys_flag: int = 0,
        born_timestamp: int = 0,
        born_host: bytes = ...,
        store_host: bytes = ...,
        reconsume_times: int = 0,
    ) -> tuple[int, list[int], int, int, int]:
        """Append (flag, body, properties) elements as consecutive messages, all or none.

        Returns (status, physical offsets, end offset, first queue offset, store time).
        """

    def tune(self, config: Mapping[str, str | int | bool]) -> None:
        """Go by the settings of `config` that an open store can change.

        Those are the longest body, the limits of a get, the fill levels of the disk, and the pauses
        between flushes and checkpoints. Raises StoreError (usage) for a setting out of its range.
        """

    # Reading.
    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int = ...,
        tag_codes: Sequence[int] | None = None,
        filter_by: Filter | None = None,
    ) -> tuple[int, int, int, int, int, bytes, bool]:
        """Read from a queue: (status, next begin offset, min, max, messages, records, suggest slave).

        Status: 0 FOUND, 1 NO_MATCHED_MESSAGE, 2 MESSAGE_WAS_REMOVING, 3 OFFSET_FOUND_NULL,
        4 OFFSET_OVERFLOW_BADLY, 5 OFFSET_OVERFLOW_ONE, 6 OFFSET_TOO_SMALL,
        7 NO_MATCHED_LOGIC_QUEUE, 8 NO_MESSAGE_IN_QUEUE. `tag_codes` and `filter_by`
        None accept every message.
        """
    def min_offset(self, topic: str, queue_id: int) -> int:
        """First queue offset still there."""
    def max_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset after the last dispatched message."""
    def light_queues(self) -> int:
        """How many light queues (LMQ) there are."""

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset that the next put gets (dispatched or not)."""
    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, upper: bool = False) -> int:
        """Queue offset for a store time (spec: store §5.1)."""
    def unit(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """(physical offset, size, tags code) of one queue offset."""
    def units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """Up to `count` units in order."""
    def read(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """The record at an offset, or None when there is none there (its size read from it when not given)."""
    def query(
        self, topic: str, key: str, max_messages: int, begin: int, end: int
    ) -> tuple[list[int], int, int]:
        """(physical offsets ascending, last index update time, last indexed physical offset)."""
    def queues(self) -> list[tuple[str, int, int, int]]:
        """(topic, queue id, min, max) of every queue on disk."""

    # State.
    def min_physical_offset(self) -> int: ...
    def max_physical_offset(self) -> int: ...
    def flushed_offset(self) -> int: ...
    def dispatched_offset(self) -> int: ...
    def dispatch_behind(self) -> int: ...
    def earliest_store_time(self) -> int:
        """Store time of the oldest record, -1 when there is none."""
    def writable(self) -> tuple[bool, str]:
        """(whether sends are taken, why not)."""
    def append_busy_ms(self) -> int:
        """How long the append now under way has taken; 0 when none is."""
    def stats(self) -> dict[str, int]:
        """Counters and gauges, flat: files, bytes, mapped bytes, flushes, flush microseconds, failed puts ...

        The levels of the disk are per cent as they count, Java's bounds applied.
        """
    def flush(self) -> int:
        """Make everything appended so far durable; return the flushed offset."""
    def checkpoint(self) -> None:
        """Sync queues and index, then the checkpoint."""

    # Upkeep.
    def delete_topic(self, topic: str) -> int:
        """Delete a topic's queues; returns how many."""
    def self_check(self) -> list[str]: ...
    def recovery_notes(self) -> tuple[list[str], bool]:
        """What the start cut or made again, for people, and whether the last run stopped in order."""
    def last_damage(self) -> tuple[str, str]:
        """The last message that reads passed over and the last record that no queue took; empty when there was none."""
    def delete_expired(self, before: int, limit: int = 10) -> int:
        """Delete whole commit-log files last written before a time, oldest first, never the last; then queues and index follow."""

    # Events: background threads never call Python; they make `event_fd` readable.
    def sync_times(self) -> tuple[int, int]:
        """(flushes, microseconds that they took together)."""
    def set_flush_awaited(self, awaited: bool) -> None:
        """Hear whether a flush that the ingest does itself is news, too."""
    def set_growth_awaited(self, awaited: bool) -> None:
        """Hear whether queues that grew make `event_fd` readable; those that have make it so at once."""
    def event_fd(self) -> int: ...
    def take_events(self) -> tuple[int, list[tuple[str, int, int]], str | None]:
        """(flushed offset, [(topic, queue id, max offset)] with news since the last call, failure text)."""

# --- exchange (relay) -----------------------------------------------------------------------------

@final
class Exchange:
    """Routes packets between inner servers on their raw bytes; only the loop thread calls it.

    A server is registered on a connection and owned by a worker. What is for the relay itself comes out
    of `feed`: (frames as `decode_frames` gives them, why the connection must be closed, workers whose
    servers have output). Sizes are bytes, times Unix milliseconds.
    """

    def __new__(
        cls,
        *,
        workers: int,
        frame_size_max: int,
        queue_max: int,
        control_max: int,
        total_max: int,
        pending_max: int,
        timeout_ms: int,
    ) -> Exchange: ...
    def open(self, key: int, now_ms: int) -> None:
        """Know a new connection."""
    def close(self, key: int) -> None:
        """Forget a connection and its incomplete frame; a server on it stays until `unregister`."""
    def held(self, key: int) -> int:
        """Bytes of a connection's incomplete frame."""
    def feed(
        self, key: int, data: Buffer, now_ms: int
    ) -> tuple[list[_Frame], str | None, list[int]]:
        """Take what a connection received; `data` is not kept."""
    def set_known(self, ids: Sequence[int]) -> None:
        """Set the configured ids: a packet for one of them that is away is told `gone`, not `unknown`."""
    def register(self, server_id: int, kind: int, key: int, worker: int) -> bool:
        """Register a server in place of an earlier one of the same id; False when the connection has gone."""
    def unregister(self, server_id: int, key: int) -> bool:
        """Forget a server; False when it is registered on another connection by now."""
    def drain(self, server_id: int, drains: bool) -> None:
        """Give a server no new packets, or again; answers to it still pass."""
    def notify(self, server_id: int, frame: Buffer) -> bool:
        """Queue a frame of the relay's own; False when the server is away or takes nothing."""
    def broadcast(self, worker: int, frame: Buffer, but: int) -> list[int]:
        """Queue a frame for all servers of a worker but one; returns those whose queue is too full."""
    def ready_workers(self) -> list[int]:
        """Workers whose servers have output that was not announced yet."""
    def take_ready(self, worker: int) -> list[int]:
        """Servers of a worker with new output; each is named once until `take` returned None."""
    def take(self, server_id: int) -> bytes | None:
        """The next piece of a server's output, about 512 KiB at most beyond a frame; None: no more."""
    def silent(self, worker: int, before_ms: int) -> list[int]:
        """Servers of a worker from which nothing was read since then."""
    def expire(self, now_ms: int) -> list[int]:
        """Refuse requests that were not answered in time; returns servers that take no refusals."""
    def server(self, server_id: int) -> tuple[int, int, bool, int, int, int, int, int] | None:
        """(bytes queued, requests to answer, drains, packets in, bytes in, packets out, bytes out, refused)."""
    def queued(self) -> int:
        """Bytes in all queues."""
    def counters(self) -> dict[str, int]:
        """What happened so far, by name."""

def copy_popped(
    store: Store,
    topic: str,
    queue_id: int,
    offsets: Sequence[int],
    *,
    to_topic: str,
    to_queue: int,
    group: str,
    pop_time_ms: int,
    host: bytes,
    of_retry: bool,
    tries: int,
    tries_max: int,
    left: Sequence[str],
) -> list[int]:
    """Store copies of popped messages for another try, in order and with one append.

    `host` is the broker's own, born and store host of the copies. A copy counts `tries` more than
    its message, up to `tries_max`; `of_retry`: the messages have to say that they are the group's.
    Returns the sizes of the first that are stored; behind them comes one that is not plain (with a
    property in `left`, with flags that ask for more than reading it), that cannot be read, or that
    the log did not take, or enough is done for one call. Raises StoreError.
    """

# --- the log as one of a pair -------------------------------------------------------------------

def log_bytes(store: Store, start: int, size_max: int) -> bytes:
    """Bytes of the log from an offset on, of one file; empty when there are none yet.

    Raises StoreError("usage") when they are not kept any more.
    """

def log_limit(store: Store) -> int:
    """Up to where slaves may copy the log now: whole records, durable ones with SYNC_FLUSH."""

def settle_log(store: Store) -> int:
    """Make all of the log durable, without a record that was copied in part; return where it ends.

    Nothing may copy meanwhile. Raises StoreError.
    """

def log_deletions(store: Store) -> list[tuple[str, int]]:
    """Return the topics that were deleted, each with the end of the log at that moment."""

def follow_deletions(store: Store, rows: Sequence[tuple[str, int]]) -> list[str]:
    """Have records of topics, each before an offset, have no queue any more, as the master said.

    Returns the topics to which the log does not durably reach yet. Raises StoreError.
    """

def take_renewed(store: Store) -> list[str]:
    """Return the topics that began anew in what was copied since this was asked last."""

def follow_another_log(store: Store) -> int:
    """Take copies of another broker's log only from now on; return where the log ends.

    Messages are refused with SERVICE_NOT_AVAILABLE, whoever appends them. Raises StoreError.
    """

def lead_log(store: Store) -> int:
    """Take messages only from now on; return where the log ends.

    A record that was copied in part is taken back; the rest is made durable and dispatched, which
    may take long. Raises StoreError; the log takes neither then.
    """

@final
class PairTls:
    """How one side of a pair speaks TLS (1.2 or 1.3). Connections keep what they began with."""

    def __new__(
        cls, *, is_master: bool, cert: bytes | None, key: bytes | None, trust: bytes | None
    ) -> PairTls:
        """Read PEM: certificate chain, its key (None: in the same file), whom to trust.

        A master needs a certificate, and asks slaves for theirs if it trusts somebody; a slave needs whom to
        trust. Raises ValueError, which says what is wrong.
        """

@final
class LogLink:
    """One connection of a pair, copied by a thread that never takes the GIL, from file to socket or back.

    News make `event_fd` readable. Dropping the object ends the connection. After `join` it says what it has told last,
    and passes over what it is asked for.
    """

    def event_fd(self) -> int:
        """-1 once the thread was waited for."""
    def take(self) -> tuple[bytes, int, tuple[str, str] | None]:
        """(what the peer has said before the start, once; acknowledged offset; how it ended and why).

        It ended as "stopped", "lost", "fault" or "store".
        """
    def view(self) -> tuple[int, int, int, int, int]:
        """(acknowledged offset, next offset to copy, bytes copied, ms since the last read, ms since the last write)."""
    def say(self, data: bytes) -> None:
        """Say something to the peer, before the start."""
    def finish(self) -> None:
        """End the connection, before the start, once what was said is written."""
    def begin(self, position: int, heard: bytes) -> None:
        """Start the copying, behind what was said; a slave gets the log from `position` on.

        `heard` is what was taken and belongs to the copying: for a master the first report at least.
        """
    def tune(
        self,
        *,
        batch: int,
        heartbeat_ms: int,
        housekeeping_ms: int,
        bytes_per_second: int,
        linger_ms: int,
    ) -> None:
        """Go by other rules from now on; those of `feed_log`. A slave's link takes the two times of them."""
    def tell_acks(self, *, loud: bool, counts: bool) -> None:
        """Have each acknowledgement be news from now on, or not; look at `view` behind that.

        With `counts` this slave's copy is enough: threads of connections answer the sends that wait for it.
        """
    def stop(self) -> None:
        """Ask for the end of the connection; the news say when it has come."""
    def join(self) -> None:
        """Wait for the thread, and close the link's descriptors."""

def feed_log(
    store: Store,
    fd: int,
    *,
    tls: PairTls | None,
    handshake_ms: int,
    batch: int,
    heartbeat_ms: int,
    housekeeping_ms: int,
    bytes_per_second: int,
    linger_ms: int,
) -> LogLink:
    """Feed the slave at the other end of a socket, which belongs to the thread from now on.

    What it says is news until `begin`; nothing of the log is sent before. `handshake_ms` is the time that the
    handshake of TLS may take. A rate of 0 is none. Acknowledgements are no news until `tell_acks` says so.
    Raises OSError; the socket is closed then.
    """

def follow_log(
    store: Store,
    fd: int,
    *,
    tls: PairTls | None,
    handshake_ms: int,
    heartbeat_ms: int,
    housekeeping_ms: int,
) -> LogLink:
    """Copy the log of the master at the other end of a socket, which belongs to the thread from now on.

    What the master says is news until `begin`; then a report goes out at once. Raises OSError; the socket is
    closed then.
    """

# --- the process ----------------------------------------------------------------------------------

def share_arenas(count: int) -> bool:
    """Have all threads share so many arenas of the C library's allocator; whether that is set now.

    It is not with another C library than glibc, nor where MALLOC_ARENA_MAX is in the environment.
    To be called before there are threads.
    """

def watch_panics() -> int:
    """Note the first panic from now on; return the descriptor that is readable once there was one.

    Raises OSError when there is none left.
    """

def first_panic() -> str | None:
    """The first panic since `watch_panics` (thread, place, message), None when there was none."""

def plant_panic(text: str) -> None:
    """Panic in a thread of its own: for tests."""

# --- ingest (fast path) -------------------------------------------------------------------------

_MessageRow: TypeAlias = tuple[
    str,
    bytes,
    dict[str, str],
    str,
    int,
    int,
    int,
    int,
    int,
    str,
    int,
    str,
    int,
    int,
    int,
    int,
    int,
    str,
]
_Frame: TypeAlias = tuple[int, int, int, str, int, int, str | None, dict[str, str] | None, bytes]
# Opaque, topic, group, queue id, messages, invisible, waiting and born time, expression, frame.
_Pop: TypeAlias = tuple[int, str, str, int, int, int, int, int, str, bytes]
# Opaque, (group, topic, retry topic), places (of the retry topic, queue id, offset or -1), messages,
# tag codes, (now, invisible ms, when it came), revive queue, whether the retry topic is first, whether
# the caller keeps the checkpoints, whether it has the pop wait when there is nothing.
_Wish: TypeAlias = tuple[
    int,
    tuple[str, str, str],
    Sequence[tuple[bool, int, int]],
    int,
    Sequence[int] | None,
    tuple[int, int, int],
    int,
    bool,
    bool,
    bool,
]
# Answer, messages left, (queue id, start offset, distances from it, next offset), and (queue id,
# next offset) of queues without a wanted message.
_ForwardedCall: TypeAlias = tuple[int, str, bool, int, bytes, list[tuple[int, bytes]]]
"""Number of a call, its broker, whether it sends, the steady time when it began, the request, and by
the entry of the request answers that are no plain success; empty ones have not come."""
_Given: TypeAlias = tuple[bytes, int, list[tuple[int, int, list[int], int]], list[tuple[int, int]]]
# (topic, group, queue id, start offset, pop time), offsets, opaques, frames, whether it is one batch.
_Merge: TypeAlias = tuple[tuple[str, str, int, int, int], list[int], list[int], bytes, bool]
_Fed: TypeAlias = (
    bytes
    | tuple[bytes, list[_Frame], str | None]
    | tuple[bytes, list[_Frame], str | None, list[_Merge], list[_Pop]]
)
_Sums: TypeAlias = tuple[int | None, int | None, int, int, int, int, int, int, int]
# Whether everybody, else the lowest and highest value of each of the 4 or 8 parts of addresses.
_White: TypeAlias = tuple[bool, Sequence[Sequence[tuple[int, int]]]]
# Rights by name, by the longest prefix of a name, and with all other names.
_Names: TypeAlias = tuple[dict[str, int], dict[str, int], int]
# Access key, secret, peers that need no signature, whether all is allowed, rights with topics, with
# groups.
_Account: TypeAlias = tuple[str, bytes, _White, bool, _Names, _Names]

@final
class Ingest:
    """Answers the frames that the admission table covers; everything else comes out (architecture §3a).

    One for all ports of a process; only the loop thread calls it. Changes of rows wait for the
    threads that judge by them; `take_*` and `counters` sum up what all of them did. With an empty table every frame
    comes out. `feed` returns (replies to write now, frames for the handlers, why the connection
    must be closed). A frame is as `decode_frames` gives it. `flushed`, `expire`,
    `fail` and `set_replicated` return (connection, bytes to write to it). `now_ms` is Unix
    milliseconds, of one clock for all.
    """

    CLASSES_MS: ClassVar[list[int]]
    """Upper bounds of the classes of `take_answered`, in milliseconds; one more has none."""
    def __new__(
        cls, store: Store, frame_size_max: int = 16_777_216, seed: int = 0, threads: int = 0
    ) -> Ingest:
        """With `threads`, as many more ingests by the same rows, for `NetThreads`."""
    def open(self, key: int, host: bytes, pulls: bool = True) -> None:
        """Know a connection, its peer's address (8 or 20 bytes, else its sends are not admitted), and whether its port serves pulls."""
    def close(self, key: int) -> None:
        """Forget a connection: its incomplete frame, its held pulls, its answers that wait for a flush."""
    def standing(self, key: int) -> int:
        """Whether whoever sent what is kept has proven an account or needs none (0), names one (1), or neither (2)."""
    def prove(self, key: int) -> None:
        """An account was proven on a connection."""
    def held(self, key: int) -> int:
        """Bytes kept for a connection."""
    def feed(self, key: int, data: Buffer, now_ms: int, fd: int | None = None) -> _Fed:
        """Take what a connection received; `data` is not kept.

        Answers go to the socket `fd` as far as it takes them, if there is one. What is left of
        them is returned alone when no byte is kept and nothing else came of it.
        """
    def merged(self, opaques: Sequence[int], is_batch: bool, took_us: int) -> bytes:
        """Answers to acknowledgements, or batches of them, that were settled in memory, so long after they came."""
    def give(self, wish: _Wish) -> _Given | None:
        """Messages for a pop, with their checkpoints stored unless the caller keeps them.

        None: there are none, or the services have to look; nothing has changed then. An empty answer:
        there are none, and the pop waits.
        """
    def idle(self, key: int) -> None:
        """The handlers have finished all frames they got of a connection: admit its frames again."""
    def flushed(self, offset: int, now_ms: int) -> list[tuple[int, bytes]]:
        """The log is durable up to `offset`: answers that waited for that."""
    def set_replicated(self, offset: int, now_ms: int) -> list[tuple[int, bytes]]:
        """Slaves have copied the log up to `offset`: answers that waited for that."""
    def lapse(self, offset: int, now_ms: int) -> list[tuple[int, bytes]]:
        """No slave can prove a copy up to `offset`: answers (12) of the sends that waited for one."""
    def arrived(self, topic: str, queue_id: int, max_offset: int) -> bool:
        """A queue has grown, or all of a topic for -1: tells whether held pulls are due."""
    def serve(self, now_ms: int) -> tuple[list[tuple[int, bytes]], list[tuple[int, _Frame]], bool]:
        """Answer due pulls for at most about 5 ms: (answers, pulls for the handlers, whether more are due).

        Answers and pulls name their connection. Pulls are re-read by the table of now.
        """
    def set_held_beside(self, count: int) -> None:
        """So many pulls are held elsewhere; `holds_max` bounds all of them."""
    def held_pulls(self) -> int:
        """How many pulls are held here."""
    def held_until_ms(self) -> int | None:
        """When the first of them is given up, Unix milliseconds."""
    def expire(self, now_ms: int) -> list[tuple[int, bytes]]:
        """Answers FLUSH_DISK_TIMEOUT and FLUSH_SLAVE_TIMEOUT of sends that have waited too long.

        Held pulls whose time is over are due from now on.
        """
    def fail(self, remark: str, now_ms: int) -> list[tuple[int, bytes]]:
        """A flush failed: refusals of every send that waits."""
    def set_state(
        self,
        *,
        sends: bool,
        pulls: bool,
        sync_flush: bool,
        sync_here: bool,
        flush_timeout_ms: int,
        waits_for_slave: bool,
        lacks_slave: bool,
        slave_timeout_ms: int,
        body_max: int,
        batch_max: int,
        store_host: bytes,
        stamps: Sequence[tuple[str, str]],
        special: Sequence[str],
        send_ext: Sequence[tuple[str, str]],
        encoding: int,
        version: int,
        parked_max: int,
        busy_remark: str,
        lite_pulls: bool,
        holds_max: int,
        hold_ms: int | None,
        hold_ms_max: int,
        delays: tuple[str, int] | None,
        halves: str | None,
        barrier: Sequence[int],
        pop: tuple[str, str, int, int, int, bool, bool, bool, bool, int] | None = None,
    ) -> None:
        """Set what holds for every message and answer.

        With `sync_here` a feed syncs for its connection if nobody else has answers waiting, and did
        not have any the last time.
        With `waits_for_slave` answers wait for `set_replicated` as well, at most `slave_timeout_ms`;
        beyond `parked_max` waiting answers sends are refused with SYSTEM_BUSY and `busy_remark`;
        with `lacks_slave` they say SLAVE_NOT_AVAILABLE instead. `stamps` are properties that every message gets (one that has any of them already is not
        admitted), `special` names of properties with which messages are not admitted, `send_ext` the fields at the end of every answer to a send, `delays` the topic in
        which delayed messages wait and the highest level, `halves` the topic in which half messages wait, `barrier` the request
        codes that nothing may overtake: behind one that is not admitted, every frame of its
        connection comes out until `idle`. `pop` has acknowledgements of popped messages stored: (broker name,
        revive topic, its queues, longest delay and step of the timer wheel in ms,
        whether checkpoints are in memory: then `feed` returns acknowledgements, for `merged`, whether pops
        are read, whether acknowledgements and checkpoints wait for no flush and no slave, when a topic or
        a group was deleted last in Unix ms).
        """
    def set_accounts(self, trusted: Sequence[_White], accounts: Sequence[_Account]) -> None:
        """Answer only what these peers send, and what these accounts have signed and may do.

        Until the first call nobody needs an account. Rights are the bits 4 (publish) and 8
        (subscribe). What is not permitted comes out for the handlers.
        """
    def set_topic(
        self,
        name: str,
        send_queues: int,
        read_queues: int,
        add_sys_flag: int,
        sys_flag: int,
        settle_queues: int = 0,
        front_queues: int = 0,
        message_type: str = "",
    ) -> None:
        """Admit sends to queues below `send_queues`, pulls from those below `read_queues`, and
        acknowledgements of popped messages of those below `settle_queues`.

        Other fronts spread sends of the topic's message type over `front_queues`.
        """
    def set_group(
        self,
        name: str,
        sys_flag: int,
        subscriptions: Sequence[tuple[str, int, Sequence[int] | None, Filter | None]],
    ) -> None:
        """Admit pulls of a group.

        Its members' subscriptions are (topic, version, tag codes or None, filter or None).
        """
    def drop_group(self, name: str) -> None:
        """Admit no pull of a group."""
    def set_expression(
        self,
        kind: str,
        expression: str,
        codes: Sequence[int] | None,
        filter_by: Filter | None,
    ) -> None:
        """Say what an expression of a kind (`TAG`, `SQL92`) means that pulls bring."""
    def drop_expressions(self) -> None:
        """Forget what expressions mean."""
    def suspend(self) -> None:
        """Admit nothing until the next `set_state`: once this returns, no frame is being judged."""
    def take_stored(self) -> list[tuple[str, int, int, int, int, int]]:
        """(topic, queue id, messages, bytes, sends, microseconds of the sends) since the last call.

        Messages and bytes count when they are stored, sends and their time when they are answered.
        """
    def take_halves(self) -> dict[str, int]:
        """Half messages stored since the last call, by the topic that they are for."""
    def take_pulled(self) -> list[tuple[str, str, int, _Sums]]:
        """(group, topic, queue id, sums) of the pulls answered or held since the last call.

        The sums are (offset last asked for, offset last committed, commits, answers with messages,
        answers without, messages, bytes, messages left behind, microseconds of the reads).
        """
    def take_called(self) -> list[tuple[int, int, bool, bool, list[int], int]]:
        """The same of sends that came by other fronts."""
    def take_answered(self) -> list[tuple[int, int, bool, bool, list[int], int]]:
        """How long answers took since the last call, from arrival to answer.

        (request code, response code, whether it was a pull that waited, whether it was one-way,
        answers by class, microseconds of all).
        """
    def counters(self) -> dict[str, int]:
        """What happened so far: `sends halves acks pulls held passed returned parked refused`, and answers now `waiting`."""
