"""Topics that the log of a slave shows before its master's table does.

A slave copies the table of topics now and then, the log all the time. A topic that was made in
between has messages here and no configuration: after a fail-over nobody could read them. So a slave
makes what the log shows, with as many queues as the log has seen of it; the next copy of the table
puts the rest right.

A topic that was deleted at the master has queues here until they are cleaned. It does not come
back by them: `config/replica.json` says up to where the log was covered by the last copy of the
table, and only later messages make a topic. A broker that starts as the master of such a store
does the same once, for what its predecessor had no time to save, and removes that file.

The first messages behind a pause are looked at as they come. While more come the loop is woken
every `LOOK_S` and not for each of them: a busy log grows a thousand times a second, and its topics
are known by then.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from typing import TYPE_CHECKING

from roquet.base.durable import read_stored, replace_file, sync_folder
from roquet.base.errors import RoquetError
from roquet.model.topic import TopicConfig
from roquet.service.background import Tasks
from roquet.service.lifecycle import REST_S, Rest, Timer
from roquet.store.tables.topics import is_path_safe

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from roquet.broker.state import BrokerState
    from roquet.store.store import MessageStore
    from roquet.store.tables.topics import TopicTable

log = logging.getLogger(__name__)

FILE_NAME = "replica.json"
_COVERED = "coveredByTables"
_SIZE_MAX = 4096
"""Bytes; a longer file is damaged, and cut it is no JSON."""
LOOK_S = 0.1
"""Between two looks at what a log that grows shows."""
_MASTER_S = 60.0
"""The same of a broker whose topics its log does not make; a change of its role ends it."""


class LogTopics:
    """Makes the topics that the log shows. A service, to be started behind the store."""

    def __init__(
        self, topics: TopicTable, store: MessageStore, state: BrokerState, config_folder: Path
    ) -> None:
        self._topics = topics
        self._store = store
        self._state = state
        self._path = config_folder / FILE_NAME
        self._covered = 0
        self._tasks = Tasks()
        self._quiet = Rest()
        """Ends with messages."""
        self.timers = (
            Timer("look at what the log shows", self.tick, self.pause_s, LOOK_S, self._quiet),
        )
        # Nobody waits behind a look, until the timer has it that somebody does.
        store.arrivals.on_all(self._arrived, lambda: False)
        state.listen(self._role_changed)

    async def start(self) -> None:
        """Make what the log of a slave, or of what was one, shows. Raises StoreFault, OSError."""
        await self.settle(leads=not self._state.is_slave)

    async def settle(self, *, leads: bool) -> None:
        """Make what the log shows; a broker that leads from now on does it for the last time.

        Raises StoreFault, OSError.
        """
        covered = self._read()
        if covered is None and leads:
            return
        if covered is None:
            self.cover(self._store.native.max_physical_offset())
        else:
            self._covered = covered
        queues = self._store.native.queues()
        if self._make((topic, queue_id, end) for topic, queue_id, _, end in queues):
            await self._topics.persist()
        if leads:
            self._covered = 0
            self._path.unlink(missing_ok=True)
            sync_folder(self._path.parent)

    async def tick(self) -> None:
        """Hear of the messages that have come, or of the next ones: the action of a timer."""
        self._quiet.look(idle=True)
        if self._state.is_slave:
            self._store.arrivals.begin()

    def pause_s(self) -> float:
        """Return when to look again: messages end the pause of a log that does not grow."""
        if not self._quiet.is_on:
            return LOOK_S
        return REST_S if self._state.is_slave else _MASTER_S

    def _role_changed(self) -> None:
        self._quiet.asked()
        self._store.arrivals.begin()

    async def stop(self) -> None:
        """Let what is being saved be saved."""
        await self._tasks.stop(within_s=5)

    @property
    def is_copy(self) -> bool:
        """Whether the log was copied from a master and no run since has led."""
        return self._path.exists()

    @property
    def log_end(self) -> int:
        """Where the log ends now: what the next copy of the master's table will cover."""
        return self._store.native.max_physical_offset()

    def cover(self, offset: int) -> None:
        """Note that the table knows every topic with messages before `offset`. Raises OSError."""
        if offset > self._covered or not self._path.exists():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, json.dumps({_COVERED: offset}).encode())
            self._covered = offset

    def _read(self) -> int | None:
        try:
            return int(json.loads(read_stored(self._path, _SIZE_MAX))[_COVERED])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            # Deleted topics may come back now, which is better than messages without a topic.
            log.warning("%s cannot be used: %s", self._path, error)
            return 0

    def _arrived(self, news: Sequence[tuple[str, int, int]]) -> None:
        if not self._state.is_slave:
            return
        self._quiet.asked()
        if self._make(news):
            self._tasks.spawn(self._save(), "save the topics that the log shows")

    async def _save(self) -> None:
        try:
            await self._topics.persist()
        except (RoquetError, OSError) as error:
            log.warning("topics that the log shows are not saved yet: %s", error)

    def _make(self, queues: Iterable[tuple[str, int, int]]) -> bool:
        """Make or widen the topics of (topic, queue id, end of the queue); tell whether any."""
        wanted: dict[str, int] = {}
        for topic, queue_id, end in queues:
            known = self._topics.get(topic)
            if queue_id < (known.read_queues if known else 0) or not is_path_safe(topic):
                continue
            if self._is_later(topic, queue_id, end):
                wanted[topic] = max(queue_id + 1, wanted.get(topic, 0))
        for topic, count in wanted.items():
            self._topics.put(self._with_queues(topic, count))
        return bool(wanted)

    def _is_later(self, topic: str, queue_id: int, end: int) -> bool:
        unit = self._store.native.unit(topic, queue_id, end - 1) if end > 0 else None
        return unit is not None and unit[0] >= self._covered

    def _with_queues(self, topic: str, count: int) -> TopicConfig:
        known = self._topics.get(topic)
        if known is None:
            log.info("topic %s has messages in the log: it is made with %d queues", topic, count)
            return TopicConfig(name=topic, read_queues=count, write_queues=count)
        return dataclasses.replace(
            known, read_queues=count, write_queues=max(count, known.write_queues)
        )
