"""The native ingest behind the server's door: one fast path for all ports of a broker.

What may be answered there is data that somebody else writes (`rows`); this module only carries
bytes, commands and notes between the compiled part, the connections and the broker.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from roquet._native import Ingest as NativeIngest
from roquet._native import decode_frames
from roquet.protocol.hosts import host_bytes
from roquet.remoting.codec import command_of
from roquet.remoting.connections.ingest import FeedResult
from roquet.remoting.connections.limits import Standing
from roquet.remoting.connections.native import NativeConnections
from roquet.remoting.connections.popped import (
    MergeHere,
    PopHere,
    no_answer,
    no_pop,
    nothing_in_memory,
    nowhere,
)
from roquet.remoting.told import AnsweredHere, PulledHere, StoredHere
from roquet.service.lifecycle import REST_S, Rest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from roquet._native import Store as NativeStore
    from roquet.base.clock import Clock
    from roquet.protocol.command import Command
    from roquet.remoting.codec import NativeFrame
    from roquet.remoting.connections.native import NativePort
    from roquet.remoting.connections.popped import Came, Give, Given, Wish


Rows = NativeIngest
"""The compiled part as the one who writes its rows sees it."""

TICK_S = 0.05
"""Between two ticks while messages are stored or pulled."""
IDLE_TICK_S = 0.2
"""The same otherwise."""
STEP_MS = 500
"""Between two reads without a look whether the clock was set."""


class IngestOwner(Protocol):
    """Who says what may be answered, and hears what was."""

    def before(self, rows: Rows, now_ms: int) -> None:
        """Bring the rows up to date: bytes are about to be looked at."""
        ...

    def admit(self, *, anything: bool) -> None:
        """Admit what the rows say from now on, or nothing: the ports are about to close."""
        ...

    def shared_by(self, threads: FastPath | None) -> None:
        """Take rows back at once when they change, while there are threads that judge by them."""
        ...

    def pulled(self, pulls: PulledHere) -> None:
        """Note pulls that were answered, or that began to wait for a message."""
        ...

    def stored(self, messages: StoredHere) -> None:
        """Note messages that were stored."""
        ...

    def opened(self, topic: str, halves: int) -> None:
        """Note half messages for a topic that were stored."""
        ...

    def answered(self, answers: AnsweredHere, front: str) -> None:
        """Note how long answers of a front took; told some moments later."""
        ...


class FastPath:
    """The native ingest of a broker, there from `open` to `close`."""

    def __init__(
        self,
        owner: IngestOwner,
        clock: Clock,
        seed: int = 0,
        threads: int = 0,
        rest: Rest | None = None,
    ) -> None:
        """Answer nothing yet; `seed` (64 bits) spreads the deadlines of held pulls.

        With `threads` that many serve connections beside the loop. Ticks tell `rest` of waits.
        """
        self.rest = rest or Rest()
        self._owner = owner
        self.connections = NativeConnections(threads)
        self.connections.refresh = self.refresh
        self.connections.settle = self._settle_if_open
        self.connections.serve = self._serve
        self.connections.asked = self.rest.asked
        # Bound once: it is asked for every read.
        self._before = owner.before
        self.now_ms = clock.now_ms
        self._read_ms = 0
        self._is_ahead = False
        self._seed = seed
        self._write: Callable[[int, bytes], None] = nowhere
        self._resume: Callable[[int, Command], None] = nowhere
        self._merge: Callable[[MergeHere], int] = nothing_in_memory
        self._pop: Callable[[int, PopHere, Rows], bytes | None] = no_answer
        self.on_loop = 0
        """Connections that the loop serves: pulls of theirs wait here."""
        self.begins: list[Callable[[], None]] = []
        """Hear of the first of them."""
        self._call_pop: Callable[[PopHere, Give], bytes | None] = no_pop
        self._serving = self._was_used = False
        self._pause_s = TICK_S
        self._refresh_is_due = False
        self._native: NativeIngest | None = None

    def deliver_by(self, write: Callable[[int, bytes], None]) -> None:
        """Have late answers written by `write(connection key, frames)`, whatever the port."""
        self._write = write

    def resume_by(self, resume: Callable[[int, Command], None]) -> None:
        """Have held pulls that may no longer be answered here go to `resume(connection key, pull)`.

        Their offsets are noted already, and they are not to be held again.
        """
        self._resume = self.connections.resume = resume

    def pop_by(
        self, pop: Callable[[int, PopHere, Rows], bytes | None], merge: Callable[[MergeHere], int]
    ) -> None:
        """Have plain pops answered by `pop`, and acknowledgements settled in memory by `merge`.

        `pop(connection key, pop, rows)` returns no bytes when the pop waits. Pops without an answer
        are for the handlers, and so are the acknowledgements behind as many requests as `merge`
        says that it took.
        """
        self._pop = pop
        self._merge = merge

    def call_by(self, pop: Callable[[PopHere, Give], bytes | None]) -> None:
        """Have plain pops of other fronts answered by `pop(pop, give)`; None: it is not plain."""
        self._call_pop = pop

    def open(self, store: NativeStore, frame_size_max: int) -> None:
        """Begin to answer from and into an open store."""
        threads = self.connections.threads
        self._native = NativeIngest(store, frame_size_max, self._seed, threads)
        if threads:
            self._owner.shared_by(self)
        self.connections.open(self._native, frame_size_max=frame_size_max)
        self.connections.tell_time(self.now_ms())

    def close(self) -> None:
        """Let go of the store, once no connection is left."""
        self.connections.close()
        self._owner.shared_by(None)
        self.settle()
        self._settle_answers()
        self._native = None

    @property
    def native(self) -> NativeIngest:
        """The native ingest; only between `open` and `close`."""
        assert self._native is not None, "the fast path is not open"
        return self._native

    @property
    def rows(self) -> Rows:
        """What may be answered, for whoever writes it."""
        return self.native

    @property
    def is_open(self) -> bool:
        """Whether there is a native ingest."""
        return self._native is not None

    def port(self, *, pulls: bool) -> PortIngest:
        """Return the ingest of one port, which serves pulls or does not."""
        return PortIngest(self, pulls=pulls)

    def on_threads(self, *, pulls: bool) -> NativePort | None:
        """Return what a port gives its connections to; None: the loop keeps them."""
        if not self.connections.threads:
            return None
        return self.connections.port(pulls=pulls, popped=PortIngest(self, pulls=pulls))

    def admit(self, *, anything: bool) -> None:
        """Admit what the rows say, or leave every request to the handlers."""
        self._owner.admit(anything=anything)
        self.refresh()

    @property
    def waiting(self) -> int:
        """How many sends wait for a flush or a copy."""
        return 0 if self._native is None else self._native.counters()["waiting"]

    # --- what connections ask -------------------------------------------------------------------

    def feed(
        self, key: int, data: memoryview, now_ms: int, fd: int | None = None
    ) -> FeedResult | bytes:
        """Take what a connection received."""
        native = self._native
        assert native is not None, "the fast path is not open"
        if self._is_ahead or now_ms - self._read_ms > STEP_MS:
            now_ms = self._believed(now_ms)
        else:
            self._read_ms = now_ms
        self._before(native, now_ms)
        came = native.feed(key, data, now_ms, fd)
        return came if isinstance(came, bytes) else self._came(came, now_ms, key)

    def _believed(self, wall_ms: int) -> int:
        """Return the time to go by: connections read the wall clock, which may have been set."""
        now_ms = self.now_ms()
        self._read_ms, self._is_ahead = wall_ms, wall_ms - now_ms > STEP_MS
        return now_ms

    def idle(self, key: int) -> None:
        """Admit a connection's frames again: the handlers have finished all they got of it."""
        if self._native is not None:
            self._native.idle(key)

    def held(self, key: int) -> int:
        """Bytes kept for a connection."""
        native = self._native
        assert native is not None, "the fast path is not open"
        return native.held(key)

    def fresh(self) -> Rows | None:
        """Return the native ingest by today's rows, for another front on the loop; None: closed."""
        self.rest.asked()
        if self._native is not None:
            self._before(self._native, self.now_ms())
        return self._native

    def pop(self, pop: PopHere, give: Callable[[Wish, Rows], Given | None]) -> bytes | None:
        """Return the answer to a pop of another front, as `give` has it of the native ingest.

        None leaves it to the service.
        """
        rows = self.fresh()
        if rows is None:
            return None
        return self._call_pop(pop, lambda wish: give(wish, rows))

    # --- what happens without a connection ------------------------------------------------------

    def refresh(self) -> None:
        """Bring the rows up to date for the threads; what no row says goes to the handlers."""
        if self._native is not None:
            self._before(self._native, self.now_ms())

    def refresh_soon(self) -> None:
        """Do that in the next turn of the loop, once for all that asks for it in this one."""
        if not self._refresh_is_due:
            self._refresh_is_due = True
            asyncio.get_running_loop().call_soon(self._refresh_now)

    def _refresh_now(self) -> None:
        self._refresh_is_due = False
        self.refresh()

    def flushed(self, offset: int, failure: str | None) -> None:
        """Answer the sends that waited for this flush, or refuse all that wait: it failed."""
        native = self._native
        if native is not None:
            now_ms = self.now_ms()
            late = native.fail(failure, now_ms) if failure else native.flushed(offset, now_ms)
            self._deliver(late)
            if failure:
                self.connections.fail(failure)

    def answer_pop(self, key: int, pop: PopHere) -> bool:
        """Answer a pop of a connection that waited for a message, or let it wait again.

        False: the handlers have to.
        """
        native = self._native
        if native is None:
            return False
        self._before(native, self.now_ms())
        answer = self._pop(key, pop, native)
        if answer:
            self._write(key, answer)
        return answer is not None

    def set_replicated(self, offset: int) -> None:
        """Answer the sends that waited for their copy on slaves: the log up to `offset` is there.

        To be called on the loop. Offsets below an earlier one change nothing.
        """
        native = self._native
        if native is not None:
            self._deliver(native.set_replicated(offset, self.now_ms()))
            self.connections.set_replicated(offset)

    def lapse(self, offset: int) -> None:
        """Answer the sends up to `offset` that wait for a copy no slave can prove: 12.

        To be called on the loop.
        """
        native = self._native
        if native is not None:
            self._deliver(native.lapse(offset, self.now_ms()))
            self.connections.lapse(offset)

    @property
    def held_pulls(self) -> int:
        """How many pulls wait here for a message."""
        return 0 if self._native is None else self._native.held_pulls()

    def held_beside(self, count: int) -> None:
        """Hear how many pulls wait elsewhere: one bound holds for all."""
        if self._native is not None:
            self._native.set_held_beside(count)

    def arrived(self, arrivals: Iterable[tuple[str, int, int]]) -> None:
        """Answer the held pulls that these (topic, queue id, max offset) are news for."""
        native = self._native
        if native is None:
            return
        due = False
        for topic, queue_id, max_offset in arrivals:
            due = native.arrived(topic, queue_id, max_offset)
        if due and not self._serving:
            self._serve()

    def removed(self, topic: str) -> None:
        """Answer the held pulls of a topic that has gone: queues of its name begin at 0."""
        if self._native is not None:
            self.connections.removed(topic)
            # Each queue, whatever its pulls wait for.
            self.arrived([(topic, -1, (1 << 63) - 1)])

    async def tick(self) -> None:
        """Answer what has waited too long, and hand out the counts: a timer's action."""
        if self.connections.is_open:
            self.connections.tell_time(self.now_ms())
            self.refresh()
        self._deliver(self.native.expire(self.now_ms()))
        if not self._serving:
            self._serve()
        self.settle()
        self._settle_answers()
        self._pause_s = TICK_S if self._was_used else self._idle_pause_s()
        self._was_used = False

    def _idle_pause_s(self) -> float:
        quiet = self.connections.is_quiet()
        if not self.rest.look(idle=quiet and not (self._serving or self.waiting)):
            return IDLE_TICK_S
        until_ms = self.native.held_until_ms()
        left_s = REST_S if until_ms is None else (until_ms - self.now_ms()) / 1000
        return min(REST_S, max(TICK_S, left_s))

    def pause_s(self) -> float:
        """Return when the next tick is due: soon while something is stored or pulled here."""
        return self._pause_s

    def settle(self) -> None:
        """Tell the owner of everything stored and pulled so far."""
        native = self._native
        assert native is not None, "the fast path is not open"
        stored_here, pulled_here = native.take_stored(), native.take_pulled()
        self._was_used |= bool(stored_here or pulled_here)
        for stored in stored_here:
            self._owner.stored(StoredHere(*stored))
        for topic, halves in native.take_halves().items():
            self._owner.opened(topic, halves)
        for group, topic, queue_id, sums in pulled_here:
            self._owner.pulled(PulledHere(group, topic, queue_id, *sums))

    def _settle_if_open(self) -> None:
        if self._native is not None:
            self.settle()

    def _settle_answers(self) -> None:
        # No handler asks for these, so that they can wait for the next tick.
        for kind in self.native.take_answered():
            self._owner.answered(AnsweredHere(*kind), "remoting")
        for kind in self.native.take_called():
            self._owner.answered(AnsweredHere(*kind), "grpc")

    def _serve(self) -> None:
        """Answer held pulls that are due; those for which there is no time have the next turn."""
        self._serving = False
        native = self._native
        if native is None:
            return
        now_ms = self.now_ms()
        self._before(native, now_ms)
        answers, left, more = native.serve(now_ms)
        self._deliver(answers)
        if left:
            self.settle()
            for key, frame in left:
                self._resume(key, command_of(frame))
        if more:
            self._serving = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _deliver(self, answers: Iterable[tuple[int, bytes]]) -> None:
        for key, frames in answers:
            if frames:
                self._write(key, frames)

    def _came(self, came: Came, now_ms: int, key: int) -> FeedResult | bytes:
        if len(came) == 5:
            replies, frames, broken, merges, pops = came
            left: list[NativeFrame] = []
            for merge in merges:
                replies += self._merged(MergeHere(*merge), now_ms, left)
            for pop in pops:
                replies += self._popped(key, PopHere(*pop), left)
            if left:
                frames = [*left, *frames]
            elif not frames and broken is None and not self.native.held(key):
                return replies
        else:
            replies, frames, broken = came
        if not frames:
            return FeedResult(replies, [], broken=broken or "")
        # A handler may ask for figures: let them be right.
        self.settle()
        return FeedResult(replies, list(map(command_of, frames)), broken=broken or "")

    def _merged(self, merge: MergeHere, now_ms: int, left: list[NativeFrame]) -> bytes:
        """Return the answers of what is in memory; the rest of the requests goes to `left`."""
        taken = self._merge(merge)
        if taken < len(merge.opaques):
            left += decode_frames(merge.frames)[0][taken:]
        took_ms = max(0, self.now_ms() - now_ms)
        return self.native.merged(merge.opaques[:taken], merge.is_batch, took_ms * 1000)

    def _popped(self, key: int, pop: PopHere, left: list[NativeFrame]) -> bytes:
        """Return the answer to a pop; without one its request goes to `left`, unless it waits."""
        answer = self._pop(key, pop, self.native)
        if answer is None:
            left += decode_frames(pop.frame)[0]
            return b""
        return answer


class PortIngest:
    """The fast path as one port's server sees it (`remoting.ingest.Ingest`)."""

    def __init__(self, path: FastPath, *, pulls: bool) -> None:
        """Serve a port with or without pulls."""
        self._pulls = pulls
        self._path = path
        # A call less for each read.
        self.feed, self.held, self.idle = path.feed, path.held, path.idle

    def open(self, key: int, address: str) -> None:
        """Know a new connection; one from an odd address gets no sends answered here."""
        self.enter(key, address)
        self._path.on_loop += 1
        for hear in self._path.begins if self._path.on_loop == 1 else ():
            hear()

    def enter(self, key: int, address: str) -> None:
        """Know a connection that a thread serves: what it leaves to the loop is fed here."""
        try:
            host = host_bytes(address)
        except ValueError:
            host = b""
        self._path.native.open(key, host, self._pulls)

    def standing(self, key: int) -> Standing:
        """Return what is known of whoever sent the bytes that are kept for a connection."""
        return Standing(self._path.native.standing(key))

    def prove(self, key: int) -> None:
        """Hear that an account signed a request of a connection."""
        self._path.native.prove(key)

    def resume(self, key: int) -> FeedResult:
        """Look at what is kept."""
        fed = self.feed(key, memoryview(b""), self._path.now_ms())
        return FeedResult(fed, []) if isinstance(fed, bytes) else fed

    def close(self, key: int) -> None:
        """Drop what is kept for a connection."""
        self._path.on_loop -= 1
        self.leave(key)

    def leave(self, key: int) -> None:
        """Do that for a connection that a thread serves."""
        if self._path.is_open:
            self._path.native.close(key)
