"""Many changes of the core built in at once: each function has a body for each of its changes.

`mutants::change` says which is run. One build serves all changes, where each would have cost one.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SEAM = Path(__file__).parent / "schema.rs"
_Thing = TypeVar("_Thing")
OUTSIDE = -1
"""Stands for no function: a constant."""
_LIB = Path("crates/core/src/lib.rs")


@dataclasses.dataclass(slots=True)
class Change:
    """One change of one function."""

    number: int
    """From 1 on."""
    name: str
    key: str
    """What names it however the lines around it move."""
    path: str
    begin: int
    """Characters from the start of the file, as all places here."""
    end: int
    replacement: str
    function: int = -1
    is_alone: bool = False
    """It compiles with no other change of its function: it needs a build of its own."""


@dataclasses.dataclass(slots=True)
class Function:
    """A function that has changes."""

    number: int
    path: str
    name: str
    begin: int
    """First character within the braces of its body."""
    end: int
    """Its closing brace."""


class Sources:
    """The functions and changes of all files, as they are before any change."""

    def __init__(self, listed: Sequence[dict[str, Any]]) -> None:
        """Take what cargo-mutants lists; read the files below the current folder."""
        self.text = {path: Path(path).read_text() for path in {it["file"] for it in listed}}
        self.changes = list(self._changes(listed))
        self.functions = list(self._functions(listed))
        for change in self.changes:
            within = (
                it.number
                for it in self.functions
                if it.path == change.path and it.begin <= change.begin and change.end <= it.end
            )
            change.function = next(within, OUTSIDE)

    def _changes(self, listed: Sequence[dict[str, Any]]) -> Iterator[Change]:
        seen: dict[str, int] = {}
        for number, it in enumerate(listed, 1):
            key = key_of(it)
            seen[key] = seen.get(key, 0) + 1
            if seen[key] > 1:
                key += f" ({seen[key]})"
            path = str(it["file"])
            begin, end = (self._at(path, it["span"][side]) for side in ("start", "end"))
            yield Change(number, str(it["name"]), key, path, begin, end, str(it["replacement"]))

    def _functions(self, listed: Sequence[dict[str, Any]]) -> Iterator[Function]:
        spans: set[tuple[str, int, int, str]] = set()
        for it in listed:
            path, function = str(it["file"]), it["function"]
            if function is None:
                continue
            begin, end = (self._at(path, function["span"][side]) for side in ("start", "end"))
            spans.add((path, begin, end, str(function["function_name"])))
        number = 0
        last = ("", 0)
        for path, begin, end, name in sorted(spans):
            if path == last[0] and end <= last[1]:
                continue  # Within another, which has its changes.
            last = (path, end)
            plain = re.escape(name.rpartition("::")[2])
            found = re.compile(rf"\bfn\s+{plain}\b[^{{]*\{{").search(self.text[path], begin, end)
            assert found is not None, name
            yield Function(number, path, name, found.end(), end - 1)
            number += 1

    def _at(self, path: str, place: dict[str, int]) -> int:
        lines = self.text[path].split("\n")
        before = lines[: place["line"] - 1]
        return sum(map(len, before)) + len(before) + place["column"] - 1

    def write(self, chosen: Iterable[Change]) -> Rendered:
        """Write all files with the chosen changes.

        One that is alone takes its body's place; one outside of functions must be alone.
        """
        by_function: dict[int, list[Change]] = {}
        for change in chosen:
            by_function.setdefault(change.function, []).append(change)
        rendered = Rendered()
        for path, text in self.text.items():
            pieces = _Pieces()
            done = 0
            outside = [it for it in by_function.get(OUTSIDE, []) if it.path == path]
            for function in (it for it in self.functions if it.path == path):
                pieces.add(_between(outside, done, function.begin, text))
                begun = pieces.length
                body = text[function.begin : function.end]
                changes = by_function.get(function.number, [])
                alone = [it for it in changes if it.is_alone]
                for change in alone:
                    body = _changed(change, function, text)
                pieces.add(f" match crate::mutants::change({function.number}) {{\n")
                for change in changes if not alone else ():
                    pieces.add(f"{change.number}u32 => {{")
                    at = pieces.length
                    pieces.add(_changed(change, function, text))
                    rendered.arms.append((path, at, pieces.length, change))
                    pieces.add("}\n")
                pieces.add(f"_ => {{{body}}}\n}} ")
                rendered.bodies.append((path, begun, pieces.length, function))
                done = function.end
            pieces.add(_between(outside, done, len(text), text))
            rendered.text[path] = pieces.whole()
            if Path(path).read_text() != rendered.text[path]:
                Path(path).write_text(rendered.text[path])
        return rendered


class _Pieces:
    def __init__(self) -> None:
        self._all: list[str] = []
        self.length = 0

    def add(self, text: str) -> None:
        self._all.append(text)
        self.length += len(text)

    def whole(self) -> str:
        return "".join(self._all)


def _between(changes: Sequence[Change], begin: int, end: int, text: str) -> str:
    for change in changes:
        if begin <= change.begin and change.end <= end:
            return f"{text[begin : change.begin]}{change.replacement} {text[change.end : end]}"
    return text[begin:end]


def _changed(change: Change, function: Function, text: str) -> str:
    before, after = text[function.begin : change.begin], text[change.end : function.end]
    return f"{before}{change.replacement} {after}"


class Rendered:
    """What was written, and where the changes stand in it."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.text: dict[str, str] = {}
        self.arms: list[tuple[str, int, int, Change]] = []
        self.bodies: list[tuple[str, int, int, Function]] = []

    def refused(self, messages: str) -> tuple[list[Change], list[Function], list[str]]:
        """Read what cargo says as JSON lines.

        Returns the changes that do not compile, the functions whose changes do not compile
        together, and the errors that lie elsewhere.
        """
        changes: dict[int, Change] = {}
        functions: dict[int, Function] = {}
        others: list[str] = []
        for line in messages.splitlines():
            said: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
            if said.get("reason") != "compiler-message" or said["message"]["level"] != "error":
                continue
            message = said["message"]
            spans = [it for it in map(_written, message["spans"]) if it[0] in self.text]
            primary = [it for it in spans if it[2]] or spans
            if not primary:
                if "aborting due to" not in message["message"]:
                    others.append(message["rendered"])
                continue
            path, byte, _ = primary[0]
            at = len(self.text[path].encode()[:byte].decode(errors="ignore"))
            arm = _around(self.arms, path, at)
            body = _around(self.bodies, path, at)
            if arm is not None:
                changes[arm.number] = arm
            elif body is not None:
                functions[body.number] = body
            else:
                others.append(message["rendered"])
        return list(changes.values()), list(functions.values()), others


def _written(span: dict[str, Any]) -> tuple[str, int, bool]:
    """Return file, byte and whether it is the main place of a span, outside of macros."""
    is_primary = bool(span["is_primary"])
    while span.get("expansion"):
        span = span["expansion"]["span"]
    return str(span["file_name"]), int(span["byte_start"]), is_primary


def _around(places: Sequence[tuple[str, int, int, _Thing]], path: str, at: int) -> _Thing | None:
    found = (it for where, begin, end, it in places if where == path and begin <= at < end)
    return next(found, None)


def key_of(change: dict[str, Any]) -> str:
    """Return what names a change however the lines around it move."""
    return re.sub(r":\d+:\d+: ", " | ", str(change["name"]))


def add_seam() -> None:
    """Give the core in the current folder the module that says which change is made."""
    text = _LIB.read_text()
    # Changes leave things unused, and worse.
    lines = ["#![allow(warnings, clippy::all)]", "pub mod mutants;"]
    head, seen, rest = text.partition("\n\n")
    assert seen
    assert head.startswith("//!")
    _LIB.write_text(f"{head}\n{lines[0]}\n\n{lines[1]}\n{rest}")
    (_LIB.parent / "mutants.rs").write_text(SEAM.read_text())
