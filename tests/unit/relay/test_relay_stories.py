"""The master's tick, told as stories: commands, and the effects that have to come of them.

A line of a story is a command; `->` begins the effects of the next tick, in their order, separated
by commas. A command without `->` is booked for that tick.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roquet.relay.master import events as e
from roquet.relay.master.machine import Machine, Periods
from roquet.relay.servers import Entry, ServerList

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STORIES = Path(__file__).parent / "stories"


def stories() -> Iterator[tuple[str, list[str]]]:
    for file in sorted(STORIES.glob("*.txt")):
        name, lines = "", list[str]()
        for line in file.read_text().splitlines():
            if line.startswith("story "):
                if name:
                    yield name, lines
                name, lines = f"{file.stem}: {line[6:]}", []
            elif line.strip() and not line.startswith("#"):
                lines.append(line.strip())
        yield name, lines


class Teller:
    """Reads commands, keeps what a tick gives."""

    def __init__(self) -> None:
        self.machine = Machine(Periods(workers=4))
        self.now_ms = 1_000_000
        self.inputs: list[e.Input] = []
        self.asked: list[str] = []

    def run(self, line: str) -> None:
        command, arrow, expected = line.partition("->")
        words = command.split()
        wait_ms = 0
        if words[0] == "tick":
            wait_ms = int(words[1]) if len(words) > 1 else 50
        else:
            self.book(words)
        if arrow:
            self.now_ms += wait_ms
            effects = self.machine.tick(self.now_ms, self.inputs)
            self.inputs = []
            found = [text for effect in effects if (text := self.text(effect))]
            wanted = [text.strip() for text in expected.split(",") if text.strip() not in {"", "-"}]
            assert found == wanted, line
        elif words[0] == "tick":
            self.now_ms += wait_ms
            self.machine.tick(self.now_ms, self.inputs)
            self.inputs = []

    def book(self, words: list[str]) -> None:  # noqa: C901, PLR0912  (one case a command)
        name, *rest = words
        match name, rest:
            case "list", _:
                self.answer(lambda m: m.refresh(_list(rest)))
            case "no-list", [why]:
                self.answer(lambda m: m.load_failed(why))
            case "copy", _:
                self.answer(lambda m: m.refresh(_list(rest), "copy"))
            case "callback", [what]:
                self.answer(lambda _: self.call(what))
            case "connected", [attempt, link]:
                self.inputs.append(e.Connected(int(attempt), int(link)))
            case "failed", [attempt, why]:
                self.inputs.append(e.ConnectFailed(int(attempt), why))
            case "came-in", [link, server_id]:
                self.inputs.append(e.CameIn(int(link), int(server_id)))
            case "answered", [link, max_online]:
                self.inputs.append(e.Answered(int(link), int(max_online)))
            case "closed", [link, why]:
                self.inputs.append(e.Closed(int(link), why))
            case "ask", [what, server_id]:
                done = self.asked.append
                self.inputs.append(e.Asked(what, int(server_id), lambda there: done(str(there))))
            case "asked", wanted:
                assert self.asked == wanted
                self.asked.clear()
            case "states", wanted:
                ids = sorted(self.machine.listed)
                assert [f"{one}={self.machine.state(one)}" for one in ids] == wanted
            case "waiting", wanted:
                counts = {name: n for name, n in self.machine.waiting().items() if n}
                assert [f"{name}={n}" for name, n in counts.items()] == wanted
            case "source", [wanted]:
                assert self.machine.config_source == wanted
            case _:
                raise AssertionError(words)

    def answer(self, callback: Callable[[e.Refreshed], None]) -> None:
        self.inputs.append(e.HttpDone("configuration", callback))

    def call(self, what: str) -> None:
        if what == "raise":
            raise ValueError("boom")
        self.asked.append(what)

    @staticmethod
    def text(effect: e.Effect) -> str:  # noqa: C901, PLR0911, PLR0912  (one case an effect)
        match effect:
            case e.Fetch():
                return "fetch"
            case e.Dial(attempt, server_id, host, port):
                return f"dial {attempt} {server_id}@{host}:{port}"
            case e.CancelDial(attempt):
                return f"cancel {attempt}"
            case e.CloseLink(link, why):
                return f"close {link} {why.replace(',', ';')}"
            case e.SendRegister(link, server_id, kind):
                return f"register {link} {server_id}/{kind}"
            case e.FlushLink(link):
                return f"flush {link}"
            case e.NewServerNotice(server):
                return f"new {server.server_id}/{server.server_type} max {server.max_online}"
            case e.RegisterNotice(worker, link, server, others):
                known = " ".join(f"{o.server_id}/{o.server_type}" for o in others.values())
                return f"hand {link} {server.server_id} to {worker} knowing [{known}]"
            case e.GoneNotice(server_id, link, why):
                return f"gone {server_id} {link} {why}"
            case e.Known(ids):
                return f"known {' '.join(map(str, ids))}".strip()
            case e.Drain(server_id, drains):
                return f"{'drain' if drains else 'undrain'} {server_id}"
            case e.Say(level, text):
                return f"say {level}: {text.replace(',', ';')}"


def _list(words: list[str]) -> ServerList:
    servers: dict[int, Entry] = {}
    for word in words:
        number, _, rest = word.partition("/")
        kind, _, place = rest.partition("@")
        host, _, port = place.partition(":")
        servers[int(number)] = Entry(int(number), int(kind), host, int(port or 0))
    return ServerList(1, servers)


@pytest.mark.parametrize(("name", "lines"), [pytest.param(*one, id=one[0]) for one in stories()])
def test_story(name: str, lines: list[str]) -> None:
    assert lines, name
    teller = Teller()
    for line in lines:
        teller.run(line)
