"""Figures of the structure: what a send and a pull pass through, sizes of packages and folders.

python -m tools.measure_structure            all figures, as the table of ARCHITECTURE.md
python -m tools.measure_structure trace      the Python files that a send and a pull pass, in order

A broker runs in this process and a client in a thread of its own; only the broker's loop is
traced. What is called from the read of nearly every request to the write of its answer is on its
path; timers and the news of the dispatcher are not.
"""

from __future__ import annotations

import ast
import asyncio
import collections
import dataclasses
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.model.topic import TopicConfig
from roquet.remoting.client import Client
from roquet.testing.cluster import pull_command, running_broker, send_command
from tools import folders

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, FrameType

    from roquet.protocol.command import Command

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "roquet"
REQUESTS = 100
"""Requests of one trace: more than any timer fires meanwhile."""
SHARE = 0.9
"""What is called for so many of the requests is on their path."""

BEGINS = "Connection.get_buffer"
READS = frozenset({BEGINS, "Connection.buffer_updated"})
HANDS_ON = "Server.request"
"""A request leaves the read for a handler, which may run in a later turn of the loop."""
WRITES = "Connection.write"
ENDS = "Connection._flush"


@dataclasses.dataclass(frozen=True, slots=True)
class Passed:
    """What a request passes through in Python."""

    files: tuple[str, ...]
    """Relative to `src/roquet`, in the order of their first call."""
    lines: int
    """Of all these files."""
    calls: float
    """Calls of functions of these files for one request."""


class _Tracer:
    """Counts calls of the product's functions from the read of a request to its answer's write."""

    def __init__(self) -> None:
        self.calls: collections.Counter[CodeType] = collections.Counter()
        self.windows: collections.Counter[CodeType] = collections.Counter()
        self._seen: set[CodeType] = set()
        self._reads = 0
        self._is_pending = False
        self._is_written = False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event not in {"call", "return"} or not code.co_filename.startswith(str(SOURCE)):
            return
        name = code.co_qualname
        if event == "return":
            self._returned(name)
            return
        if name == BEGINS and not self._is_pending:
            self._ended()
        self._reads += name in READS
        self._is_pending |= name == HANDS_ON
        self._is_written |= name == WRITES
        if self._reads or self._is_pending:
            self.calls[code] += 1
            self._seen.add(code)

    def _returned(self, name: str) -> None:
        self._reads -= name in READS
        if name == ENDS and self._is_written and self._is_pending:
            self._is_pending = self._is_written = False

    def _ended(self) -> None:
        self.windows.update(self._seen)
        self._seen = set()

    def passed(self) -> Passed:
        """Return what was called for every request."""
        self._ended()
        on_path = [code for code, count in self.windows.items() if count >= REQUESTS * SHARE]
        names = dict.fromkeys(code.co_filename for code in self.calls if code in on_path)
        lines = sum(len(Path(name).read_text().splitlines()) for name in names)
        files = tuple(str(Path(name).relative_to(SOURCE)) for name in names)
        calls = sum(self.calls[code] for code in on_path)
        return Passed(files, lines, round(calls / REQUESTS, 1))


def _ask(address: str, commands: Sequence[Command]) -> None:
    """Send requests one after the other, from a loop of this thread."""

    async def ask() -> None:
        client = Client(clock=SystemClock())
        await client.start()
        try:
            for command in commands:
                answer = await client.call(address, command, 20.0)
                if answer.code != 0:
                    raise RuntimeError(f"answered {answer.code}: {answer.remark}")
        finally:
            await client.stop()

    asyncio.run(ask())


async def _trace(folder: Path, *, fast: bool, pulls: bool) -> Passed:
    # A thread of the core would answer without a line of Python.
    changes = {"fastPathEnable": "true" if fast else "false", "ioThreads": "0"}
    tracer = _Tracer()
    async with running_broker(folder, changes=changes) as broker:
        broker.metadata.topics.put(TopicConfig(name="traced", read_queues=1, write_queues=1))
        # Only topics that are durable take the fast path.
        await broker.metadata.topics.persist()
        address = broker.identity.address
        # Rows, caches and the group are made by the first requests.
        plain = send_command("traced", b"x", properties="UNIQ_KEY\x01U\x02")
        await asyncio.to_thread(_ask, address, [plain] * 20)
        while broker.store.dispatch_behind():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await asyncio.to_thread(_ask, address, [pull_command("traced", 0)] * 5)
        asked = [pull_command("traced", 0) if pulls else plain] * REQUESTS
        sys.setprofile(tracer)
        try:
            await asyncio.to_thread(_ask, address, asked)
        finally:
            sys.setprofile(None)
    return tracer.passed()


def trace(*, fast: bool, pulls: bool) -> Passed:
    """Return what a plain send or pull passes through, by the fast path or by the services."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_trace(Path(folder), fast=fast, pulls=pulls))


def package_lines() -> dict[str, int]:
    """Return lines of Python by package of `src/roquet`."""
    found: collections.Counter[str] = collections.Counter()
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).parts
        found[parts[0] if len(parts) > 1 else "."] += len(path.read_text().splitlines())
    return dict(found)


def code_modules() -> list[str]:
    """Return the modules of the broker that name a response code other than SUCCESS."""
    return sorted(
        str(path.relative_to(SOURCE))
        for path in (SOURCE / "broker").rglob("*.py")
        if any(
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "ResponseCode"
            and node.attr != "SUCCESS"
            for node in ast.walk(ast.parse(path.read_text()))
        )
    )


def table() -> str:
    """Return all figures as rows of a table."""
    rows: list[tuple[str, str]] = []
    for what, pulls in (("send", False), ("pull", True)):
        for how, fast in (("fast path", True), ("services", False)):
            path = trace(fast=fast, pulls=pulls)
            text = f"{len(path.files)} files, {path.lines:,} lines, {path.calls:g} calls"
            rows.append((f"plain {what}, {how}: Python passed", text))
    modules = code_modules()
    rows.append(("modules of the broker that name response codes", ", ".join(modules)))
    lines = package_lines()
    largest = sorted(lines, key=lambda name: -lines[name])[:6]
    shown = ", ".join(f"{name} {lines[name]:,}" for name in largest)
    rows.append(("lines of Python", f"{sum(lines.values()):,}: {shown} …"))
    files = folders.files_by_folder()
    large = folders.crowded(files)
    shown = ", ".join(f"{name} {files[name]}" for name in large)
    rows.append((f"folders with more than {folders.FILES_MAX} files", f"{len(large)}: {shown}"))
    return "\n".join(["| measure | figure |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)])


def main() -> None:
    """Print what is asked for."""
    if sys.argv[1:] == ["trace"]:
        for what, pulls in (("send", False), ("pull", True)):
            for how, fast in (("services", False), ("fast path", True)):
                path = trace(fast=fast, pulls=pulls)
                print(f"{what}, {how}: {path.lines} lines, {path.calls:g} calls")
                print(*(f"    {name}" for name in path.files), sep="\n")
    else:
        print(table())


if __name__ == "__main__":
    main()
