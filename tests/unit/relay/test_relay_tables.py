"""The list of inner servers and the table of packets: every field, bound and answer."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from typing_extensions import override

from roquet.base.errors import Corrupt, Refused, UsageError
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import FLAG_ONE_WAY, Command
from roquet.relay import servers as module
from roquet.relay.codes import ID_MAX
from roquet.relay.peers.dispatch import Dispatcher, PacketHandler
from roquet.relay.peers.packets import PacketError
from roquet.relay.registry import Registry
from roquet.relay.servers import Entry, LastGood, ServerList, ServersError, encode, parse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from roquet.relay.peers.links import RelayLink


def answer(*entries: Any, version: Any = 1) -> bytes:
    return json.dumps({"version": version, "servers": list(entries)}).encode()


FULL = {"id": 7, "type": 3, "host": "10.0.0.1", "port": 9, "name": "seven"}


# --- the list of inner servers ------------------------------------------------------------------


def test_servers_are_read_with_every_field_and_written_so_that_they_read_the_same() -> None:
    found = parse(answer(FULL, {"id": 1, "type": 1}, version=2**63 - 1), 2)
    assert found.version == 2**63 - 1
    assert found.servers == {7: Entry(7, 3, "10.0.0.1", 9, "seven"), 1: Entry(1, 1)}
    written = encode(found)
    assert parse(written, 2) == found
    # What is not there is not written: a server without a place dials the relay.
    assert json.loads(written)["servers"] == [FULL, {"id": 1, "type": 1}]


@pytest.mark.parametrize(
    "entry",
    [
        {"id": 1, "type": 1},
        {"id": ID_MAX, "type": ID_MAX},
        {"id": 1, "type": 1, "name": ""},
        {"id": 1, "type": 1, "name": "n" * 255},
        {"id": 1, "type": 1, "host": "h", "port": 1},
        {"id": 1, "type": 1, "host": "h" * 255, "port": 65535},
    ],
)
def test_server_with_fields_at_their_bounds_is_read(entry: dict[str, Any]) -> None:
    (found,) = parse(answer(entry), 1).servers.values()
    assert (found.id, found.type) == (entry["id"], entry["type"])
    assert (found.host, found.port) == (entry.get("host", ""), entry.get("port", 0))
    assert found.name == entry.get("name", "")


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (5, "must be an object"),
        ({"type": 1}, f"id must be an integer within 1..{ID_MAX}"),
        ({"id": 0, "type": 1}, f"id must be an integer within 1..{ID_MAX}"),
        ({"id": ID_MAX + 1, "type": 1}, f"id must be an integer within 1..{ID_MAX}"),
        ({"id": True, "type": 1}, f"id must be an integer within 1..{ID_MAX}"),
        ({"id": 1}, f"type must be an integer within 1..{ID_MAX}"),
        ({"id": 1, "type": 0}, f"type must be an integer within 1..{ID_MAX}"),
        ({"id": 1, "type": ID_MAX + 1}, f"type must be an integer within 1..{ID_MAX}"),
        ({**FULL, "port": 0}, "port must be an integer within 1..65535"),
        ({**FULL, "port": 65536}, "port must be an integer within 1..65535"),
        ({"id": 1, "type": 1, "host": "h"}, "port must be an integer within 1..65535"),
        ({"id": 1, "type": 1, "port": 9}, "host must be a text of 1 to 255 characters"),
        ({**FULL, "host": ""}, "host must be a text of 1 to 255 characters"),
        ({**FULL, "host": "h" * 256}, "host must be a text of 1 to 255 characters"),
        ({**FULL, "host": 5}, "host must be a text of 1 to 255 characters"),
        ({**FULL, "name": "n" * 256}, "name must be a text of 0 to 255 characters"),
        ({**FULL, "name": "a\nb"}, "name must be a text of 0 to 255 characters"),
        ({**FULL, "more": 1}, "'more' is no field of it"),
    ],
)
def test_server_that_breaks_the_schema_is_refused_by_its_place_in_the_list(
    entry: Any, why: str
) -> None:
    with pytest.raises(ServersError) as caught:
        parse(answer({"id": 100, "type": 1}, entry), 9)
    shown = json.dumps(entry, separators=(",", ":"))[:120]
    assert str(caught.value) == f"servers[1] {shown}: {why}"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{", "the answer is no JSON: "),
        (b"[" * 100_000, "the answer is no JSON: "),
        (b"[]", "the answer is no JSON object"),
        (b"{}", "the answer: version must be an integer within 0..9223372036854775807"),
        (answer(version=-1), "the answer: version must be an integer"),
        (answer(version=2**63), "the answer: version must be an integer"),
        (b'{"version":1}', "the answer: servers must be an array"),
        (b'{"version":1,"servers":{}}', "the answer: servers must be an array"),
        (b'{"version":1,"servers":[],"x":1}', "the answer: 'x' is no field of it"),
        (answer(FULL, {"id": 1, "type": 1}, {"id": 2, "type": 1}), "3 servers: servers_max is 2"),
        (answer(FULL, {"id": 7, "type": 1}), 'servers[1] {"id":7,"type":1}: id 7 comes twice'),
    ],
)
def test_answer_that_breaks_the_schema_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ServersError) as caught:
        parse(data, 2)
    assert str(caught.value).startswith(why)


def test_answer_is_as_long_as_the_limit_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    data = answer(FULL)
    monkeypatch.setattr(module, "ANSWER_SIZE_MAX", len(data))
    assert parse(data, 1).version == 1
    with pytest.raises(ServersError, match=f"{len(data) + 1} bytes: the limit is {len(data)}"):
        parse(data + b" ", 1)


def test_text_of_a_refused_field_is_cut() -> None:
    with pytest.raises(ServersError) as caught:
        parse(answer({"x" * 1000: 1}), 1)
    assert len(str(caught.value)) < 250


def test_server_is_in_the_same_place_whatever_it_is_called() -> None:
    one = Entry(1, 2, "h", 3, "a")
    assert one.same_place(Entry(9, 2, "h", 3, "b"))
    for other in (Entry(1, 5, "h", 3), Entry(1, 2, "i", 3), Entry(1, 2, "h", 4)):
        assert not one.same_place(other)


def test_last_good_answer_is_kept_and_written_when_it_is_another(tmp_path: Path) -> None:
    async def run() -> None:
        path = tmp_path / "servers.json"
        kept = LastGood(path, 5)
        assert (kept.path, kept.load()) == (path, None)
        first = ServerList(1, {1: Entry(1, 1)})
        await kept.save(first)
        path.unlink()
        await kept.save(ServerList(1, {1: Entry(1, 1)}))
        assert not path.exists(), "the same is not written again"
        second = ServerList(2, {1: Entry(1, 1)})
        await kept.save(second)
        again = LastGood(path, 5)
        assert again.load() == second
        path.unlink()
        await again.save(second)
        assert not path.exists(), "what was loaded is there"

    asyncio.run(run())


def test_last_good_answer_that_breaks_the_schema_is_not_taken(tmp_path: Path) -> None:
    for name in ("servers.json", "servers.json.bak"):
        (tmp_path / name).write_bytes(answer({"id": 0, "type": 1}))
    with pytest.raises(Corrupt):
        LastGood(tmp_path / "servers.json", 5).load()


# --- who answers what ---------------------------------------------------------------------------


def test_registry_has_one_owner_of_each_id() -> None:
    registry: Registry[Callable[[], None]] = Registry("packet")

    def one() -> None:
        """Answer one.

        And more.
        """

    registry.add(1, "ONE", "first", one)
    registry.add(2, "TWO", "second", lambda: None)
    text = "packet ONE is registered twice: by first and by third"
    with pytest.raises(UsageError, match=text):
        registry.add(1, "ONE", "third", one)
    assert (registry.get(1), registry.get(3), len(registry)) == (one, None, 2)
    assert [(key, row.name, row.owner) for key, row in registry] == [
        (1, "ONE", "first"),
        (2, "TWO", "second"),
    ]
    assert registry.explain().splitlines() == [
        f"{'packet':<28} {'owner':<18} handler",
        f"{'ONE':<28} {'first':<18} Answer one.",
        f"{'TWO':<28} {'second':<18} function",
    ]


def test_registry_says_of_what_is_no_function_which_type_it_is() -> None:
    registry: Registry[Any] = Registry("page")
    registry.add("a", "A", "first", SimpleNamespace())
    assert registry.explain().splitlines()[1] == f"{'A':<28} {'first':<18} SimpleNamespace"


class Link:
    """A connection that keeps what it is answered."""

    address = "10.0.0.1:9"

    def __init__(self) -> None:
        self.answers: list[Command] = []

    def reply(self, command: Command) -> None:
        self.answers.append(command)


class Odd(Exception):  # noqa: N818
    """Something that nobody expects."""

    @override
    def __str__(self) -> str:
        return "x" * 5000


def raising(error: Exception) -> PacketHandler:
    def handler(link: RelayLink, command: Command) -> Command | None:
        del link, command
        raise error

    return handler


@pytest.mark.parametrize(
    ("code", "expected", "remark"),
    [
        (1, 0, None),
        (2, ResponseCode.NO_PERMISSION, "no"),
        (3, ResponseCode.INVALID_PARAMETER, "bad packet"),
        (4, ResponseCode.SYSTEM_ERROR, ("Odd: " + "x" * 5000)[:1024]),
        (6, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request type 6 not supported"),
    ],
)
@pytest.mark.parametrize("is_one_way", [False, True])
def test_packet_is_answered_with_what_its_handler_says_or_raises(
    code: int, expected: int, remark: str | None, *, is_one_way: bool
) -> None:
    registry: Registry[PacketHandler] = Registry("packet")
    registry.add(1, "ANSWERS", "a", lambda _link, _command: Command(0))
    registry.add(2, "REFUSES", "a", raising(Refused(ResponseCode.NO_PERMISSION, "no")))
    registry.add(3, "CANNOT", "a", raising(PacketError("bad packet")))
    registry.add(4, "FAILS", "a", raising(Odd()))
    link = Link()
    command = Command(code, flag=FLAG_ONE_WAY if is_one_way else 0)
    Dispatcher(registry)(cast("Any", link), command)
    found = [(it.code, it.remark, it.encoding) for it in link.answers]
    assert found == ([] if is_one_way else [(expected, remark, command.encoding)])


def test_packet_without_an_answer_gets_none() -> None:
    registry: Registry[PacketHandler] = Registry("packet")
    registry.add(1, "WAITS", "a", lambda _link, _command: None)
    link = Link()
    Dispatcher(registry)(cast("Any", link), Command(1))
    assert link.answers == []
