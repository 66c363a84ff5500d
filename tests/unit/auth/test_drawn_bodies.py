"""Bodies of requests about users and policies that nobody would write: each has an answer."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from typing import TYPE_CHECKING, Any

from auth_harness import ANN, CANARY, INNER, ROOT, guarded
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

CODES = tuple(range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1))
BODIES = 400
"""A second of a test; `SEED` and this decide what is drawn."""
SEED = 3001
EXPECTED = {
    ResponseCode.SUCCESS,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.INVALID_PARAMETER,
    ResponseCode.NO_PERMISSION,
    ResponseCode.USER_NOT_EXIST,
    ResponseCode.POLICY_NOT_EXIST,
}
LEAVES: tuple[Any, ...] = (
    None,
    "",
    " ",
    "Normal",
    "Super",
    "super",
    "enable",
    "Custom",
    "Default",
    "Nobody",
    "Allow",
    "Deny",
    "Pub",
    "*",
    "Topic:*",
    "Topic:",
    ":",
    "Group:a*b*",
    "Cluster:x",
    "10.0.0.0/33",
    "10.0.0.1-10.0.0.0",
    "::/129",
    "300.1.1.1",
    "é" * 70,
    "n" * 65_000,
    "\x00",
    "\ud800",
    0,
    -1,
    1e308,
    True,
    [],
    {},
)
FIELDS = (
    "username",
    "password",
    "userType",
    "userStatus",
    "subject",
    "policies",
    "policyType",
    "entries",
    "resource",
    "actions",
    "sourceIps",
    "decision",
    "unknown",
)


def drawn(rng: random.Random, depth: int = 0) -> Any:
    """Return a value of JSON, often of the shape that was agreed on."""
    kind = rng.random()
    if depth > 4 or kind < 0.3:
        return rng.choice(LEAVES)
    if kind < 0.5:
        return [drawn(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(FIELDS): drawn(rng, depth + 1) for _ in range(rng.randrange(6))}


def near(rng: random.Random) -> Any:
    """Return an AclInfo or a UserInfo of which one field is drawn."""
    entry = {"resource": "Topic:t", "actions": ["Pub"], "decision": "Allow", "sourceIps": []}
    entry[rng.choice(tuple(entry))] = drawn(rng, 3)
    policy: dict[str, Any] = {"policyType": "Custom", "entries": [entry]}
    policy[rng.choice(tuple(policy))] = drawn(rng, 3)
    user = {"password": "p", "userType": "Normal", "userStatus": "enable"}
    user[rng.choice(tuple(user))] = drawn(rng, 3)
    return rng.choice((user, {"policies": [policy, entry]}, {"policies": [policy]}))


def body_of(rng: random.Random) -> bytes:
    made = near(rng) if rng.random() < 0.6 else drawn(rng)
    data = bytearray(json.dumps(made).encode())
    if rng.random() < 0.2:
        deep = b"[" * rng.choice((10, 200, 8000))
        data = bytearray(deep)
    for _ in range(rng.choice((0, 0, 0, 1, 5))):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.1 else data)


def test_drawn_bodies_about_users_are_answered_and_change_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        rng = random.Random(SEED)
        async with guarded(tmp_path) as it:
            await it.make(ANN)
            for number in range(BODIES):
                name = rng.choice(("", " ", "fay", "User:", "n" * 65_000, "é", "a:b"))
                subject = rng.choice(("User:fay", "User:", "Nobody:x", "", f"User:{name}"))
                ext = {"username": name, "subject": subject, "filter": name}
                ext = {key: value for key, value in ext.items() if rng.random() < 0.9}
                command = Command(rng.choice(CODES), ext, body_of(rng))
                code, remark = await it.said(command)
                assert code in EXPECTED, (number, command, code, remark)
                assert code == ResponseCode.SUCCESS or remark, (number, command)
                assert CANARY not in remark
            for who in (ROOT, INNER, ANN):
                found = await it.call(
                    Command(RequestCode.AUTH_GET_USER, {"username": who.access_key})
                )
                assert found.code == ResponseCode.SUCCESS
                assert json.loads(found.body)["username"] == who.access_key

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
