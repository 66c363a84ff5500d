"""What was decided about half messages, on a disk of the driver, before any of them is released.

A file an epoch: which half messages make it up, and how far their queues had got before the first
was released. As long as it is there and not done, the next run goes on with its release; what a
second try of the tasks has sent is rolled back then. Invariant: nothing is released that is in no
file, and an epoch has one file. Its rows never change: it may be done, and in the place of a half
message that a broker has put aside comes that of the same row from a later try.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from roquet.base.durable import replace_file
from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

HALVES_MAX: Final = 1_000_000
"""Half messages of an epoch: each costs memory of the driver and a request to release it."""


class Half(NamedTuple):
    """A half message, and the queue that it will be released to."""

    topic: str
    broker: str
    queue_id: int
    log_offset: int
    half_offset: int
    key: str
    """Its unique key, which a plan makes: no other row has it."""


class Decision(NamedTuple):
    """An epoch that is to be released."""

    halves: tuple[Half, ...]
    begins: dict[tuple[str, str, int], int]
    """Topic, broker and queue -> its end before the release."""
    done: bool = False


class Decisions:
    """The decisions of one query, or of the runs of one name."""

    def __init__(self, folder: str, run: str | None) -> None:
        """Name the folder; `run` is that of a batch, None of a stream, which has a folder alone."""
        front = "epoch" if run is None else "run-" + hashlib.sha256(run.encode()).hexdigest()[:16]
        self._folder = Path(folder)
        self._front = front

    def get(self, epoch: int) -> Decision | None:
        """Return what was decided about an epoch, None when nothing was. Raises UsageError."""
        path = self._path(epoch)
        if not path.exists():
            return None
        try:
            return _parse(path.read_bytes())
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{path} is damaged: {error}; nothing is released") from error

    def put(self, epoch: int, decision: Decision) -> None:
        """Write a decision; it is durable then. Those of earlier epochs go. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._path(epoch), _text(decision))
        for path in self._folder.glob(f"{self._front}-*.json"):
            number = path.stem.rsplit("-", 1)[-1]
            if number.isdecimal() and int(number) < epoch:
                path.unlink(missing_ok=True)

    def _path(self, epoch: int) -> Path:
        return self._folder / f"{self._front}-{epoch}.json"


def _text(decision: Decision) -> bytes:
    whole = {
        "v": 1,
        "done": decision.done,
        "begins": [[*queue, offset] for queue, offset in decision.begins.items()],
        "halves": [list(half) for half in decision.halves],
    }
    return json.dumps(whole, separators=(",", ":")).encode()


def _parse(data: bytes) -> Decision:
    whole: Any = json.loads(data)
    if whole["v"] != 1:
        raise ValueError("written by a later release")
    begins = {(row[0], row[1], row[2]): row[3] for row in cast("Sequence[Any]", whole["begins"])}
    halves = tuple(Half(*row) for row in cast("Sequence[Any]", whole["halves"]))
    return Decision(halves, begins, bool(whole["done"]))
