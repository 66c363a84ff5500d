"""The operators' door: `brokerRole` and `brokerId` as settings that change while running."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import functools
import json
import ssl
from typing import TYPE_CHECKING

import pytest

import roquet
from pair_harness import PairWorld, caught_up, pair_world, until
from roquet.acl.credentials import Credentials
from roquet.base.errors import UsageError
from roquet.base.properties_file import read_properties, write_properties
from roquet.broker import app as broker_app
from roquet.broker.replication.duties import Role
from roquet.cli.commands import brokers as commands
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.service.duties import MASTER, SLAVE
from roquet.testing.cluster import broker_config, send_command
from roquet.testing.pair import over_tls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from roquet.broker.app import Broker

OWN = Credentials("own-topic", "secret-of-own")
OPERATOR = Credentials("operator", "secret-of-operator")
ACCOUNTS = f"""\
accounts:
- accessKey: {OWN.access_key}
  secretKey: {OWN.secret_key}
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [Own=PUB|SUB]
  groupPerms: [own=SUB]
- {{accessKey: {OPERATOR.access_key}, secretKey: {OPERATOR.secret_key}, admin: true}}
"""


def run(folder: Path, story: Callable[[PairWorld], Awaitable[None]]) -> None:
    async def main() -> None:
        async with pair_world(folder) as world:
            await story(world)

    asyncio.run(main())


async def tell(world: PairWorld, broker: Broker, **settings: str) -> Command:
    body = write_properties(settings)
    command = Command(RequestCode.UPDATE_BROKER_CONFIG, body=body)
    return await world.client.call(broker.identity.address, command, 20.0)


def test_two_brokers_change_places_by_their_settings(tmp_path: Path) -> None:
    async def story(world: PairWorld) -> None:
        async with world.master() as one, world.slave() as two:
            await world.send(one)
            await caught_up(one, two)
            answer = await tell(world, one, brokerRole="SLAVE", brokerId="2")
            assert (answer.code, answer.remark) == (0, None)
            assert one.duties.held == SLAVE
            assert (await world.send(one)).code != ResponseCode.SUCCESS
            assert (await tell(world, two, brokerRole="SYNC_MASTER")).code == 0
            assert two.duties.role == Role("SYNC_MASTER", 0)
            assert two.duties.held == MASTER
            await until(lambda: two.pair.master.slaves, "the old master follows")
            sent = await world.send(two)
            assert (sent.code, (sent.ext or {})["queueOffset"]) == (0, "1")
            # SYNC_MASTER: the acknowledgement means that the old master has it.
            assert one.store.end_offset() == two.store.end_offset()
            shown = await world.ask(two, RequestCode.GET_BROKER_CONFIG)
            assert read_properties(shown.body)["brokerRole"] == "SYNC_MASTER"

    run(tmp_path, story)


def test_no_second_master_is_made_beside_one_that_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story(world: PairWorld) -> None:
        async with roquet.connect(world.name_servers) as mq, world.slave() as two:
            admin, new = mq.admin(), two.identity.address
            async with world.master() as one:
                old = one.identity.address
                await world.send(one)
                await caught_up(one, two)
                with pytest.raises(UsageError, match=f"has a master that answers, {old}: make"):
                    await admin.brokers.set_role(new, "SYNC_MASTER", 0)
                assert two.duties.held == SLAVE
                await admin.brokers.set_role(old, "SLAVE", 2)
                # Nobody takes messages now, and that is said.
                asked = argparse.Namespace(broker=None, output="json")
                assert await commands.ha(admin, asked) == 0
                rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
                found = {(row["slave"], row["state"]) for row in rows}
                assert found == {(new, "no master"), (old, "no master")}
                await admin.brokers.set_role(new, "ASYNC_MASTER", 0)
                assert two.duties.held == MASTER
                await admin.brokers.set_role(new, "SLAVE", 1)
                await admin.brokers.set_role(old, "ASYNC_MASTER", 0)
            # The master is away: its slave may lead.
            await admin.brokers.set_role(new, "ASYNC_MASTER", 0)
            assert two.duties.held == MASTER

    run(tmp_path, story)


def test_roles_that_cannot_be_are_refused_and_nothing_changes(tmp_path: Path) -> None:
    async def story(world: PairWorld) -> None:
        async with world.master() as one:
            for settings, why in (
                ({"brokerRole": "SLAVE"}, "give brokerId as well"),
                ({"brokerRole": "CAPTAIN"}, "must be one of"),
                ({"brokerRole": "SLAVE", "brokerId": "-1"}, "must be a whole number"),
                ({"brokerRole": "SLAVE", "brokerId": "0"}, "must be > 0"),
                ({"brokerId": "3"}, "must be 0 for a master"),
                ({"brokerRole": "SLAVE", "brokerId": "1", "brokerPermission": "4"}, "comes alone"),
            ):
                answer = await tell(world, one, **settings)
                assert answer.code == ResponseCode.INVALID_PARAMETER, settings
                assert why in (answer.remark or "")
            assert one.duties.held == MASTER
            assert (await world.send(one)).code == 0

    run(tmp_path, story)


def test_a_log_that_is_known_to_be_no_copy_does_not_lead(tmp_path: Path) -> None:
    async def story(world: PairWorld) -> None:
        async with world.master() as one, world.slave() as two:
            # A copied message shows that the master's verdict is behind us.
            assert (await world.send(one)).code == 0
            await caught_up(one, two)
            two.pair.copied.judged("the log here differs")
            answer = await tell(world, two, brokerRole="ASYNC_MASTER")
            assert answer.code == ResponseCode.INVALID_PARAMETER
            assert "the log here differs" in (answer.remark or "")
            assert two.duties.held == SLAVE

    run(tmp_path, story)


def test_a_port_that_is_taken_makes_a_slave_again(tmp_path: Path) -> None:
    async def story(world: PairWorld) -> None:
        async with world.master() as one:
            taken = one.identity.ha_address.rpartition(":")[2]
            async with world.slave(None, "slave", haListenPort=taken) as two:
                await world.send(one)
                await caught_up(one, two)
                answer = await tell(world, two, brokerRole="ASYNC_MASTER")
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert "cannot listen for slaves" in (answer.remark or "")
                assert two.duties.held == SLAVE
                await world.send(one)
                await caught_up(one, two)

    run(tmp_path, story)


def test_the_role_is_written_into_the_file_of_settings(tmp_path: Path) -> None:
    async def story(world: PairWorld) -> None:
        file = tmp_path / "broker.conf"
        config = dataclasses.replace(broker_config(tmp_path / "one", world.name_servers), file=file)
        one = broker_app.build(config)
        async with one.app:
            assert (await tell(world, one, brokerRole="SLAVE", brokerId="4")).code == 0
            said = read_properties(file.read_bytes())
            assert (said["brokerRole"], said["brokerId"]) == ("SLAVE", "4")
            assert (await tell(world, one, brokerRole="ASYNC_MASTER")).code == 0
            said = read_properties(file.read_bytes())
            assert (said["brokerRole"], said["brokerId"]) == ("ASYNC_MASTER", "0")
            file.unlink()
            file.mkdir()
            answer = await tell(world, one, brokerRole="SLAVE", brokerId="4")
            assert "nothing has changed" in (answer.remark or "")
            assert one.duties.held == MASTER
            assert (await world.send(one)).code == 0

    run(tmp_path, story)


def leads(broker: Broker) -> Callable[[], bool]:
    """Return what tells whether a slave is connected."""
    return lambda: bool(broker.pair.master.slaves)


def test_a_pair_over_tls_changes_places_and_back(tmp_path: Path) -> None:
    """The port for slaves and the link to a master made while running speak TLS as at the start."""
    tls = over_tls(tmp_path)

    async def story(world: PairWorld) -> None:
        async with world.master(**tls) as one, world.slave(None, **tls) as two:
            leader, follower = one, two
            for turn in range(4):
                sent = await world.send(leader, b"%d" % turn)
                assert (sent.code, (sent.ext or {})["queueOffset"]) == (0, str(turn))
                await caught_up(leader, follower)
                assert await speaks_tls(leader.identity.ha_address)
                assert (await tell(world, leader, brokerRole="SLAVE", brokerId="1")).code == 0
                assert (await tell(world, follower, brokerRole="ASYNC_MASTER")).code == 0
                leader, follower = follower, leader
                await until(leads(leader), "the old master follows")
            await caught_up(leader, follower)

    run(tmp_path, story)


async def speaks_tls(address: str) -> bool:
    """Tell whether a port answers a TLS client with a certificate."""
    host, _, port = address.rpartition(":")
    get = functools.partial(ssl.get_server_certificate, (host, int(port)), timeout=20)
    return "BEGIN CERTIFICATE" in await asyncio.to_thread(get)


def test_an_account_that_is_no_administrator_does_not_change_roles(tmp_path: Path) -> None:
    accounts = tmp_path / "conf" / "plain_acl.yml"
    accounts.parent.mkdir()
    accounts.touch(0o600)
    accounts.write_text(ACCOUNTS)
    guarded = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}

    async def story(world: PairWorld) -> None:
        async with world.master(**guarded) as one:
            address = one.identity.address
            own = OWN.sign(send_command("Own", b"x"))
            assert (await world.client.call(address, own, 20.0)).code == 0
            for settings in ({"brokerRole": "SLAVE", "brokerId": "1"}, {"brokerId": "0"}):
                body = write_properties(settings)
                command = Command(RequestCode.UPDATE_BROKER_CONFIG, body=body)
                answers = [
                    await world.client.call(address, asked, 20.0)
                    for asked in (OWN.sign(command), command)
                ]
                assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_ERROR] * 2
                assert "Need admin permission" in (answers[0].remark or "")
                assert "No accessKey is configured" in (answers[1].remark or "")
            assert one.duties.held == MASTER
            assert (one.duties.changes, one.duties.failures) == (0, 0)
            body = write_properties({"brokerRole": "SLAVE", "brokerId": "1"})
            asked = OPERATOR.sign(Command(RequestCode.UPDATE_BROKER_CONFIG, body=body))
            assert (await world.client.call(address, asked, 20.0)).code == 0
            assert one.duties.held == SLAVE

    run(tmp_path, story)
