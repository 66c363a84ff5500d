"""Health and reflection: what anybody may ask, on the wire and without an account."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import TYPE_CHECKING, Any

import pytest

import http2_peer as http2
from grpc_calls import fronted
from roquet.proxy import messages as pb
from roquet.proxy.rules.limits import ProxyLimits
from roquet.proxy.services import public

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RULES = ProxyLimits(port=0)
ACCOUNTS = "accounts:\n- accessKey: somebody\n  secretKey: secret-of-somebody\n"
ASKED = pb.class_of(f"{public.HEALTH}.HealthCheckRequest")
SAID = pb.class_of(f"{public.HEALTH}.HealthCheckResponse")


def framed(data: bytes) -> bytes:
    return b"\0" + struct.pack(">I", len(data)) + data


@pytest.fixture(params=["accounts", "nobody"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The settings of a broker where calls are signed, and of one where they are not."""
    if request.param == "nobody":
        return {}
    file = tmp_path / "conf" / "plain_acl.yml"
    file.parent.mkdir()
    file.touch(0o600)
    file.write_text(ACCOUNTS)
    return {"aclEnable": "true", "rocketmqHome": str(tmp_path)}


def run(folder: Path, settings: dict[str, str], story: Callable[[int], None]) -> None:
    async def main() -> None:
        async with fronted(folder / "broker", RULES, None, **settings) as calls:
            await asyncio.to_thread(story, calls.front.routes.port)

    asyncio.run(main())


@contextlib.contextmanager
def called(port: int, path: str, *requests: Any, ends: bool = True) -> Iterator[http2.Peer]:
    """Call a method without any metadata."""
    with http2.Peer.connect(port) as peer:
        peer.send(http2.frame(http2.HEADERS, 1, http2.headers(path), http2.END_HEADERS))
        for at, request in enumerate(requests, 1):
            flags = http2.END_STREAM if ends and at == len(requests) else 0
            peer.send(http2.frame(http2.DATA, 1, framed(request.SerializeToString()), flags))
        yield peer


def told(peer: http2.Peer) -> bytes | None:
    """Return the next message of an answer; None at its end."""
    while (found := peer.read()) is not None:
        kind, flags, _, payload = found
        if kind == http2.DATA:
            return bytes(payload[5:])
        if kind == http2.HEADERS and flags & http2.END_STREAM:
            return None
    raise AssertionError("the connection ended")


@pytest.mark.parametrize("service", ["", pb.SERVICE])
def test_port_that_serves_is_healthy(
    tmp_path: Path, settings: dict[str, str], service: str
) -> None:
    def story(port: int) -> None:
        with called(port, public.CHECK, ASKED(service=service)) as peer:
            said = told(peer)
            assert said is not None
            assert SAID.FromString(said).status == public.SERVING
            assert told(peer) is None
        with called(port, public.WATCH, ASKED(service=service)) as peer:
            said = told(peer)
            assert said is not None
            assert SAID.FromString(said).status == public.SERVING

    run(tmp_path, settings, story)


def test_unknown_service_has_no_health(tmp_path: Path, settings: dict[str, str]) -> None:
    def story(port: int) -> None:
        with called(port, public.CHECK, ASKED(service="other")) as peer:
            assert told(peer) is None
        with called(port, public.WATCH, ASKED(service="other")) as peer:
            said = told(peer)
            assert said is not None
            assert SAID.FromString(said).status == public.SERVICE_UNKNOWN

    run(tmp_path, settings, story)


def test_watches_are_limited(
    tmp_path: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public, "WATCHES_MAX", 2)

    def story(port: int) -> None:
        with contextlib.ExitStack() as stack:
            for wanted in (True, True, False):
                peer = stack.enter_context(called(port, public.WATCH, ASKED()))
                assert (told(peer) is not None) is wanted

    run(tmp_path, settings, story)


@pytest.mark.parametrize("package", public.REFLECTIONS)
def test_reflection_shows_the_services_and_their_files(
    tmp_path: Path, settings: dict[str, str], package: str
) -> None:
    asked = pb.class_of(f"{package}.ServerReflectionRequest")
    says = pb.class_of(f"{package}.ServerReflectionResponse")
    path = f"/{package}.ServerReflection/ServerReflectionInfo"
    questions = [
        asked(list_services=""),
        asked(file_containing_symbol=pb.SERVICE),
        asked(file_containing_symbol="no.such.Thing"),
        asked(file_by_filename="grpc/health/v1/health.proto"),
        asked(all_extension_numbers_of_type=pb.SERVICE),
    ]

    def story(port: int) -> None:
        with called(port, path, *questions) as peer:
            found = [says.FromString(told(peer) or b"") for _ in questions]
            assert told(peer) is None
        names = {service.name for service in found[0].list_services_response.service}
        assert names == set(public.SERVICES)
        files = found[1].file_descriptor_response.file_descriptor_proto
        shown = {
            name
            for data in files
            for name in (pb.SERVICE.rpartition(".")[2],)
            if name.encode() in data
        }
        assert shown == {"MessagingService"}
        # The file itself, and those that it needs.
        assert sum(b"google/protobuf/" in data[:40] for data in files) >= 2
        assert found[2].error_response.error_code == 5
        assert len(found[3].file_descriptor_response.file_descriptor_proto) == 1
        assert found[4].WhichOneof("message_response") == "error_response"

    run(tmp_path, settings, story)


@pytest.mark.parametrize("path", [public.CHECK, *public.REFLECTION_PATHS])
def test_request_that_is_too_long_or_no_protobuf_ends_the_call(
    tmp_path: Path, settings: dict[str, str], path: str
) -> None:
    def story(port: int) -> None:
        for data in (framed(b"\xff" * 10), framed(b"\x0a\x81\x80\x04" + bytes(65_537))):
            with http2.Peer.connect(port) as peer:
                peer.send(http2.frame(http2.HEADERS, 1, http2.headers(path), http2.END_HEADERS))
                for at in range(0, len(data), 16_000):
                    peer.send(http2.frame(http2.DATA, 1, data[at : at + 16_000]))
                if path == public.CHECK:
                    peer.send(http2.frame(http2.DATA, 1, b"", http2.END_STREAM))
                assert told(peer) is None

    run(tmp_path, settings, story)
