"""Lanes: for each family of requests a bounded queue and a limit on how many run at once.

A lane is no thread pool: everything runs on the loop, and concurrency counts requests that
wait for something (a flush, a slave). It exists so that one family cannot starve another, and
so that overload is answered instead of being stored (spec: broker.md, thread pools).
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from roquet.base.errors import UsageError
from roquet.service.background import Tasks, give_way

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence

    from roquet.base.clock import Clock

OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
"""What a request is told that finds its lane's queue full; clients know the text."""

TURN = 64
"""Jobs that one task runs before the loop looks at its sockets again."""


class Waiting(Protocol):
    """One request in the queue of a lane."""

    @property
    def received_ms(self) -> int:
        """When its bytes were read."""
        ...

    def refuse(self, remark: str) -> None:
        """Tell the peer that it was too busy here; the job is not run."""
        ...


class Job(Waiting, Protocol):
    """One that is run alone."""

    async def run(self) -> None:
        """Do it. Every failure is the job's own business; nothing may be raised."""
        ...


class BatchHandler(Protocol):
    """Runs jobs of one kind together that wait one behind the other."""

    def run(self, jobs: Iterator[Any]) -> Awaitable[None] | None:
        """Take at least one of the jobs given to `submit_to`, and do all that are taken.

        Returns what still has to be waited for; nobody may take a job after that. Every failure
        is the jobs' own business; nothing may be raised.
        """
        ...

    def ended(self, jobs: Sequence[Any]) -> None:
        """Hear that what was taken is done."""
        ...


class _Alone:
    """Runs jobs one by one."""

    def run(self, jobs: Iterator[Any]) -> Awaitable[None]:
        job: Job = next(jobs)
        return job.run()

    def ended(self, jobs: Sequence[Any]) -> None:
        """Need not know."""


_ALONE = _Alone()


@dataclasses.dataclass(frozen=True, slots=True)
class LaneConfig:
    """One lane. `age_max_ms` is how long a request may wait in the queue; None: for ever."""

    name: str
    concurrency: int
    queue_max: int
    age_max_ms: int | None = None


class Lane:
    """The queue and the running jobs of one family.

    Jobs run in tasks that take one after the other, so that a batch of jobs which never wait costs
    one task and not one each; jobs of one kind that can be done together are taken together. As
    soon as a job waits, the next task goes on with the queue.
    """

    def __init__(self, config: LaneConfig, clock: Clock, tasks: Tasks) -> None:
        """Begin empty; `tasks` owns what runs."""
        self.config = config
        self._clock = clock
        self._tasks = tasks
        self._queue: deque[tuple[Waiting, BatchHandler, int]] = deque()
        """Each with when it was read, by a clock that nobody can set."""
        self._running = 0
        self._spare = False
        """Whether a task was made that has not begun: it will look at the queue."""
        self.refused = 0
        """How many jobs were told that it is too busy here, since the start."""

    @property
    def waiting(self) -> int:
        """How many jobs wait for others to end."""
        return max(0, len(self._queue) - (self.config.concurrency - self._running))

    @property
    def has_queued(self) -> bool:
        """Whether a job is in the queue, whatever it waits for."""
        return bool(self._queue)

    @property
    def running(self) -> int:
        """How many jobs have begun and not ended."""
        return self._running

    def head_age_ms(self) -> int:
        """Milliseconds since the oldest waiting job was read; 0 when none waits."""
        return max(0, self._clock.steady_ms() - self._queue[0][2]) if self.waiting else 0

    def submit(self, job: Job) -> None:
        """Run the job now, later, or refuse it."""
        self.submit_to(_ALONE, job)

    def submit_to(self, handler: BatchHandler, job: Waiting) -> None:
        """Have the job run with others of its kind, now or later, or refuse it."""
        room = self.config.queue_max + self.config.concurrency - self._running
        if len(self._queue) < room:
            waited_ms = max(0, self._clock.now_ms() - job.received_ms)
            self._queue.append((job, handler, self._clock.steady_ms() - waited_ms))
            if not self._spare:
                self._provide()
        else:
            self._refuse(job, OVERLOAD)

    def refuse_older(self, age_ms: int) -> int:
        """Refuse the jobs at the head that have waited longer; return how many."""
        count = 0
        limit_ms = self._clock.steady_ms() - age_ms
        while self._queue and self._queue[0][2] < limit_ms:
            self._refuse_old(*self._queue.popleft())
            count += 1
        return count

    def refuse_head(self, reason: str) -> bool:
        """Refuse the oldest waiting job with `reason` (`PCBUSY_CLEAN_QUEUE`); False: none waits."""
        if not self._queue:
            return False
        self._refuse_old(*self._queue.popleft(), reason)
        return True

    def _refuse_old(
        self, job: Waiting, _: BatchHandler, read_ms: int, reason: str = "TIMEOUT_CLEAN_QUEUE"
    ) -> None:
        waited_ms = self._clock.steady_ms() - read_ms
        self._refuse(
            job,
            f"[{reason}]broker busy, start flow control for a while, "
            f"period in queue: {waited_ms}ms, size of queue: {len(self._queue)}",
        )

    def _refuse(self, job: Waiting, remark: str) -> None:
        self.refused += 1
        job.refuse(remark)

    def _provide(self) -> None:
        """See to it that somebody will look at the queue, unless all places are taken."""
        if not self._spare and self._queue and self._running < self.config.concurrency:
            self._spare = True
            self._tasks.spawn(self._work(), self.config.name)

    async def _work(self) -> None:
        self._spare = False
        done = 0
        while self._running < self.config.concurrency:
            if self._queue and self.config.age_max_ms is not None:
                self.refuse_older(self.config.age_max_ms)
            if not self._queue:
                return
            if done >= TURN:
                # Thousands of jobs that never wait must not keep the loop from its sockets.
                done = 0
                await give_way()
                continue
            handler = self._queue[0][1]
            taken: list[Waiting] = []
            try:
                rest = handler.run(self._taken(handler, taken))
                if rest is not None:
                    # Should this wait, the next task goes on with the queue meanwhile.
                    self._provide()
                    await rest
            finally:
                self._running -= len(taken)
                done += len(taken)
                handler.ended(taken)

    def _taken(self, handler: BatchHandler, taken: list[Waiting]) -> Iterator[Waiting]:
        """Take the jobs of a kind off the front of the queue, as many as may run."""
        queue, room = self._queue, min(TURN, self.config.concurrency - self._running)
        while queue and queue[0][1] is handler and len(taken) < room:
            job = queue.popleft()[0]
            self._running += 1
            taken.append(job)
            yield job

    def halt(self) -> None:
        """Hear that the tasks were cancelled: the next job needs a new one."""
        self._spare = False


class Lanes:
    """All lanes of a process, by name. A service: `stop` cancels what still runs."""

    def __init__(self, configs: Sequence[LaneConfig], clock: Clock) -> None:
        """Raise UsageError when a name comes twice."""
        self._tasks = Tasks()
        self._lanes = {config.name: Lane(config, clock, self._tasks) for config in configs}
        if len(self._lanes) != len(configs):
            raise UsageError("a lane is listed twice")

    def __getitem__(self, name: str) -> Lane:
        """Return a lane. Raises UsageError for a name that is not listed."""
        try:
            return self._lanes[name]
        except KeyError:
            raise UsageError(f"no lane {name!r}; there are {', '.join(self._lanes)}") from None

    def all(self) -> Sequence[Lane]:
        """Return every lane in the order listed."""
        return tuple(self._lanes.values())

    def follow(self, configs: Sequence[LaneConfig]) -> None:
        """Use other limits from now on; what waits or runs already stays. Raises UsageError."""
        for config in configs:
            self[config.name].config = config

    async def start(self) -> None:
        """Nothing to do: lanes run what comes."""

    async def stop(self) -> None:
        """Give running jobs a second, then cancel them; waiting ones are dropped."""
        for lane in self._lanes.values():
            while lane.refuse_head("SHUTDOWN"):
                pass
        await self._tasks.stop(within_s=1.0)
        for lane in self._lanes.values():
            lane.halt()

    async def refuse_old(self) -> None:
        """For a timer: refuse in each lane what has waited longer than the lane's limit."""
        for lane in self._lanes.values():
            if lane.config.age_max_ms is not None:
                lane.refuse_older(lane.config.age_max_ms)
