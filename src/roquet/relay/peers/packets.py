"""The relay's packets: made and read. Pure; a packet that cannot be read raises PacketError."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
from typing import TYPE_CHECKING

import msgspec

from roquet.base.errors import RoquetError
from roquet.protocol.command import BINARY, FLAG_ONE_WAY, Command
from roquet.relay.codes import ID_MAX, RelayCode

if TYPE_CHECKING:
    from collections.abc import Mapping

PROTOCOL_VERSION = 1
TEXT_MAX = 256
"""Characters of a name, nonce or proof in a packet."""

_MAP = msgspec.json.Decoder(dict[str, dict[str, int]])


class PacketError(RoquetError):
    """A packet of the relay's own protocol is not what it should be."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Register:
    """The register packet: who calls whom, and a number to prove the secret by."""

    relay: str
    """Name of the relay, for people."""
    instance: str
    """Which process of it: another after each start."""
    server_id: int
    server_type: int
    nonce: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The register answer."""

    server_id: int
    max_online: int
    nonce: str
    proof: str


@dataclasses.dataclass(frozen=True, slots=True)
class Other:
    """What a server knows of another one."""

    server_id: int
    server_type: int
    max_online: int = 0


def command(code: RelayCode, ext: dict[str, str], body: bytes = b"") -> Command:
    """Make a request in the binary encoding, which is the shorter one."""
    return Command(code, ext, body, encoding=BINARY)


def one_way(code: RelayCode, ext: dict[str, str], body: bytes = b"") -> Command:
    """Make a request that nobody answers."""
    return Command(code, ext, body, flag=FLAG_ONE_WAY, encoding=BINARY)


def hello(server_id: int) -> Command:
    """Make the first packet of a server that dials the relay."""
    return command(RelayCode.HELLO, {"id": str(server_id), "protocol": str(PROTOCOL_VERSION)})


def register(packet: Register) -> Command:
    """Make the register packet."""
    return command(
        RelayCode.REGISTER,
        {
            "relay": packet.relay,
            "instance": packet.instance,
            "id": str(packet.server_id),
            "type": str(packet.server_type),
            "nonce": packet.nonce,
            "protocol": str(PROTOCOL_VERSION),
        },
    )


def read_register(packet: Command) -> Register:
    """Read the register packet."""
    version = number(packet, "protocol")
    if version != PROTOCOL_VERSION:
        raise PacketError(f"protocol is {version}, this side speaks {PROTOCOL_VERSION}")
    return Register(
        relay=text(packet, "relay"),
        instance=text(packet, "instance"),
        server_id=number(packet, "id"),
        server_type=number(packet, "type"),
        nonce=text(packet, "nonce"),
    )


def registered_ext(answer: Registered) -> dict[str, str]:
    """Return the fields of the register answer."""
    fields = {"id": str(answer.server_id), "maxOnline": str(answer.max_online)}
    if answer.proof:
        fields |= {"nonce": answer.nonce, "proof": answer.proof}
    return fields


def read_registered(answer: Command) -> Registered:
    """Read the register answer."""
    return Registered(
        server_id=number(answer, "id"),
        max_online=number(answer, "maxOnline", low=0),
        nonce=text(answer, "nonce", default=""),
        proof=text(answer, "proof", default=""),
    )


def server_map(others: Mapping[int, Other], proof: str = "") -> Command:
    """Make the packet that tells a server that it is registered, and who else is there."""
    body = msgspec.json.encode(
        {str(one.server_id): {"type": one.server_type, "maxOnline": one.max_online}
         for one in others.values()}
    )  # fmt: skip
    return one_way(RelayCode.SERVER_MAP, {"proof": proof} if proof else {}, body)


def read_server_map(packet: Command) -> dict[int, Other]:
    """Read the other servers by id."""
    try:
        found = _MAP.decode(packet.body)
        return {
            (number := int(name)): Other(number, about["type"], about["maxOnline"])
            for name, about in found.items()
        }
    except (msgspec.MsgspecError, KeyError, ValueError) as error:
        raise PacketError(f"the server map cannot be read: {error}") from error


def new_server(other: Other) -> Command:
    """Make the new-server notice."""
    ext = {
        "id": str(other.server_id),
        "type": str(other.server_type),
        "maxOnline": str(other.max_online),
    }
    return one_way(RelayCode.NEW_SERVER, ext)


def read_new_server(packet: Command) -> Other:
    """Read the new-server notice."""
    return Other(number(packet, "id"), number(packet, "type"), number(packet, "maxOnline", low=0))


def server_gone(server_id: int, why: str) -> Command:
    """Make the server-gone notice."""
    return one_way(RelayCode.SERVER_GONE, {"id": str(server_id), "why": why[:TEXT_MAX]})


def heartbeat(online: int | None = None) -> Command:
    """Make a heartbeat."""
    return one_way(RelayCode.HEARTBEAT, {} if online is None else {"online": str(online)})


def number(packet: Command, name: str, *, low: int = 1) -> int:
    """Return a field that is a 32-bit integer of at least `low`."""
    found = (packet.ext or {}).get(name, "")
    if found.isascii() and found.isdigit() and len(found) <= 10 and low <= int(found) <= ID_MAX:
        return int(found)
    raise PacketError(f"{name} is {found[:40]!r}, it should be an integer within {low}..{ID_MAX}")


def text(packet: Command, name: str, *, default: str | None = None) -> str:
    """Return a field that is a short text."""
    found = (packet.ext or {}).get(name, default)
    if found is None or len(found) > TEXT_MAX:
        raise PacketError(f"{name} is not there, or longer than {TEXT_MAX} characters")
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """What one side of a link proves with the shared secret: HMAC-SHA256 over both nonces.

    `side` (`relay` or `server`) keeps one side's proof from being sent back as the other's.
    """

    side: str
    mine: str
    theirs: str
    server_id: int

    def proof(self, secret: str) -> str:
        """Prove it."""
        said = f"{self.side}\n{self.mine}\n{self.theirs}\n{self.server_id}".encode()
        return hmac.new(secret.encode(), said, hashlib.sha256).hexdigest()

    def holds(self, secret: str, given: str) -> bool:
        """Check a proof."""
        return hmac.compare_digest(given.encode(), self.proof(secret).encode())
