"""Appends in sequence: what a broker of ours stores beside a message so that it never comes twice.

A producer numbers the messages that it sends to a queue, from 0 in each of its epochs. A chain of
digests, one link a message, says which messages those numbers stand for. Broker and producer make
the same chain of the same messages, so both can tell a repeated message from another one with its
number. RocketMQ knows none of this: to it the stamp is a property as any other. Pure.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple, Self

from roquet.protocol.bodies.fields import at_once

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.protocol.bodies.fields import Steps
    from roquet.protocol.messages.batch import Element

START = bytes(8)
"""The chain before the first message of an epoch."""
MESSAGES_MAX = 1_000
"""Messages of one request."""
NUMBER_MAX = (1 << 62) - 1
EXPIRY_MS = 48 * 3_600_000
"""A producer that has sent nothing to a queue for so long is forgotten there."""

STEP_BYTES = 1 << 19
"""Bytes of messages between two pauses."""

_HEAD = struct.Struct(">8sii")
_PRODUCER = re.compile(r"[A-Za-z0-9_-]{1,32}", re.ASCII)
_STAMP = re.compile(
    r"([A-Za-z0-9_-]{1,32})\.([0-9]{1,19})\.([0-9]{1,19})\.([0-9a-f]{16})"
    r"(?:\.([0-9a-f]{12}))?\.([0-9a-f]{8})",
    re.ASCII,
)


def is_producer(name: str) -> bool:
    """Tell whether a text may name a producer: 1 to 32 letters, digits, `_` and `-`."""
    return _PRODUCER.fullmatch(name) is not None


def owner_of(access_key: str) -> str:
    """Return how a stamp names the account that sent a message: 12 hexadecimal digits.

    Empty where nobody needs an account.
    """
    return hashlib.blake2b(access_key.encode(), digest_size=6).hexdigest() if access_key else ""


def chain(before: bytes, elements: Iterable[Element]) -> list[bytes]:
    """Return the chain behind each message; `before` is the one in front of the first."""
    return at_once(chaining(before, elements))


def chaining(before: bytes, elements: Iterable[Element]) -> Steps[list[bytes]]:
    """Return what `chain` does, in steps."""
    found: list[bytes] = []
    left = STEP_BYTES
    for flag, body, properties in elements:
        if left <= 0:
            yield
            left = STEP_BYTES
        left -= len(body) + len(properties)
        digest = hashlib.blake2b(_HEAD.pack(before, flag, len(body)), digest_size=8)
        digest.update(body)
        digest.update(properties)
        before = digest.digest()
        found.append(before)
    return found


class Stamp(NamedTuple):
    """What the broker adds to a message: whose it is, which one, and the chain behind it."""

    producer: str
    epoch: int
    number: int
    chain: bytes
    owner: str = ""
    """The account as `owner_of` names it; empty when the broker asked for none."""

    def text(self, topic: str, queue_id: int) -> str:
        """Return the value of the property; it counts in this queue alone."""
        front = f"{self.producer}.{self.epoch}.{self.number}.{self.chain.hex()}"
        if self.owner:
            front += f".{self.owner}"
        return f"{front}.{_check(front, topic, queue_id):08x}"

    @classmethod
    def read(cls, text: str, topic: str, queue_id: int) -> Self | None:
        """Return the stamp of a property; None for anything that is not one of this queue.

        Whoever forwards a message may forward all of its properties: its copy is not stamped.
        """
        match = _STAMP.fullmatch(text)
        if match is None:
            return None
        producer, epoch, number, link, owner, check = match.groups()
        front = text[: -len(check) - 1]
        if int(check, 16) != _check(front, topic, queue_id):
            return None
        if int(epoch) > NUMBER_MAX or int(number) > NUMBER_MAX:
            return None
        return cls(producer, int(epoch), int(number), bytes.fromhex(link), owner or "")


def _check(front: str, topic: str, queue_id: int) -> int:
    return zlib.crc32(f"{front}\0{topic}\0{queue_id}".encode())
