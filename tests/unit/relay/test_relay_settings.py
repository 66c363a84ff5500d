"""The relay's settings, the configuration server's answer, the registries, the packets."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from roquet.base.clock import SystemClock
from roquet.base.errors import Corrupt, UsageError
from roquet.protocol.command import Command
from roquet.relay.app import build
from roquet.relay.config import RelayConfig, load_config
from roquet.relay.peers import packets
from roquet.relay.peers.packets import Claim, PacketError
from roquet.relay.registry import Registry
from roquet.relay.servers import (
    ANSWER_SIZE_MAX,
    SCHEMA,
    Entry,
    LastGood,
    ServerList,
    ServersError,
    encode,
    parse,
)
from roquet.testing.clock import FakeClock

GOOD = {"id": 1001, "type": 3, "host": "10.0.0.5", "port": 7001, "name": "lobby-1"}
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "relay-servers.schema.json"


def answer(*servers: Any, **more: Any) -> bytes:
    return json.dumps({"version": 7, "servers": list(servers), **more}).encode()


def test_an_answer_is_read_and_written() -> None:
    read = parse(answer(GOOD, {"id": 2, "type": 3}), 10)
    assert read.version == 7
    assert read.servers[1001] == Entry(1001, 3, "10.0.0.5", 7001, "lobby-1")
    assert read.servers[2] == Entry(2, 3)
    assert parse(encode(read), 10) == read


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{", "no JSON"),
        (b"[]", "no JSON object"),
        (b"[" * 100_000, "no JSON"),
        (b"\xff", "no JSON"),
        (b'{"servers": []}', "version must be an integer"),
        (b'{"version": true, "servers": []}', "version must be an integer"),
        (b'{"version": 1}', "servers must be an array"),
        (answer(GOOD, extra=1), "'extra' is no field"),
        (answer(GOOD, {**GOOD, "port": 1}), 'servers[1] {"id":1001'),
        (answer(GOOD, GOOD), "id 1001 comes twice"),
        (answer(3), "servers[0] 3: must be an object"),
        (answer({**GOOD, "id": 0}), "id must be an integer within 1..2147483647"),
        (answer({**GOOD, "id": 2**31}), "id must be an integer within 1..2147483647"),
        (answer({**GOOD, "id": "1"}), "id must be an integer"),
        (answer({**GOOD, "id": 1.5}), "id must be an integer"),
        (answer({**GOOD, "type": -1}), "type must be an integer within 1..2147483647"),
        (answer({**GOOD, "port": 65536}), "port must be an integer within 1..65535"),
        (answer({**GOOD, "host": ""}), "host must be a text of 1 to 255"),
        (answer({**GOOD, "host": "a\nb"}), "host must be a text"),
        (answer({"id": 1, "type": 1, "host": "a"}), "port must be an integer"),
        (answer({"id": 1, "type": 1, "port": 5}), "host must be a text"),
        (answer({**GOOD, "hots": "a"}), "'hots' is no field"),
        (answer(*({"id": n, "type": 1} for n in range(1, 12))), "11 servers: servers_max is 10"),
    ],
)
def test_a_bad_answer_names_what_is_wrong(data: bytes, why: str) -> None:
    with pytest.raises(ServersError) as error:
        parse(data, 10)
    assert why in str(error.value)
    assert "\n" not in str(error.value)


def test_the_published_schema_is_that_of_the_code() -> None:
    assert json.loads(PAGE.read_text()) == SCHEMA


def test_the_last_good_answer_survives_and_a_broken_one_is_told(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "copy.json"
    servers = ServerList(3, {1: Entry(1, 2, "h", 5)})

    async def main() -> None:
        copy = LastGood(path, 10)
        assert copy.load() is None
        await copy.save(servers)
        written = path.stat().st_mtime_ns
        await copy.save(servers)
        assert path.stat().st_mtime_ns == written
        assert LastGood(path, 10).load() == servers
        await copy.save(ServerList(4, {}))
        path.write_bytes(path.read_bytes()[:10])
        assert LastGood(path, 10).load() == servers  # the one before
        path.with_name("copy.json.bak").unlink()
        with pytest.raises(Corrupt):
            LastGood(path, 10).load()

    asyncio.run(main())


def load(tmp_path: Path, text: str, env: dict[str, str] | None = None) -> RelayConfig:
    file = tmp_path / "relay.toml"
    file.write_text(text)
    return load_config(file, env or {}, {})


def test_settings_come_from_file_environment_and_flags(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        'name = "one"\nworkers = 8\ninbound = true\nreconnect_ms = 5',
        {"ROQUET_RELAY_RECONNECT_MS": "7", "ROQUET_LISTEN_PORT": "x"},
    )
    assert (config.name, config.workers, config.inbound) == ("one", 8, True)
    assert config.reconnect_ms == 7
    assert config.heartbeat_timeout_ms == 15_000


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("tick_ms = 0", "tick_ms = '0' (file): must be an integer within 1..10000 ms"),
        ("tick_ms = 1.5", "must be a text, a number or true or false, no float"),
        ("[http]\nport = 1", "http (FILE): must be a text"),
        ("workrs = 1", "workrs (FILE): there is no such setting; did you mean workers?"),
        ("inbound = 3", "inbound = '3' (file): must be true or false"),
        ("tick_ms", "FILE: "),
        ('config_url = "ftp://x"', "config_url = 'ftp://x' (file): must be an address like http"),
        ('secret = "short"', "secret = ****** (file): must have at least 8 characters"),
        ("heartbeat_ms = 15000", "heartbeat_timeout_ms = 15000: must be more than heartbeat_ms"),
        ("frame_bytes = 16777216", "queue_bytes = 8388608: must be at least frame_bytes"),
        ("tls = true\ninbound = true", "tls_cert_file has to be set"),
        ('tls_key_file = "a"', "tls_cert_file and tls_key_file have to be set together"),
    ],
)
def test_a_wrong_setting_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(UsageError) as error:
        load(tmp_path, text)
    said = str(error.value).replace(str(tmp_path / "relay.toml"), "FILE")
    assert line in said
    assert "\n" not in said


def test_a_wrong_variable_or_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ROQUET_RELAY_TICK \(env\): there is no such setting"):
        load_config(None, {"ROQUET_RELAY_TICK": "1"}, {})
    with pytest.raises(UsageError, match="No such file"):
        load_config(tmp_path / "none.toml", {}, {})
    with pytest.raises(UsageError, match="tls_ca_file"):
        build(RelayConfig(tls=True, tls_ca_file=str(tmp_path / "none.pem")), FakeClock())


def test_a_duplicate_names_both_owners() -> None:
    registry: Registry[int] = Registry("packet")
    registry.add(7, "MOVE", "battle", 1)
    with pytest.raises(UsageError) as error:
        registry.add(7, "MOVE", "chat", 2)
    assert str(error.value) == "packet MOVE is registered twice: by battle and by chat"
    assert registry.get(7) == 1
    assert registry.get(8) is None


def test_explain_shows_parts_ticks_periods_and_registries() -> None:
    text = build(RelayConfig(inbound=True, workers=2), SystemClock()).explain()
    for word in (
        "worker-1",
        "listener",
        "tick every 0.05s",
        "tick_wait_add",
        "reconnect_ms           3000 ms",
        "FORWARD_BY_TYPE",
        "RegisterNotice",
        "HELLO",
    ):
        assert word in text


def test_packets_are_read_as_they_were_made() -> None:
    register = packets.Register(relay="r", instance="i", server_id=1, server_type=2, nonce="n")
    assert packets.read_register(packets.register(register)) == register
    others = {5: packets.Other(5, 3, 100), 6: packets.Other(6, 4)}
    assert packets.read_server_map(packets.server_map(others)) == others
    assert packets.read_new_server(packets.new_server(others[5])) == others[5]


@pytest.mark.parametrize("value", ["", "0", "-1", "+1", "2147483648", "1e3", "٣", "9" * 5000])
def test_a_number_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(PacketError):
        packets.number(Command(1, {"id": value}), "id")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"x": {"type": 1, "maxOnline": 1}}', b'{"1": {}}'])
def test_a_map_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(PacketError):
        packets.read_server_map(Command(1, body=body))


def test_a_proof_holds_for_its_side_secret_and_nonces_only() -> None:
    claim = Claim("server", "mine", "theirs", 5)
    proof = claim.proof("secret-one")
    assert claim.holds("secret-one", proof)
    assert not claim.holds("secret-two", proof)
    assert not claim.holds("secret-one", "ü")
    for other in (
        Claim("relay", "mine", "theirs", 5),
        Claim("server", "theirs", "mine", 5),
        Claim("server", "mine", "theirs", 6),
    ):
        assert not other.holds("secret-one", proof)


@pytest.mark.parametrize(
    ("field", "inside", "outside"),
    [
        ("id", [1, 2**31 - 1], [0, 2**31, True, 1.0, "1", None]),
        ("type", [1, 2**31 - 1], [0, 2**31, True]),
        ("port", [1, 65_535], [0, 65_536, False]),
        ("host", ["h", "h" * 255], ["", "h" * 256, "a\nb", 5]),
        ("name", ["", "n" * 255], ["n" * 256, "a\tb", 5]),
    ],
)
def test_field_of_a_server_is_within_its_limits(
    field: str, inside: list[object], outside: list[object]
) -> None:
    whole: dict[str, object] = {"id": 2, "type": 3, "host": "h", "port": 4, "name": "n"}

    def read(value: object) -> ServerList:
        answer = {"version": 1, "servers": [whole | {field: value}]}
        return parse(json.dumps(answer).encode(), 1)

    for value in inside:
        ((_, entry),) = read(value).servers.items()
        assert getattr(entry, field) == value
        assert parse(encode(read(value)), 1) == read(value)
    for value in outside:
        with pytest.raises(ServersError, match=field):
            read(value)


def test_answer_is_as_long_and_has_as_many_servers_as_the_limits() -> None:
    def listed(count: int, version: object = 0) -> bytes:
        rows = [{"id": number + 1, "type": 1} for number in range(count)]
        return json.dumps({"version": version, "servers": rows}).encode()

    assert len(parse(listed(2), 2).servers) == 2
    with pytest.raises(ServersError, match="3 servers: servers_max is 2"):
        parse(listed(3), 2)
    data = listed(1)
    assert parse(data.ljust(ANSWER_SIZE_MAX), 1).version == 0
    with pytest.raises(ServersError, match="the limit is"):
        parse(data.ljust(ANSWER_SIZE_MAX + 1), 1)
    assert parse(listed(1, 2**63 - 1), 1).version == 2**63 - 1
    for version in (-1, 2**63, True, None):
        with pytest.raises(ServersError, match="version"):
            parse(listed(1, version), 1)
