"""Users and policies at a name server: over real sockets, with a broker that signs."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import pytest

from auth_harness import (
    ANN,
    CANARY,
    CLERK,
    INNER,
    ROOT,
    STRANGER,
    SWITCHES,
    acl_command,
    entry,
    user_command,
)
from cli_harness import roquet
from remoting_harness import on_loop, until
from roquet.acl.credentials import Credentials
from roquet.base.clock import SystemClock
from roquet.base.errors import Corrupt, UsageError
from roquet.namesrv.config import load_config
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.testing.cluster import running_broker, running_name_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from roquet.namesrv.app import NameServer

BROKER = Credentials("broker", f"{CANARY}-broker")


class Asked:
    """A name server that asks for users, and who asks it."""

    def __init__(self, server: NameServer, client: Client) -> None:
        self.server = server
        self.client = client
        self.address = f"127.0.0.1:{server.server.port}"

    async def call(self, command: Command, who: Credentials | None = ROOT) -> Command:
        sent = command if who is None else who.sign(command)
        return await self.client.call(self.address, sent, 20.0)

    async def said(self, command: Command, who: Credentials | None = ROOT) -> tuple[int, str]:
        answer = await self.call(command, who)
        return answer.code, answer.remark or ""

    async def make(self, who: Credentials, *resources: str, actions: str = "Pub") -> None:
        made = user_command(3001, who.access_key, {"password": who.secret_key})
        assert await self.said(made) == (0, "")
        given = acl_command(3006, who.access_key, [entry(it, actions) for it in resources])
        assert await self.said(given) == (0, "")


@contextlib.asynccontextmanager
async def asked(folder: Path, **changes: str) -> AsyncGenerator[Asked]:
    client = Client(clock=SystemClock())
    async with running_name_server(folder / "namesrv", {**SWITCHES, **changes}) as server:
        await client.start()
        try:
            yield Asked(server, client)
        finally:
            await client.stop()


def route(topic: str) -> Command:
    return Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})


def refused(name: str, resource: str) -> tuple[int, str]:
    why = "no matched policies."
    return 16, f"User:{name} has no permission to access {resource} from 127.0.0.1, {why}"


@on_loop
async def test_broker_registers_signed_and_routes_need_a_right_on_the_topic(
    tmp_path: Path,
) -> None:
    async with (
        asked(tmp_path) as it,
        running_broker(tmp_path / "broker", it.address, changes=SWITCHES) as broker,
    ):
        await until(lambda: "TBW102" in it.server.table.topics, 60)
        await it.make(ANN, "Topic:TBW*")
        assert await it.said(route("TBW102"), None) == (16, "username cannot be null.")
        assert await it.said(route("TBW102"), STRANGER) == (16, "check signature failed.")
        assert await it.said(route("TBW102"), ANN) == (0, "")
        assert await it.said(route("RMQ_SYS_TRACE_TOPIC"), ANN) == refused(
            "ann", "Topic:RMQ_SYS_TRACE_TOPIC"
        )
        retry = await it.said(route("%RETRY%billing"), ANN)
        assert retry == refused("ann", "Group:billing")
        assert await it.said(Command(RequestCode.GET_BROKER_CLUSTER_INFO, {}), ANN) == (0, "")
        assert broker.identity.name in it.server.table.brokers


@on_loop
async def test_broker_that_signs_nothing_is_not_registered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with asked(tmp_path) as it, running_broker(tmp_path / "broker", it.address) as broker:
        await until(lambda: "username cannot be null." in caplog.text, 60)
        assert not it.server.table.topics
        assert not broker.health.is_ready


@on_loop
async def test_changes_of_a_name_server_are_for_super_users_or_those_of_the_cluster(
    tmp_path: Path,
) -> None:
    leave = Command(
        RequestCode.UNREGISTER_BROKER,
        {
            "brokerName": "b",
            "brokerAddr": "10.0.0.1:10911",
            "clusterName": "DefaultCluster",
            "brokerId": "0",
        },
    )
    others = (
        Command(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "b"}),
        Command(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "t"}),
        Command(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"enableTopicList=false"),
        Command(RequestCode.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"}),
        user_command(3001, "bob", {"password": "p"}),
        user_command(3005, "bob", {}),
        Command(RequestCode.GET_USERS, {}),
        Command(654_321, {}),
    )
    async with asked(tmp_path) as it:
        await it.make(BROKER, "Cluster:DefaultCluster", actions="Update")
        await it.make(CLERK, "Cluster:other", "Topic:*", "Group:*", actions="All")
        assert await it.said(leave, BROKER) == (0, "")
        assert await it.said(leave, CLERK) == refused("clerk", "Cluster:DefaultCluster")
        for command in others:
            for who in (BROKER, CLERK):
                code, why = await it.said(command, who)
                assert (code, why.endswith("it needs a super user")) == (16, True), command.code
        for who in (ROOT, INNER):
            assert await it.said(Command(RequestCode.GET_USERS, {}), who) == (0, "")


@on_loop
async def test_users_are_kept_and_no_setting_shows_a_password(tmp_path: Path) -> None:
    async with asked(tmp_path) as it:
        await it.make(ANN, "Topic:t")
        shown = (await it.call(Command(RequestCode.GET_NAMESRV_CONFIG, {}))).body
        assert b"authenticationEnabled=true" in shown
        assert CANARY.encode() not in shown
    async with asked(tmp_path, initAuthenticationUser="") as it:
        assert (await it.said(route("t"), ANN))[0] == 17
        assert await it.said(user_command(3003, "ann", {})) == (0, "")
        assert await it.said(route("t"), ANN) == (16, "User:ann is not found.")
    file = tmp_path / "namesrv" / "users-0.auth"
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(Corrupt, match=r"users-0\.auth"):
        async with asked(tmp_path):
            raise AssertionError("it must not start")


def test_switches_of_a_name_server_go_together(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("authenticationEnabled=true\n")
    with pytest.raises(UsageError, match="needs authorizationEnabled"):
        load_config(file, {}, {})
    pair = json.dumps({"username": "a", "password": "b"})
    switches = "authenticationEnabled=true\nauthorizationEnabled=true\n"
    file.write_text(f"{switches}initAuthenticationUser={pair}\n")
    assert load_config(file, {}, {})[0].auth.enabled


def test_name_server_with_a_damaged_file_of_users_ends_with_253_and_one_line(
    tmp_path: Path,
) -> None:
    (tmp_path / "users-0.auth").write_bytes(b"damaged")
    file = tmp_path / "namesrv.conf"
    pair = json.dumps({"username": "a", "password": "b"})
    file.write_text(
        f"listenPort=0\nkvConfigPath={tmp_path / 'kv.json'}\nauthenticationEnabled=true\n"
        f"authorizationEnabled=true\ninitAuthenticationUser={pair}\n"
    )
    ended = roquet(tmp_path, "namesrv", "-c", str(file), "--log-level", "ERROR")
    assert ended.returncode == 253, ended.stderr
    assert ended.stdout.startswith("the name server cannot start: "), ended.stderr
    assert "users-0.auth" in ended.stdout
