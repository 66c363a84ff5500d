"""What commands of RocketMQ's tool share: which brokers, numbers, and Java's ways of printing."""

from __future__ import annotations

import codecs
import json
import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from roquet.base.clock import SystemClock
from roquet.base.errors import NotFound, UsageError
from roquet.cli import output
from roquet.protocol.java_hash import java_hash

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from roquet.admin import Admin
    from roquet.model.queue import MessageQueue

_DIGITS_MAX, _LONG_MAX = 19, 2**63 - 1
_FILE_MAX = 16 * 1024 * 1024


async def targets(admin: Admin, options: argparse.Namespace) -> dict[str, str]:
    """Return broker name -> address of `-b` (an address), or of a cluster's masters.

    Raises UsageError when neither is given, NotFound for what is not there.
    """
    known = (await admin.brokers.cluster()).brokers
    asked: str | None = getattr(options, "brokerAddr", None)
    if asked is not None:
        for name, data in known.items():
            if asked in data.addresses.values():
                return {name: asked}
        if asked in admin.name_servers.addresses:
            raise UsageError(f"-b {asked} is a name server: the address of a broker is wanted")
        raise NotFound(f"no broker at {asked[:80]} is registered; try: roquet broker ls")
    cluster = getattr(options, "clusterName", None) or getattr(options, "cluster", None)
    if cluster is None:
        raise UsageError("give -b or -c")
    return dict(sorted((await admin.brokers.masters(cluster=cluster)).items()))


async def addresses_in(admin: Admin, cluster: str) -> list[str]:
    """Return the addresses of all brokers of a cluster, masters before their slaves.

    Raises NotFound.
    """
    known = (await admin.brokers.cluster()).brokers
    found = [
        address
        for _, data in sorted(known.items())
        if data.cluster == cluster
        for _, address in sorted(data.addresses.items())
    ]
    if not found:
        raise NotFound(f"there is no broker in the cluster {cluster[:80]!r}")
    return found


async def repeated(interval: str | None, default: int, once: Callable[[], Awaitable[int]]) -> int:
    """Do something once and return its exit code; with an `-i` every so many seconds for ever.

    A given interval of nothing is `default`. Raises UsageError.
    """
    every_s = None if interval is None else number(interval.strip() or None, "-i", default)
    while True:
        code = await once()
        if every_s is None:
            return code
        output.flush()
        await SystemClock().sleep(max(1, every_s))


def charset(text: str | None, flag: str) -> str:
    """Return the name of a character set, UTF-8 when none is given. Raises UsageError."""
    name = "UTF-8" if text is None else text.strip()
    try:
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        raise UsageError(f"{flag} {name[:40]!r} is no character set, as UTF-8 or GBK") from None


def text_of(body: bytes, name: str) -> str:
    """Return a body as text for a terminal, in a character set."""
    return output.plain(body.decode(name, errors="replace"))


def listed(file: str, table: str) -> list[dict[str, Any]]:
    """Read the objects of a JSON file: an array, or what exportMetadata has written.

    `table` is their place in the latter. Raises UsageError for a file that has none.
    """
    path = Path(file.strip())
    try:
        if path.stat().st_size > _FILE_MAX:
            raise UsageError(f"-f {str(path)[:200]!r} is longer than {_FILE_MAX} bytes")
        found: object = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"-f {str(path)[:200]!r} cannot be read: {error}") from error
    if isinstance(found, dict):
        rows = cast("dict[str, object]", found).get(table)
        found = [*cast("dict[str, object]", rows).values()] if isinstance(rows, dict) else rows
    if not isinstance(found, list):
        raise UsageError(f"-f {str(path)[:200]!r} has no array of objects, and no {table}")
    items = cast("list[object]", found)
    if not items or not all(isinstance(it, dict) for it in items):
        raise UsageError(f"-f {str(path)[:200]!r} has an empty array, or what is no object")
    return cast("list[dict[str, Any]]", items)


def number(text: str | None, flag: str, default: int) -> int:
    """Read a whole number. Raises UsageError."""
    if text is None:
        return default
    digits = text.strip().removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
    if not is_number or not -_LONG_MAX <= int(text) <= _LONG_MAX:
        raise UsageError(f"{flag} {text[:40]!r} is no whole number")
    return int(text)


def moment(text: str | None, flag: str, default: int) -> int:
    """Read Unix milliseconds, or a local time as 2026-11-20#10:00:00:000. Raises UsageError."""
    if text is None or text.strip().removeprefix("-").isdigit():
        return number(text, flag, default)
    try:
        at = datetime.strptime(text.strip() + "000", "%Y-%m-%d#%H:%M:%S:%f")  # noqa: DTZ007
        return int(at.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        wanted = "milliseconds or a time like 2026-11-20#10:00:00:000"
        raise UsageError(f"{flag} {text[:40]!r} is no time: {wanted}") from None


def queue_text(queue: MessageQueue) -> str:
    """Return a queue as Java prints it."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name},"
        f" queueId={queue.queue_id}]"
    )


def java_stamp(time_ms: int) -> str:
    """Return a local time as 17 digits, which is how Java prints times of a client's queues."""
    return re.sub(r"\D", "", java_time(time_ms, millis=True))


def truth(text: str | None, *, default: bool) -> bool:
    """Read a truth value as Java does: `true` in any case is true, all else is not."""
    return default if text is None else text.strip().lower() == "true"


def java_bool(value: object) -> str:
    """Return a truth value as Java prints it."""
    return "true" if value else "false"


def java_order(keys: Iterable[str], capacity: int = 16) -> list[str]:
    """Return texts in the order in which a HashMap that they were put into gives them."""
    given = list(keys)
    while len(given) > capacity * 0.75:
        capacity *= 2

    def place(key: str) -> int:
        hashed = java_hash(key) & 0xFFFFFFFF
        return (hashed ^ (hashed >> 16)) & (capacity - 1)

    return sorted(given, key=place)


def java_map(values: Mapping[str, str], capacity: int = 16) -> str:
    """Return a map as a HashMap's toString does."""
    return "{" + ", ".join(f"{it}={values[it]}" for it in java_order(values, capacity)) + "}"


def java_time(time_ms: int, *, millis: bool) -> str:
    """Return a local time as the tool prints it."""
    try:
        at = datetime.fromtimestamp(time_ms / 1000)  # noqa: DTZ006  (the tool prints local time)
    except (ValueError, OverflowError, OSError):
        return "N/A"
    text = f"{at:%Y-%m-%d %H:%M:%S}"
    return f"{text},{time_ms % 1000:03d}" if millis else text


def pretty(value: object, depth: int = 0) -> str:
    """Return JSON as fastjson prints it with PrettyFormat: tabs, and bare numbers as keys."""
    inner, outer = "\t" * (depth + 1), "\t" * depth
    if isinstance(value, dict):
        named = cast("dict[int | str, object]", value)
        rows = [
            f"{key if isinstance(key, int) else _quoted(key)}:{pretty(it, depth + 1)}"
            for key, it in named.items()
            if it is not None
        ]
        if not rows:
            return "{}"
        return "{\n" + ",\n".join(inner + row for row in rows) + f"\n{outer}}}"
    if isinstance(value, list):
        if not value:
            return "[]"
        items = cast("list[object]", value)
        return "[\n" + ",\n".join(inner + pretty(it, depth + 1) for it in items) + f"\n{outer}]"
    if isinstance(value, bool):
        return java_bool(value)
    return str(value) if isinstance(value, int | float) else _quoted(str(value))


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def attribute_changes(text: str | None, flag: str) -> dict[str, str]:
    """Read changes of attributes, as `+name=value,-name`: sign and name, and the value.

    Raises UsageError.
    """
    found: dict[str, str] = {}
    for part in (text or "").split(","):
        if not part.strip():
            continue
        key, _, value = part.strip().partition("=")
        if key[:1] not in ("+", "-") or len(key) < 2:
            raise UsageError(f"{flag} {part[:80]!r} should look like +name=value or -name")
        found[key] = value
    return found
