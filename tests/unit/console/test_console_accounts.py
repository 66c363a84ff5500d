"""Accounts of access control 1.0, changed by a console while brokers ask for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from console_harness import console_over
from roquet.acl.credentials import Credentials
from roquet.base.errors import Refused
from roquet.client import connect
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from pathlib import Path

    from console_harness import Browser

KEEPER = Credentials("operator", "canary-of-operator")
READER = Credentials("reader-of", "canary-of-reader")
ANN = Credentials("annabel", "canary-of-ann")


def asking_broker(folder: Path) -> dict[str, str]:
    """Write the accounts of a broker; return the settings that make it ask for them."""
    accounts = folder / "plain_acl.yml"
    rows = (
        f"- accessKey: {it.access_key}\n  secretKey: {it.secret_key}\n  admin: {admin}\n"
        for it, admin in ((KEEPER, "true"), (READER, "false"))
    )
    accounts.write_text("accounts:\n" + "".join(rows))
    accounts.chmod(0o600)
    return {"aclEnable": "true", "rocketmq.acl.plain.file": str(accounts)}


async def accounts_of(who: Browser) -> dict[str, dict[str, Any]]:
    return {it["access_key"]: it for it in (await who.get("/api/accounts")).json["rows"]}


def test_accounts_are_changed_while_access_control_is_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            cluster(tmp_path, **asking_broker(tmp_path)) as world,
            console_over(world, credentials=KEEPER) as console,
        ):
            keeper = console.administrator
            topic = await keeper.call("/topic/create", name="orders")
            assert topic.status == 200, topic.text
            ann = {"user": ANN.access_key, "secret": ANN.secret_key}
            made = await keeper.call("/account/put", **ann, topics="orders=SUB")
            assert made.status == 200, made.text
            assert (await accounts_of(keeper))["annabel"]["topics"] == ["orders=SUB"]
            assert (await accounts_of(keeper))["operator"]["admin"] is True
            hers = connect(f"rmq://{world.name_servers}", credentials=ANN)
            async with hers as mq, mq.producer("p") as producer:
                with pytest.raises(Refused):
                    await producer.send("orders", b"x")
                # As with RocketMQ, a change says the secret again, and the answer says so.
                change = {"user": ANN.access_key, "topics": "orders=PUB|SUB"}
                refused = await keeper.call("/account/put", **change)
                assert refused.status == 409, refused.text
                assert "secret" in refused.json["error"].lower(), refused.text
                done = await keeper.post("/account/put", **change, secret=ANN.secret_key)
                assert (done.status, done.headers["location"]) == (303, "/accounts")
                await producer.send("orders", b"x")
                gone = await keeper.call("/account/delete", user="annabel", confirm="annabel")
                assert gone.status == 200, gone.text
                with pytest.raises(Refused):
                    await producer.send("orders", b"x")
            assert set(await accounts_of(keeper)) == {"operator", "reader-of"}
            page = (await keeper.get("/accounts")).text
            assert "canary" not in page
            audit = (await keeper.get("/api/audit")).text
            assert "canary" not in audit
            async with console_over(world, credentials=READER) as weak:
                denied = await weak.administrator.call("/account/put", **ann)
                assert denied.status == 409, denied.text
                assert set(await accounts_of(keeper)) == {"operator", "reader-of"}

    asyncio.run(story())
