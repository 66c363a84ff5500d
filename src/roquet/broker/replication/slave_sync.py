"""A slave's copies of what its master keeps beside the log: topics, groups, offsets and the like.

Every ten seconds the slave asks its master with the codes that every broker answers (spec: ha §5).
Topics and groups are taken over whole when their version differs. Consumer offsets never go back:
an offset here that is ahead (clients commit to a slave while the master is away) stays, unless the
master's own value went back, which only an administrator does. What fails is tried next time.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from roquet.base.errors import RoquetError
from roquet.protocol import fastjson
from roquet.protocol.bodies.assignments import RequestModeTable
from roquet.protocol.bodies.groups import GroupTableBody
from roquet.protocol.bodies.offsets import ConsumerOffsetBody, DelayOffsetBody
from roquet.protocol.bodies.topics import TopicTableBody
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.service.ratelog import RateLog
from roquet.store.files import FILE_SIZE_MAX, JsonFile

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.base.clock import Clock
    from roquet.broker.metadata import Metadata
    from roquet.broker.network.registration import Caller

log = logging.getLogger(__name__)

TIMER_CHECK_SIZE = 56
_TIMER_FILE_SIZE = 4096
_ABSENT = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR)


class SyncState(Protocol):
    """What the copies need to know of this broker."""

    @property
    def is_slave(self) -> bool:
        """Whether the broker follows a master."""
        ...


class Covered(Protocol):
    """Makes topics that the log shows and the table lacks."""

    @property
    def log_end(self) -> int:
        """Where the log ends now."""
        ...

    def cover(self, offset: int) -> None:
        """Note that the table knows every topic with messages before an offset."""
        ...


class SlaveSync:
    """Asks the master, and writes down what it says."""

    def __init__(
        self,
        caller: Caller,
        metadata: Metadata,
        folder: Path,
        state: SyncState,
        clock: Clock,
        *,
        log_topics: Covered | None = None,
    ) -> None:
        """`folder` is where the metadata files are."""
        self._caller = caller
        self._metadata = metadata
        self._folder = folder
        self._state = state
        self._log_topics = log_topics
        self._log = RateLog(log, clock)
        self._master: str | None = None
        self._seen: dict[tuple[str, int], int] = {}
        self._files: dict[str, tuple[JsonFile, bytes]] = {}

    @property
    def master(self) -> str | None:
        """The master's address for clients, as name servers tell it."""
        return self._master

    def learn(self, address: str | None) -> None:
        """Take the master's address."""
        if address and address != self._master:
            self._master = address
            self._seen.clear()

    async def tick(self) -> None:
        """Ask for everything once: the action of a timer."""
        if not self._state.is_slave or self._master is None:
            return
        for what, step in (
            ("topics", self._topics),
            ("groups", self._groups),
            ("consumer offsets", self._offsets),
            ("delay offsets", self._delays),
            ("message request modes", self._modes),
            ("timer check point", self._timer_check),
            ("timer metrics", self._timer_metrics),
        ):
            try:
                await step()
            except (RoquetError, ValueError, OSError) as error:
                self._log.warning(what, f"{what} of the master are not copied: {error}")

    async def _ask(self, code: RequestCode, ext: dict[str, str] | None = None) -> bytes | None:
        """Return the answer's body; None when the master has no such thing."""
        answer = await self._caller.call(self._master or "", Command(code, ext=ext), 5.0)
        if answer.code in _ABSENT:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise RoquetError(f"code {answer.code}: {answer.remark}")
        return answer.body or None

    async def _topics(self) -> None:
        # Whatever is in the log by now was sent after its topic was made at the master.
        log_end = 0 if self._log_topics is None else self._log_topics.log_end
        body = await self._ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        if body is None:
            return
        table = TopicTableBody.decode(body, tolerant_size_max=FILE_SIZE_MAX)
        topics = self._metadata.topics
        if table.version != topics.version:
            topics.replace(table.topics, table.version)
            await topics.persist()
        if self._log_topics is not None:
            await asyncio.to_thread(self._log_topics.cover, log_end)

    async def _groups(self) -> None:
        body = await self._ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        if body is None:
            return
        table = GroupTableBody.decode(body, tolerant_size_max=FILE_SIZE_MAX)
        groups = self._metadata.groups
        if table.version != groups.version:
            groups.replace(table)
            await groups.persist()

    async def _offsets(self) -> None:
        body = await self._ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        if body is None:
            return
        table = ConsumerOffsetBody.decode(body, tolerant_size_max=FILE_SIZE_MAX)
        for key, queues in table.offsets.items():
            topic, _, group = key.partition("@")
            for queue_id, offset in queues.items():
                self._follow(key, (group, topic, queue_id), offset)
        await self._metadata.offsets.persist()

    def _follow(self, key: str, where: tuple[str, str, int], offset: int) -> None:
        offsets = self._metadata.offsets
        own = offsets.committed(*where)
        before = self._seen.get((key, where[2]))
        self._seen[key, where[2]] = offset
        went_back = before is not None and offset < before
        if own is None or offset > own or (went_back and offset != own):
            offsets.commit(*where, offset)

    async def _delays(self) -> None:
        body = await self._ask(RequestCode.GET_ALL_DELAY_OFFSET)
        if body is not None:
            await self._write("delayOffset.json", DelayOffsetBody.decode(body).encode_file())

    async def _modes(self) -> None:
        body = await self._ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        if body is not None:
            table = RequestModeTable.decode(body, tolerant_size_max=FILE_SIZE_MAX)
            self._metadata.modes.replace(table)
            await self._metadata.modes.persist()

    async def _timer_metrics(self) -> None:
        body = await self._ask(RequestCode.GET_TIMER_METRICS)
        if body is not None:
            await self._write("timermetrics", _checked(body))

    async def _timer_check(self) -> None:
        body = await self._ask(RequestCode.GET_TIMER_CHECK_POINT)
        if body is None:
            return
        if len(body) != TIMER_CHECK_SIZE:
            raise ValueError(f"{len(body)} bytes instead of {TIMER_CHECK_SIZE}")
        await self._write("timercheck", body.ljust(_TIMER_FILE_SIZE, b"\0"))

    async def _write(self, name: str, data: bytes) -> None:
        """Write a file that the part it belongs to reads when this broker becomes a master."""
        file, old = self._files.get(name, (JsonFile(self._folder / name), b""))
        if data != old:
            async with file.writing:
                await file.save(lambda: data)
            self._files[name] = (file, data)


def _checked(body: bytes) -> bytes:
    """Return a JSON object as it came. Raises JsonError when it is none."""
    fastjson.read_object(body, tolerant_size_max=FILE_SIZE_MAX)
    return body
