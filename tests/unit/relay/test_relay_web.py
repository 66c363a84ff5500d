"""The relay's HTTP side over real sockets: reading, changing, describing, refusing."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from relay_harness import fleet, until, world
from roquet.base.errors import UsageError
from roquet.relay.registry import Registry
from roquet.relay.web.calls import OWNER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from relay_harness import World
    from roquet.relay.app import Relay

TOKEN = "a-token-of-the-operators"


async def call(
    relay: Relay, method: str, path: str, *, token: str | None = None, body: bytes = b""
) -> tuple[int, dict[str, str], Any]:
    """Make one call; return status, headers and what the JSON body says (or its bytes)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.http.port)
    more = f"Authorization: Bearer {token}\r\n" if token else ""
    writer.write(
        f"{method} {path} HTTP/1.1\r\nHost: x\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, rest = answer.partition(b"\r\n\r\n")
    first, *rows = head.decode().split("\r\n")
    headers = dict(row.lower().split(": ", 1) for row in rows)
    is_json = headers["content-type"].startswith("application/json")
    return int(first.split()[1]), headers, json.loads(rest) if is_json and rest else rest


def play(folder: Path, tell: Callable[[World, Relay], Awaitable[None]], **changes: Any) -> None:
    async def run() -> None:
        async with fleet(folder, {1001: 1, 2001: 2, 2002: 2}, **changes) as (it, relay):
            await tell(it, relay)

    asyncio.run(run())


def test_what_there_is_to_see(tmp_path: Path) -> None:
    async def tell(it: World, relay: Relay) -> None:
        await it.nodes[1001].send(2001, 1, b"hello")
        status, _, health = await call(relay, "GET", "/health")
        assert (status, health["ready"], health["registered"]) == (200, True, 3)
        _, _, servers = await call(relay, "GET", "/servers")
        assert [row["id"] for row in servers] == [1001, 2001, 2002]
        assert {row["state"] for row in servers} == {"registered"}

        async def passed() -> bool:
            _, _, row = await call(relay, "GET", "/servers/1001")
            return bool(row["in_packets"])

        for _ in range(1500):
            if await passed():
                break
            await asyncio.sleep(0.02)
        assert await passed()
        _, _, workers = await call(relay, "GET", "/workers")
        assert sum(row["servers"] for row in workers) == 3
        status, headers, page = await call(relay, "GET", "/")
        assert status == 200
        assert headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert b"<title>Roquet relay</title>" in page
        status, headers, text = await call(relay, "GET", "/metrics")
        assert b'roquet_relay_servers{state="registered"} 3.0' in text
        assert b"roquet_relay_ready 1.0" in text
        assert b"roquet_loop_lag_seconds_count" in text
        assert (await call(relay, "HEAD", "/servers"))[2] == b""

    play(tmp_path, tell)


def test_an_operator_reconnects_drains_and_reloads(tmp_path: Path) -> None:
    async def tell(it: World, relay: Relay) -> None:
        before = it.nodes[2001].registrations
        status, *_ = await call(relay, "POST", "/servers/2001/reconnect", token=TOKEN)
        assert status == 202
        await until(lambda: it.nodes[2001].registrations > before)
        await it.whole()
        assert (await call(relay, "POST", "/servers/2002/drain", token=TOKEN))[0] == 202
        await until(lambda: relay.master.machine.state(2002) == "draining")
        assert (await call(relay, "GET", "/servers/2002"))[2]["state"] == "draining"
        assert (await call(relay, "POST", "/servers/2002/undrain", token=TOKEN))[0] == 202
        await until(lambda: relay.master.machine.state(2002) == "registered")
        it.publish({"id": 9, "type": 9})
        status, _, done = await call(relay, "POST", "/config/reload", token=TOKEN)
        assert (status, done) == (202, {"done": "reload"})
        await until(lambda: relay.view.health().listed == 4)

    play(tmp_path, tell, admin_token=TOKEN, load_config_ms=60_000)


def test_what_changes_something_needs_the_token(tmp_path: Path) -> None:
    async def tell(_it: World, relay: Relay) -> None:
        for token in (None, "wrong", TOKEN + "x", "", TOKEN.upper()):
            status, headers, body = await call(relay, "POST", "/config/reload", token=token)
            assert status == 401
            assert headers["www-authenticate"] == "bearer"
            assert TOKEN not in json.dumps(body)
        assert (await call(relay, "POST", "/servers/7/drain", token=TOKEN))[0] == 404

    play(tmp_path, tell, admin_token=TOKEN)


def test_without_a_token_nothing_can_be_changed(tmp_path: Path) -> None:
    async def tell(_it: World, relay: Relay) -> None:
        status, _, body = await call(relay, "POST", "/config/reload", token="anything")
        assert status == 403
        assert "admin_token" in body["error"]

    play(tmp_path, tell)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/servers/0", 400),
        ("GET", "/servers/x", 400),
        ("GET", "/servers/99999999999", 400),
        ("GET", "/servers/2147483648", 400),
        ("GET", "/servers/-1", 400),
        ("GET", "/servers/12", 404),
        ("DELETE", "/servers", 405),
        ("POST", "/health", 405),
        ("GET", "/servers/1001/drain", 405),
        ("GET", "/servers/1001/../../etc/passwd", 404),
        ("GET", "/%2e%2e/x", 404),
    ],
)
def test_calls_that_are_none(tmp_path: Path, method: str, path: str, status: int) -> None:
    async def tell(_it: World, relay: Relay) -> None:
        found, _, body = await call(relay, method, path)
        assert found == status
        assert body["error"]

    play(tmp_path, tell)


def test_large_and_broken_requests_harm_nobody(tmp_path: Path) -> None:
    async def tell(_it: World, relay: Relay) -> None:
        status, *_ = await call(relay, "POST", "/config/reload", token=TOKEN, body=b"x" * 5000)
        assert status == 413
        for raw in (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
            b"GET / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"GET / HTTP/1.1\r\nbroken\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", relay.http.port)
            writer.write(raw)
            answer = await reader.read()
            assert answer.split(b" ")[1] in (b"400", b"411"), raw
            writer.close()
        assert (await call(relay, "GET", "/health"))[0] == 200

    play(tmp_path, tell, admin_token=TOKEN)


def test_health_says_that_there_is_no_configuration(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as it:
            relay = await it.relay(config_url="http://127.0.0.1:1/servers")
            await until(lambda: bool(relay.view.health().config_failure))
            status, _, health = await call(relay, "GET", "/health")
            assert (status, health["ready"]) == (503, False)

    asyncio.run(run())


def test_the_description_is_of_every_call_and_of_what_it_answers(tmp_path: Path) -> None:
    async def tell(_it: World, relay: Relay) -> None:
        _, _, found = await call(relay, "GET", "/openapi.json")
        described = {
            f"{method.upper()} {path}" for path, calls in found["paths"].items() for method in calls
        }
        assert described == {str(key) for key, _ in relay.web}
        schemas = found["components"]["schemas"]
        for path, calls in found["paths"].items():
            assert all(one["summary"] and one["responses"] for one in calls.values())
            if "get" not in calls:
                continue
            status, headers, body = await call(relay, "GET", path.replace("{id}", "1001"))
            (kind, content), *_ = calls["get"]["responses"][str(status)]["content"].items()
            assert headers["content-type"].startswith(kind)
            check(content["schema"], body, schemas)

    play(tmp_path, tell)


def check(schema: dict[str, Any], value: Any, schemas: dict[str, Any]) -> None:
    """Check a value against the little of JSON Schema that the description uses."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rsplit("/", 1)[1]]
    if schema.get("type") == "array":
        assert value
        for item in value:
            check(schema["items"], item, schemas)
    elif "properties" in schema:
        assert set(value) == set(schema["required"]) == set(schema["properties"])
        kinds = {"integer": int, "string": str, "boolean": bool, "null": type(None)}
        for name, part in schema["properties"].items():
            allowed = part["type"] if isinstance(part["type"], list) else [part["type"]]
            assert type(value[name]) in [kinds[one] for one in allowed], name


def test_a_call_that_is_registered_twice_names_both_owners(tmp_path: Path) -> None:
    async def tell(_it: World, relay: Relay) -> None:
        registry: Registry[object] = Registry("web")
        for key, row in relay.web:
            registry.add(key, row.name, row.owner, row.handler)
        with pytest.raises(UsageError, match=f"by {OWNER} and by plugin"):
            registry.add("GET /health", "GET /health", "plugin", object())

    play(tmp_path, tell)
