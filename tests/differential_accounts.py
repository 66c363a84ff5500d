"""Accounts for two brokers that are compared, and frames signed by them, well and badly."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING

from roquet.acl.signature import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY, sign

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.protocol.command import Command

ACCOUNTS = """\
globalWhiteRemoteAddresses:
- 10.9.*.*
accounts:
- {accessKey: everything, secretKey: secret-of-everything, admin: true}
- accessKey: some-topics
  secretKey: secret-of-some-topics
  topicPerms: [Plain=PUB|SUB, Other=PUB, Multi=SUB, Ordered=DENY]
  groupPerms: [cg=SUB, cg_tags=DENY]
- accessKey: most-topics
  secretKey: secret-of-most-topics
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
  topicPerms: [Other=SUB, Plain=PUB]
  groupPerms: [cg_reset=DENY]
- accessKey: all-topics
  secretKey: secret-of-all-topics
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
- accessKey: limited-admin
  secretKey: secret-of-limited-admin
  admin: true
  topicPerms: [Plain=SUB]
- {accessKey: neighbours, secretKey: secret-of-neighbours, whiteRemoteAddress: 127.0.0.1-9}
- {accessKey: strangers, secretKey: secret-of-strangers, whiteRemoteAddress: 10.0.0.1}
"""
KEYS = ("some-topics", "most-topics", "limited-admin", "strangers")
TROUBLE = (0.0, 0.005, 0.05, 0.5)
"""How many frames are signed badly, or by somebody who perhaps may not: differs by hundreds."""


def signed(command: Command, surely: bool) -> Command:
    """Sign a command, the same way whenever it is asked for; now and then badly unless `surely`."""
    rng = random.Random(command.opaque)
    if surely:
        return _by("everything", command)
    if rng.random() >= TROUBLE[command.opaque // 100 % 4]:
        return _by(rng.choice(_who_may(command)), command)
    if rng.random() < 0.5:
        return _by(rng.choice(KEYS), command)
    return rng.choice(_BADLY)(command, rng)


def _who_may(command: Command) -> tuple[str, ...]:
    """Return accounts that may do what a plain command asks for."""
    ext = command.ext or {}
    sends = ext.get("b") in ("Plain", "Other")
    if sends or (ext.get("topic"), ext.get("consumerGroup")) in (("Plain", "cg"), ("Multi", "cg")):
        return ("everything", "all-topics", "some-topics")
    return ("everything", "all-topics")


def _by(key: str, command: Command) -> Command:
    return sign(command, key, f"secret-of-{key}".encode())


def _spoilt(command: Command, rng: random.Random) -> Command:
    """Change one character of the signature."""
    ext = dict(command.ext or {})
    text = ext[SIGNATURE]
    at = rng.randrange(len(text))
    ext[SIGNATURE] = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
    return dataclasses.replace(command, ext=ext)


def _with(command: Command, **fields: str) -> Command:
    return dataclasses.replace(command, ext={**(command.ext or {}), **fields})


def _longer(command: Command, _: random.Random) -> Command:
    return dataclasses.replace(_by("everything", command), body=command.body + b"!")


_BADLY: tuple[Callable[[Command, random.Random], Command], ...] = (
    lambda command, _: command,
    lambda command, _: _with(command, **{ACCESS_KEY: "neighbours"}),
    lambda command, _: _with(command, **{ACCESS_KEY: "everything"}),
    lambda command, _: sign(command, "nobody-at-all", b"secret-of-everything"),
    lambda command, rng: _spoilt(_by("everything", command), rng),
    lambda command, _: _with(_by("everything", command), **{UNIQUE_KEY_QUERY: "true"}),
    lambda command, _: _by("everything", _with(command, Ä="x", ä="y")),
    _longer,
    lambda command, _: sign(command, "everything", b"secret-of-most-topics", "a-token"),
    lambda command, _: sign(command, "everything", b"secret-of-everything", "a-token"),
)
