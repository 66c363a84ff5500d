"""Calls that no account has signed: they are refused by their head, and nothing of them is kept."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import struct
from typing import TYPE_CHECKING, Any

import http2_peer as http2
from grpc_calls import DATE, fronted, message, producer
from roquet.proxy import messages as pb
from roquet.proxy.rules.codes import Code
from roquet.proxy.rules.limits import ProxyLimits
from roquet.proxy.rules.methods import SERVICE, TELEMETRY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from grpc_calls import Calls

SEND = f"/{SERVICE}/SendMessage"
ID = ("x-mq-client-id", "c")
ACCOUNT = """\
- accessKey: {name}
  secretKey: secret-of-{name}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [Normal=PUB]
"""


def accounts(*names: str, white: str = "") -> str:
    begin = f"globalWhiteRemoteAddresses: [{white}]\n" if white else ""
    return begin + "accounts:\n" + "".join(ACCOUNT.format(name=name) for name in names)


def signed(name: str, secret: str | None = None) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call that an account signs, with a secret that may be wrong."""
    key = (secret or f"secret-of-{name}").encode()
    signature = hmac.digest(key, DATE.encode(), "sha1").hex()
    text = f"MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return ("x-mq-date-time", DATE), ("authorization", text)


def framed(data: bytes) -> bytes:
    return b"\0" + struct.pack(">I", len(data)) + data


REQUEST = framed(pb.SendMessageRequest(messages=[message()]).SerializeToString())


def begun(
    port: int, *metadata: tuple[str, str], data: bytes = REQUEST, ends: bool = True
) -> int | None:
    """Begin a call that sends; return the code of its answer, None when there is none."""
    with http2.Peer.connect(port) as peer:
        block = http2.headers(SEND, ID, *metadata)
        peer.send(http2.frame(http2.HEADERS, 1, block, http2.END_HEADERS))
        flags = http2.END_STREAM if ends else 0
        peer.send(http2.frame(http2.DATA, 1, data, flags))
        while (found := peer.read()) is not None:
            if found[0] == http2.DATA:
                return int(pb.SendMessageResponse.FromString(found[3][5:]).status.code)
        return None


def run(folder: Path, text: str, story: Callable[[Calls, Path], None], **rules: Any) -> None:
    file = folder / "conf" / "plain_acl.yml"
    file.parent.mkdir()
    file.touch(0o600)
    file.write_text(text)

    async def main() -> None:
        limits = ProxyLimits(port=0, **rules)
        store = folder / "broker"
        async with fronted(store, limits, aclEnable="true", rocketmqHome=str(folder)) as calls:
            await asyncio.to_thread(story, calls, file)

    asyncio.run(main())


def test_unsigned_call_is_answered_before_its_body_is_there(tmp_path: Path) -> None:
    def story(calls: Calls, _: Path) -> None:
        port = calls.front.routes.port
        # The message of a megabyte never comes: only its length and its first bytes do.
        first = struct.pack(">BI", 0, 1 << 20) + bytes(1000)
        wrong = signed("writer-anna", "another secret")
        for metadata in ((), wrong, signed("nobody-known"), (wrong[1],)):
            assert begun(port, *metadata, data=first, ends=False) == Code.UNAUTHORIZED
        assert begun(port, *signed("writer-anna")) == Code.OK

    run(tmp_path, accounts("writer-anna"), story)


def test_strangers_take_no_room_from_those_who_sign(tmp_path: Path) -> None:
    def story(calls: Calls, _: Path) -> None:
        port = calls.front.routes.port
        large = framed(
            pb.SendMessageRequest(messages=[message(body=bytes(12_000))]).SerializeToString()
        )
        with http2.Peer.connect(port) as stranger:
            # As much as a connection may send ahead of being read, and 16 calls of it.
            for stream in range(1, 33, 2):
                block = http2.headers(SEND, ID)
                begin = http2.frame(http2.HEADERS, stream, block, http2.END_HEADERS)
                data = struct.pack(">BI", 0, 1 << 20) + bytes(16_000)
                stranger.send(begin, http2.frame(http2.DATA, stream, data))
            assert begun(port, *signed("writer-anna"), data=large) == Code.OK

    # Room for one request of those who sign.
    run(tmp_path, accounts("writer-anna"), story, inbound_total=16_000)


def test_account_has_its_share_of_unanswered_requests_over_all_its_connections(
    tmp_path: Path,
) -> None:
    def story(calls: Calls, _: Path) -> None:
        port = calls.front.routes.port
        large = framed(
            pb.SendMessageRequest(messages=[message(body=bytes(12_000))]).SerializeToString()
        )
        with contextlib.ExitStack() as stack:
            greedy = [stack.enter_context(http2.Peer.connect(port)) for _ in range(3)]
            for peer in greedy:
                block = http2.headers(SEND, ID, *signed("writer-anna"))
                begin = http2.frame(http2.HEADERS, 1, block, http2.END_HEADERS)
                peer.send(begin, http2.frame(http2.DATA, 1, large[:-1]))
            # Each has little, and one of them alone may be as long as it likes.
            assert sum(is_refused(peer) for peer in greedy) == 2
            assert begun(port, *signed("writer-otto"), data=large) == Code.OK
        assert begun(port, *signed("writer-anna"), data=large) == Code.OK

    names = "writer-anna", "writer-otto"
    run(tmp_path, accounts(*names), story, inbound_of_account=10_000)


def is_refused(peer: http2.Peer) -> bool:
    """Tell whether a call is answered whose request never ends, long before its time is over."""
    peer.link.settimeout(2)
    try:
        return peer.until(http2.HEADERS) is not None
    except TimeoutError:
        return False


def test_address_that_need_not_sign_is_read(tmp_path: Path) -> None:
    def story(calls: Calls, _: Path) -> None:
        assert begun(calls.front.routes.port) == Code.OK

    run(tmp_path, accounts("writer-anna", white="127.0.0.*"), story)


def test_accounts_that_change_are_heeded_at_once(tmp_path: Path) -> None:
    def story(calls: Calls, file: Path) -> None:
        port = calls.front.routes.port
        assert begun(port, *signed("writer-anna")) == Code.OK
        assert begun(port, *signed("writer-otto")) == Code.UNAUTHORIZED
        file.write_text(accounts("writer-otto"))
        while begun(port, *signed("writer-otto")) != Code.OK:
            pass
        assert begun(port, *signed("writer-anna")) == Code.UNAUTHORIZED
        # The second call of the new account is known to the core before it is read.
        assert begun(port, *signed("writer-otto")) == Code.OK

    run(tmp_path, accounts("writer-anna"), story)


def test_telemetry_stream_without_a_signature_ends(tmp_path: Path) -> None:
    def ended(port: int, *metadata: tuple[str, str]) -> bytes | None:
        command = pb.TelemetryCommand(settings=producer("Normal")).SerializeToString()
        with http2.Peer.connect(port) as peer:
            block = http2.headers(TELEMETRY, ID, *metadata)
            peer.send(http2.frame(http2.HEADERS, 1, block, http2.END_HEADERS))
            peer.send(http2.frame(http2.DATA, 1, framed(command)))
            while (found := peer.read()) is not None:
                if found[0] == http2.DATA:
                    return found[3][5:]
                if found[0] == http2.HEADERS and found[1] & http2.END_STREAM:
                    return None
        raise AssertionError("the connection ended")

    def story(calls: Calls, _: Path) -> None:
        port = calls.front.routes.port
        assert ended(port) is None
        said = ended(port, *signed("writer-anna"))
        assert said is not None
        assert pb.TelemetryCommand.FromString(said).status.code == Code.OK

    run(tmp_path, accounts("writer-anna"), story)


def test_unknown_method_without_a_signature_is_unimplemented(tmp_path: Path) -> None:
    def story(calls: Calls, _: Path) -> None:
        with http2.Peer.connect(calls.front.routes.port) as peer:
            block = http2.headers(f"/{SERVICE}/Nothing", ID)
            peer.send(http2.frame(http2.HEADERS, 1, block, http2.END_HEADERS))
            while (found := peer.read()) is not None and found[0] != http2.HEADERS:
                pass
            # A status of gRPC and no answer.
            assert found is not None
            assert found[1] & http2.END_STREAM

    run(tmp_path, accounts("writer-anna"), story)
