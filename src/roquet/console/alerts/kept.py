"""What a console knows of alerts, in a file, so that a restart of it raises nothing twice.

For each cluster: the alerts that are open and the last that are over, since when what is not an
alert yet is beyond its limit, the nodes that should be there, and what waits to be posted. The file
is written whole, at most once in `EVERY_S` and at the stop. A console that is killed knows less by
what changed since: an alert may be posted again, with the same id, and none is left out.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from typing import TYPE_CHECKING, Any, cast

from roquet.base.durable import replace_file
from roquet.base.errors import UsageError
from roquet.console.alerts.rules import Alert

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from roquet.console.alerts.watch import Watch

log = logging.getLogger(__name__)

EVERY_S = 5.0
_FORM = 1
_SIZE_MAX = 64 << 20
_ALERT = {it.name for it in dataclasses.fields(Alert)}
_FLAG = "--alerts-state"


class Kept:
    """The file. `tick` is the action of a timer."""

    def __init__(self, file: Path, watches: Mapping[str, Watch]) -> None:
        """Give each cluster's watch what the file has of it. Raises UsageError.

        A file that is not there is made at once: it is known at the start whether it can be.
        """
        self._file = file
        self._watches = dict(watches)
        self._written = b""
        self.broken = ""
        """Why the file could not be written; empty when it could."""
        there = _read(file)
        # What is known of clusters that this console does not watch now stays as it is.
        self._others = {name: it for name, it in there.items() if name not in self._watches}
        for name, watch in self._watches.items():
            _give(file, watch, there.get(name, {}))
        try:
            self._write()
        except OSError as error:
            raise UsageError(f"{_FLAG} {file}: {error.strerror}") from error

    async def tick(self) -> None:
        """Write what has changed."""
        self.save()

    def save(self) -> None:
        """Write what has changed; say so once where that cannot be done."""
        try:
            self._write()
        except OSError as error:
            self._failed(str(error.strerror))
        else:
            self.broken = ""

    def _failed(self, why: str) -> None:
        if not self.broken:
            log.error("alerts are not kept: %s: %s", self._file, why)
        self.broken = why

    def _write(self) -> None:
        clusters = {**self._others, **{name: _of(it) for name, it in self._watches.items()}}
        data = json.dumps({"form": _FORM, "clusters": clusters}).encode()
        if data != self._written:
            # Names of groups and what waits for the webhook are for the owner alone.
            replace_file(self._file, data, mode=0o600)
            self._written = data


def _of(watch: Watch) -> dict[str, Any]:
    alerts = watch.alerts
    return {
        "open": [dataclasses.asdict(it) for it in alerts.open.values()],
        "past": [dataclasses.asdict(it) for it in alerts.past],
        "since": [[*key, since_ms] for key, since_ms in alerts.since.items()],
        "nodes": watch.nodes(),
        "waiting": watch.webhook.left(),
    }


def _read(file: Path) -> dict[str, dict[str, Any]]:
    try:
        with file.open("rb") as opened:
            data = opened.read(_SIZE_MAX + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{_FLAG} {file}: {error.strerror}") from error
    try:
        source = json.loads(data)
        if source["form"] != _FORM:
            raise UsageError(f"{_FLAG} {file}: form {str(source['form'])[:20]} is not known here")
        clusters = cast("dict[str, dict[str, Any]]", dict(source["clusters"]))
        if not all(isinstance(it, dict) for it in cast("dict[str, Any]", clusters).values()):
            raise _unreadable(file)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unreadable(file) from error
    return clusters


def _give(file: Path, watch: Watch, source: Mapping[str, Any]) -> None:
    try:
        opened, past = (
            [_alert(it) for it in cast("Sequence[Any]", source.get(name, ()))]
            for name in ("open", "past")
        )
        since = {
            (str(kind), str(subject)): int(since_ms)
            for kind, subject, since_ms in source.get("since", ())
        }
        nodes = {
            str(name): bool(is_there) for name, is_there in dict(source.get("nodes", {})).items()
        }
        waiting = [dict(it) for it in source.get("waiting", ())]
    except (ValueError, TypeError, KeyError) as error:
        raise _unreadable(file) from error
    watch.alerts.recall(opened, past, since)
    watch.recall(nodes)
    watch.webhook.recall(waiting)


def _alert(source: Any) -> Alert:
    given = {name: source[name] for name in _ALERT}
    texts = all(isinstance(given[name], str) for name in ("kind", "subject", "text"))
    numbers = all(isinstance(given[name], int | float) for name in ("value", "limit", "since_ms"))
    if not texts or not numbers or not isinstance(given["over_ms"], int | None):
        raise TypeError
    return Alert(**given)


def _unreadable(file: Path) -> UsageError:
    return UsageError(f"{_FLAG} {file}: it is no such file; move it away to begin anew")
