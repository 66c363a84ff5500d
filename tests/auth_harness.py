"""A broker that asks for users, and requests about them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import TYPE_CHECKING, Any

from roquet.acl.credentials import Credentials
from roquet.base.clock import SystemClock
from roquet.broker import app as broker_app
from roquet.broker.config import load_config
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.testing.cluster import TINY

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from pathlib import Path

CANARY = "canary-password"
ROOT = Credentials("root", f"{CANARY}-root")
INNER = Credentials("inner", f"{CANARY}-inner")
ANN = Credentials("ann", f"{CANARY}-ann")
CLERK = Credentials("clerk", f"{CANARY}-clerk")
STRANGER = Credentials("ann", "not-the-password")

SWITCHES = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": ROOT.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": "inner", "secretKey": INNER.secret_key}
    ),
}
PROVIDERS = {
    "authenticationProvider": (
        "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider"
    ),
    "authenticationMetadataProvider": (
        "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "authorizationProvider": (
        "org.apache.rocketmq.auth.authorization.provider.DefaultAuthorizationProvider"
    ),
    "authorizationMetadataProvider": (
        "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider"
    ),
}
"""What a broker of RocketMQ needs besides, and ours passes over."""


@dataclasses.dataclass
class Guarded:
    """A broker that asks for users."""

    folder: Path
    broker: broker_app.Broker
    client: Client

    async def call(self, command: Command, who: Credentials | None = ROOT) -> Command:
        sent = command if who is None else who.sign(command)
        return await self.client.call(self.broker.identity.address, sent, 20.0)

    async def said(self, command: Command, who: Credentials | None = ROOT) -> tuple[int, str]:
        answer = await self.call(command, who)
        return answer.code, answer.remark or ""

    async def make(self, who: Credentials, kind: str = "Normal") -> None:
        body = {"password": who.secret_key, "userType": kind}
        assert await self.said(user_command(3001, who.access_key, body)) == (0, "")

    async def allow(
        self, who: Credentials, *entries: Mapping[str, Any], kind: str = "Custom"
    ) -> None:
        assert await self.said(acl_command(3006, who.access_key, entries, kind)) == (0, "")


def user_command(code: int, name: str, body: Mapping[str, Any]) -> Command:
    return Command(code, {"username": name}, json.dumps(body).encode())


def acl_command(
    code: int, name: str, entries: Sequence[Mapping[str, Any]], kind: str | None = "Custom"
) -> Command:
    body = {"policies": [{"policyType": kind, "entries": list(entries)}]}
    return Command(code, {"subject": f"User:{name}"}, json.dumps(body).encode())


def entry(
    resource: str, *actions: str, decision: str = "Allow", sources: Sequence[str] = ()
) -> dict[str, Any]:
    found = {"resource": resource, "actions": list(actions), "decision": decision}
    return {**found, "sourceIps": list(sources)} if sources else found


@contextlib.asynccontextmanager
async def guarded(folder: Path, **changes: str) -> AsyncGenerator[Guarded]:
    flags = {
        **TINY,
        **SWITCHES,
        "storePathRootDir": str(folder / "store"),
        "storePathCommitLog": str(folder / "store" / "commitlog"),
        "brokerName": "broker-a",
        **changes,
    }
    settings, report = load_config(None, {}, dict(flags))
    assert not report.unknown
    broker = broker_app.build(settings)
    client = Client(clock=SystemClock())
    async with broker.app:
        await client.start()
        try:
            yield Guarded(folder, broker, client)
        finally:
            await client.stop()
