"""When an epoch of an idempotent write began, and which queues its rows go to.

Both are kept in a folder of the driver: the next run needs them to repeat an epoch. A broker
forgets producers after two days, so an epoch that began earlier than that may not be repeated.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from roquet.base.durable import replace_file
from roquet.base.errors import UsageError
from roquet.model.queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Sequence


class Begun(NamedTuple):
    """When epochs began, Unix milliseconds."""

    last: int
    """The last epoch that was committed; -1: none."""
    last_ms: int
    open_ms: int
    """Of the one that follows it; 0: it has not begun."""

    def of(self, epoch: int) -> int:
        """Return when an epoch began."""
        return self.last_ms if epoch == self.last else self.open_ms


class Epochs:
    """The epochs of one query, or of the runs of one name."""

    def __init__(self, folder: str, run: str | None) -> None:
        """Name the folder; `run` is that of a batch, None of a stream, which has a folder alone."""
        front = (
            "epochs" if run is None else "epochs-" + hashlib.sha256(run.encode()).hexdigest()[:16]
        )
        self._path = Path(folder) / f"{front}.json"

    def begin(self, now_ms: int) -> Begun:
        """Note that an epoch begins, unless that is noted. Raises UsageError, OSError."""
        found = self._read()
        if not found.open_ms:
            found = found._replace(open_ms=now_ms)
            self._write(found)
        return found

    def commit(self, epoch: int) -> None:
        """Note that an epoch is over. Raises UsageError, OSError."""
        found = self._read()
        if epoch != found.last:
            self._write(Begun(epoch, found.open_ms, 0))

    def _read(self) -> Begun:
        whole = _json(self._path)
        if whole is None:
            return Begun(-1, 0, 0)
        try:
            return Begun(int(whole["last"]), int(whole["lastMs"]), int(whole["openMs"]))
        except (KeyError, ValueError, TypeError) as error:
            raise UsageError(f"{self._path} is damaged: {error}") from error

    def _write(self, found: Begun) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        whole = {"v": 1, "last": found.last, "lastMs": found.last_ms, "openMs": found.open_ms}
        replace_file(self._path, json.dumps(whole).encode())


def kept_queues(folder: str, topic: str) -> list[MessageQueue] | None:
    """Return the queues that rows go to; None: that is not decided. Raises UsageError."""
    path = _queues_path(folder, topic)
    whole = _json(path)
    if whole is None:
        return None
    try:
        rows = cast("Sequence[Any]", whole["queues"])
        return [MessageQueue(topic, str(broker), int(number)) for broker, number in rows]
    except (KeyError, ValueError, TypeError) as error:
        raise UsageError(f"{path} is damaged: {error}") from error


def keep_queues(folder: str, topic: str, queues: Sequence[MessageQueue]) -> None:
    """Decide which queues rows go to, for as long as the folder is there. Raises OSError."""
    path = _queues_path(folder, topic)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [[it.broker_name, it.queue_id] for it in queues]
    replace_file(path, json.dumps({"v": 1, "topic": topic, "queues": rows}).encode())


def _queues_path(folder: str, topic: str) -> Path:
    return Path(folder) / f"queues-{hashlib.sha256(topic.encode()).hexdigest()[:16]}.json"


def _json(path: Path) -> Any:
    if not path.exists():
        return None
    try:
        whole = json.loads(path.read_bytes())
    except ValueError as error:
        raise UsageError(f"{path} is damaged: {error}") from error
    if whole.get("v") != 1:
        raise UsageError(f"{path} was written by a later release")
    return whole
