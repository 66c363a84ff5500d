"""Where a broadcasting consumer is: kept in a file here, since its brokers keep nothing of it."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Annotated

import msgspec

from roquet.base.overriding import override
from roquet.client._queues.offsets import Offsets

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from roquet.client._cluster.broker_calls import BrokerCalls
    from roquet.client._queues.offsets import Start
    from roquet.model.queue import MessageQueue

log = logging.getLogger(__name__)

_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
FILE_SIZE_MAX = 16 * 1024 * 1024


class LocalOffsets(Offsets):
    """The offsets of one consumer, which gets all messages whatever the others get.

    The file belongs to one consumer at a time: two in one group need a folder each.
    """

    def __init__(self, calls: BrokerCalls, group: str, start: Start, folder: Path) -> None:
        """Keep them in `folder`, in a file with the group's name."""
        super().__init__(calls, group, start)
        self._path = folder / f"{group.replace('%', '_').replace('|', '_')}.json"
        self._table: dict[str, int] | None = None
        self._writing = asyncio.Lock()

    @override
    def to_commit(self, queue: MessageQueue) -> int:
        """Return 0: brokers are not told."""
        del queue
        return 0

    @override
    async def write(
        self, queues: Iterable[MessageQueue], *, wait: bool = False, again: bool = False
    ) -> None:
        """Write the file when an offset has changed; a failure is logged and tried again."""
        del wait
        async with self._writing:
            table = await self._loaded()
            known = {queue: offset for queue in queues if (offset := self.get(queue)) is not None}
            changed = {_key(queue): offset for queue, offset in known.items()}
            if not again and all(table.get(key) == offset for key, offset in changed.items()):
                return
            table.update(changed)
            data = json.dumps(table, indent=1, sort_keys=True).encode()
            try:
                await asyncio.to_thread(self._save, data)
            except OSError as error:
                log.warning("the offsets are not written to %s: %s", self._path, error)

    @override
    async def _committed(self, queue: MessageQueue) -> int | None:
        return (await self._loaded()).get(_key(queue))

    async def _loaded(self) -> dict[str, int]:
        if self._table is None:
            self._table = await asyncio.to_thread(self._load)
        return self._table

    def _load(self) -> dict[str, int]:
        try:
            if self._path.stat().st_size > FILE_SIZE_MAX:
                raise ValueError(f"larger than {FILE_SIZE_MAX} bytes")  # noqa: TRY301
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, _Offset])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning("the offsets in %s cannot be used: %s", self._path, error)
            return {}

    def _save(self, data: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        side = self._path.with_name(self._path.name + ".tmp")
        side.write_bytes(data)
        side.replace(self._path)


def _key(queue: MessageQueue) -> str:
    return f"{queue.topic}@{queue.broker_name}@{queue.queue_id}"
