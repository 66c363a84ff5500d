"""A slave's copies of what its master keeps beside the log: topics, groups, offsets and the like.

Every ten seconds the slave asks its master with the codes that every broker answers (spec: ha §5).
Topics and groups are read in pages, as a 5.x slave does, and taken over whole when their version
differs; a master that knows no pages sends all at once. Consumer offsets come in one answer, which
a master bounds (`store/tables/offsets.py`): it is read beside the loop and followed in slices. They
never go back: an offset here that is ahead (clients commit to a slave while the master is away)
stays, unless the master's own value went back, which only an administrator does. What fails is
tried next time.

What was deleted is asked for each second: a master that is lost until then takes the news along,
and its successor has the messages and offsets of before.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from roquet.base.errors import RoquetError
from roquet.protocol import fastjson
from roquet.protocol.bodies.assignments import RequestModeTable
from roquet.protocol.bodies.deletions import DeletionsBody
from roquet.protocol.bodies.groups import GroupTableBody
from roquet.protocol.bodies.offsets import ConsumerOffsetBody, DelayOffsetBody
from roquet.protocol.bodies.topics import TopicTableBody, encode_data_version
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.headers.offset import DELETIONS, DELETIONS_SINCE, HAS_LIGHT_OFFSETS
from roquet.protocol.light import light_topics
from roquet.service.ratelog import RateLog
from roquet.service.slices import in_slices, read_body
from roquet.store.tables.files import FILE_SIZE_MAX, JsonFile
from roquet.store.timer_wheel import CHECK_SIZE, drop_wheel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from roquet.base.clock import Clock
    from roquet.broker.metadata import Metadata
    from roquet.broker.network.registration import Caller
    from roquet.model.data_version import DataVersion

log = logging.getLogger(__name__)

_TIMER_FILE_SIZE = 4096
_ABSENT = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR)
PAGE_ROWS = 2_000
"""What brokers give at most."""
OFFSETS_AT_ONCE = 2_000
"""Offsets that are followed before others have their turn."""
LAST_COPY_S = 3.0
READS_MAX = 3
"""How often a table is read anew that changes while it is read."""


class _Paged(NamedTuple):
    """How a table is asked for in pages: names of fields."""

    code: RequestCode
    start: str
    most: str
    total: str


TOPICS = _Paged(RequestCode.GET_ALL_TOPIC_CONFIG, "topicSeq", "maxTopicNum", "totalTopicNum")
GROUPS = _Paged(
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "groupSeq", "maxGroupNum", "totalGroupNum"
)


class _Page(NamedTuple):
    """Some rows of a table, or all of them."""

    version: DataVersion
    rows: Mapping[str, Any]
    forbidden: Mapping[str, Mapping[str, int]]


class _Copy(NamedTuple):
    """What was read of a table; when it changed meanwhile, rows may be missing."""

    page: _Page
    is_whole: bool


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


class CopiedDeletions(Protocol):
    """Forgets here what the master has deleted."""

    async def follow(self, body: DeletionsBody) -> bool:
        """Do what the master did; tell whether all of it is done."""
        ...

    async def look_at_log(self) -> None:
        """Forget the offsets of topics that began anew in what was copied."""
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
        store_folder: Path | None = None,
        deletions: CopiedDeletions | None = None,
    ) -> None:
        """`folder` is where the metadata files are, `store_folder` where a wheel may be."""
        self._caller = caller
        self._metadata = metadata
        self._folder = folder
        self._state = state
        self._log_topics = log_topics
        self._log = RateLog(log, clock)
        self._master: str | None = None
        self._seen: dict[tuple[str, int], int] = {}
        self._files: dict[str, tuple[JsonFile, bytes]] = {}
        self._store_folder = store_folder
        self._asking: asyncio.Task[Command] | None = None
        self._deletions = deletions
        self._deletions_version: str | None = None
        self._may_look = deletions is not None
        self._copying = asyncio.Lock()

    @property
    def master(self) -> str | None:
        """The master's address for clients, as name servers tell it."""
        return self._master

    def learn(self, address: str | None) -> None:
        """Take the master's address."""
        if address and address != self._master:
            self._master = address
            self._seen.clear()
            self._deletions_version = None
            self._may_look = self._deletions is not None

    def forget(self) -> None:
        """Know no master any more, and let go of a question that is under way."""
        self._master = None
        self._seen.clear()
        self._deletions_version = None
        # The parts that these files belong to write them from now on.
        self._files.clear()
        if self._asking is not None:
            self._asking.cancel()

    async def copy_last(self) -> None:
        """Ask once more, before this broker leads: what was answered until now counts.

        A master that is lost says nothing, and costs its successor no more than `LAST_COPY_S`.
        """
        try:
            async with asyncio.timeout(LAST_COPY_S):
                await self.tick()
        except TimeoutError:
            log.warning("the tables of the last master may be newer: it does not answer")

    async def tick(self) -> None:
        """Ask for everything once: the action of a timer."""
        await self._copy(
            ("topics", self._topics),
            ("groups", self._groups),
            ("consumer offsets", self._offsets),
            ("delay offsets", self._delays),
            ("message request modes", self._modes),
            ("timer check point", self._timer_check),
            ("timer metrics", self._timer_metrics),
        )

    async def look_at_deletions(self) -> None:
        """Follow what the master has deleted since the last copy: the action of a timer."""
        # A master that knows no such question sends all offsets, or the whole list, each time.
        if self._may_look and not self._copying.locked():
            await self._copy(("deletions", self._look_at_deletions))

    async def _copy(self, *steps: tuple[str, Callable[[], Awaitable[None]]]) -> None:
        async with self._copying:
            for what, step in steps:
                if self._master is None or not self._state.is_slave:
                    return
                try:
                    await step()
                except (RoquetError, ValueError, OSError) as error:
                    self._log.warning(what, f"{what} of the master are not copied: {error}")

    async def _ask(self, code: RequestCode) -> bytes | None:
        """Return the answer's body; None when the master has no such thing."""
        answer = await self._answer(code)
        return answer.body or None if answer is not None else None

    async def _answer(self, code: RequestCode, ext: dict[str, str] | None = None) -> Command | None:
        call = self._caller.call(self._master or "", Command(code, ext=ext), 5.0)
        asking = self._asking = asyncio.get_running_loop().create_task(call)
        try:
            answer = await asking
        except asyncio.CancelledError:
            if self._master is None and asking.cancelled():
                raise RoquetError("this broker follows no master any more") from None
            asking.cancel()
            raise
        finally:
            self._asking = None
        if answer.code in _ABSENT:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise RoquetError(f"code {answer.code}: {answer.remark}")
        return answer

    async def _table(
        self, paged: _Paged, read: Callable[[bytes], _Page], own: DataVersion
    ) -> _Copy | None:
        """Read a table of the master in pages; None when it has none.

        What has our own version is not read on. A table that changes while it is read is read
        anew; one that never stands still comes with what was read last.
        """
        pages: list[_Page] = []
        for _ in range(READS_MAX):
            pages, is_whole = [], False
            while not is_whole:
                at = sum(len(page.rows) for page in pages)
                ext = {paged.start: str(at), paged.most: str(PAGE_ROWS)}
                if pages:
                    ext["dataVersion"] = encode_data_version(pages[0].version).decode()
                answer = await self._answer(paged.code, ext)
                if answer is None or not answer.body:
                    return None
                page = await asyncio.to_thread(read, answer.body)
                if pages and page.version != pages[0].version:
                    break
                pages.append(page)
                total = int((answer.ext or {}).get(paged.total, "0"))
                is_whole = at + len(page.rows) >= total or not page.rows or page.version == own
            if is_whole:
                return _Copy(_together(pages), is_whole=True)
        return _Copy(_together(pages), is_whole=False)

    async def _topics(self) -> None:
        # Whatever is in the log by now was sent after its topic was made at the master.
        log_end = 0 if self._log_topics is None else self._log_topics.log_end
        topics = self._metadata.topics
        copy = await self._table(TOPICS, _topic_page, topics.version)
        if copy is None:
            return
        if copy.page.version != topics.version:
            rows = copy.page.rows if copy.is_whole else {**topics.all(), **copy.page.rows}
            topics.replace(rows, copy.page.version)
            await topics.persist()
        if self._log_topics is not None and copy.is_whole:
            await asyncio.to_thread(self._log_topics.cover, log_end)

    async def _groups(self) -> None:
        groups = self._metadata.groups
        copy = await self._table(GROUPS, _group_page, groups.version)
        if copy is None or copy.page.version == groups.version:
            return
        version, rows, forbidden = copy.page
        if not copy.is_whole:
            rows = {**groups.all(), **rows}
            forbidden = {**groups.all_forbidden(), **forbidden}
        groups.replace(GroupTableBody(groups=rows, version=version, forbidden=forbidden))
        await groups.persist()

    async def _offsets(self) -> None:
        master = self._master
        if self._deletions is not None:
            await self._deletions.look_at_log()
        answer = await self._answer(RequestCode.GET_ALL_CONSUMER_OFFSET)
        version = (answer.ext or {}).get(DELETIONS) if answer is not None else None
        if version is not None and version != self._deletions_version:
            if await self._follow_deletions():
                self._deletions_version = version
            # What was read may be from before what is known to be deleted now.
            answer = await self._answer(RequestCode.GET_ALL_CONSUMER_OFFSET)
        if answer is None or not answer.body:
            return
        table = await read_body(_offset_table, answer.body)
        rows = (
            (key, queue_id, offset)
            for key, queues in table.offsets.items()
            for queue_id, offset in queues.items()
        )
        async for key, queue_id, offset in in_slices(rows, OFFSETS_AT_ONCE):
            if self._master != master or not self._state.is_slave:
                return  # What another broker said must not count as this one's.
            topic, _, group = key.partition("@")
            self._follow(key, (group, topic, queue_id), offset)
        if HAS_LIGHT_OFFSETS in (answer.ext or {}):
            await self._forget_lights(table, master)
        await self._metadata.offsets.persist()

    async def _look_at_deletions(self) -> None:
        known = self._deletions_version or ""
        answer = await self._answer(
            RequestCode.GET_ALL_CONSUMER_OFFSET, {DELETIONS: "true", DELETIONS_SINCE: known}
        )
        if answer is None:
            return
        version = (answer.ext or {}).get(DELETIONS_SINCE)
        self._may_look = version is not None
        if version is None or version == known:
            return
        await self._topics()
        await self._groups()
        body = await asyncio.to_thread(_deletions, answer.body or b"{}")
        if self._deletions is None or not self._state.is_slave:
            return
        if await self._deletions.follow(body):
            self._deletions_version = version

    async def _follow_deletions(self) -> bool:
        if self._deletions is None:
            return True
        answer = await self._answer(RequestCode.GET_ALL_CONSUMER_OFFSET, {DELETIONS: "true"})
        if answer is None or DELETIONS not in (answer.ext or {}):
            return False
        body = await asyncio.to_thread(_deletions, answer.body or b"{}")
        return self._state.is_slave and await self._deletions.follow(body)

    def _follow(self, key: str, where: tuple[str, str, int], offset: int) -> None:
        offsets = self._metadata.offsets
        own = offsets.committed(*where)
        before = self._seen.get((key, where[2]))
        self._seen[key, where[2]] = offset
        went_back = before is not None and offset < before
        # Nobody takes messages of light topics from a slave: its master alone knows.
        is_masters = light_topics.split(where[1]) is not None
        if own is None or offset > own or ((went_back or is_masters) and offset != own):
            offsets.commit(*where, offset)

    async def _forget_lights(self, table: ConsumerOffsetBody, master: str | None) -> None:
        """Forget offsets of light topics that the master has not: they began anew, or will."""
        offsets = self._metadata.offsets
        async for topic, group in in_slices(offsets.pairs(), OFFSETS_AT_ONCE):
            if light_topics.split(topic) is None or f"{topic}@{group}" in table.offsets:
                continue
            if self._master != master or not self._state.is_slave:
                return
            await offsets.remove(topic, group)

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
        if len(body) != CHECK_SIZE:
            raise ValueError(f"{len(body)} bytes instead of {CHECK_SIZE}")
        if self._store_folder is not None:
            # The checkpoint is about the master's wheel: held against a log of units of our own,
            # of an earlier term as master, it would pass over messages that are in neither.
            await asyncio.to_thread(drop_wheel, self._store_folder)
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


def _offset_table(body: bytes) -> ConsumerOffsetBody:
    return ConsumerOffsetBody.decode(body, tolerant_size_max=FILE_SIZE_MAX)


def _deletions(body: bytes) -> DeletionsBody:
    return DeletionsBody.decode(body, tolerant_size_max=FILE_SIZE_MAX)


def _topic_page(body: bytes) -> _Page:
    table = TopicTableBody.decode(body, tolerant_size_max=FILE_SIZE_MAX)
    return _Page(table.version, table.topics, {})


def _group_page(body: bytes) -> _Page:
    table = GroupTableBody.decode(body, tolerant_size_max=FILE_SIZE_MAX)
    return _Page(table.version, table.groups, table.forbidden)


def _together(pages: list[_Page]) -> _Page:
    rows: dict[str, Any] = {}
    forbidden: dict[str, Mapping[str, int]] = {}
    for page in pages:
        rows.update(page.rows)
        forbidden.update(page.forbidden)
    return _Page(pages[0].version, rows, forbidden)
