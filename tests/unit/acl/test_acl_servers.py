"""Accounts on real servers: who is let in, changes of the files, tools, and no secret anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from functools import partial
from typing import TYPE_CHECKING

import pytest

import roquet
from remoting_harness import on_loop, until
from roquet.acl.credentials import Credentials
from roquet.acl.files import accounts_path
from roquet.base.clock import SystemClock
from roquet.base.config import as_properties
from roquet.base.errors import Refused, UsageError
from roquet.broker import app as broker_app
from roquet.broker.config import BrokerConfig, load_config
from roquet.model.queue import MessageQueue
from roquet.model.subscription import SubscriptionData
from roquet.namesrv import app as namesrv_app
from roquet.namesrv.config import NamesrvConfig, Settings
from roquet.namesrv.config import load_config as load_namesrv
from roquet.protocol.bodies.clients import CheckClient, ConsumerData, HeartbeatData
from roquet.protocol.bodies.locks import LockRequest
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.testing.cluster import TINY, pull_command, send_command

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

CANARY = "canary-secret-key"
USER = Credentials("user-one", f"{CANARY}-user")
ADMIN = Credentials("admin-one", f"{CANARY}-admin")
STRANGER = Credentials("user-one", "not-the-secret")

ACCOUNTS = f"""\
accounts:
- accessKey: {USER.access_key}
  secretKey: {USER.secret_key}
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [orders=PUB|SUB, readable=SUB]
- accessKey: {ADMIN.access_key}
  secretKey: {ADMIN.secret_key}
  admin: true
"""

WRITES = {
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_IN_SEQUENCE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.PULL_MESSAGE,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
}
"""What takes messages, hands them out, or changes tables."""


@dataclasses.dataclass
class Guarded:
    """A name server and a broker that ask for accounts."""

    folder: Path
    accounts: Path
    name_server: namesrv_app.NameServer
    broker: broker_app.Broker
    client: Client

    @property
    def address(self) -> str:
        return self.broker.identity.address

    @property
    def url(self) -> str:
        return f"rmq://127.0.0.1:{self.name_server.server.port}"

    async def call(self, command: Command, who: Credentials | None = None) -> Command:
        sent = command if who is None else who.sign(command)
        return await self.client.call(self.address, sent, 20.0)

    async def stored(self, count: int) -> None:
        """Wait until so many messages of `orders` can be read."""
        await until(lambda: self.broker.store.max_offset("orders", 0) == count, 60)


@contextlib.asynccontextmanager
async def guarded(folder: Path, **changes: str) -> AsyncGenerator[Guarded]:
    (folder / "conf").mkdir(parents=True)
    accounts = folder / "conf" / "plain_acl.yml"
    accounts.touch(0o600)
    accounts.write_text(ACCOUNTS)
    names = {
        "listenPort": "0",
        "bindAddress": "127.0.0.1",
        "aclEnable": "true",
        "rocketmqHome": str(folder),
        "kvConfigPath": str(folder / "kv.json"),
        "configStorePath": str(folder / "ns.properties"),
    }
    config, _ = load_namesrv(None, {}, dict(names))
    name_server = namesrv_app.build(Settings(config), SystemClock())
    async with name_server.app:
        flags = {
            **TINY,
            "aclEnable": "true",
            "rocketmqHome": str(folder),
            "storePathRootDir": str(folder / "store"),
            "storePathCommitLog": str(folder / "store" / "commitlog"),
            "namesrvAddr": f"127.0.0.1:{name_server.server.port}",
            "brokerName": "broker-a",
            **changes,
        }
        env = {"ROQUET_ACCESS_KEY": ADMIN.access_key, "ROQUET_SECRET_KEY": ADMIN.secret_key}
        settings, report = load_config(None, env, dict(flags))
        assert not report.unknown
        broker = broker_app.build(settings)
        client = Client(clock=SystemClock())
        async with broker.app:
            await client.start()
            try:
                yield Guarded(folder, accounts, name_server, broker, client)
            finally:
                await client.stop()


def files_below(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def code_of(answer: Command) -> tuple[int, str]:
    return answer.code, (answer.remark or "").removeprefix(
        "org.apache.rocketmq.acl.common.AclException: "
    )


@on_loop
async def test_only_who_may_is_served(tmp_path: Path) -> None:
    async with guarded(tmp_path) as it:
        send = send_command("orders", b"x")
        assert code_of(await it.call(send)) == (1, "No accessKey is configured")
        wrong = "Check signature failed for accessKey=user-one"
        assert code_of(await it.call(send, STRANGER)) == (1, wrong)
        assert (await it.call(send, USER)).code == 0
        denied = send_command("readable", b"x")
        said = "No default permission for topic:readable"
        assert code_of(await it.call(denied, USER)) == (1, said)
        await it.stored(1)
        assert (await it.call(pull_command("orders"), USER)).code == 0
        topic = Command(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {
                "topic": "fresh",
                "defaultTopic": "TBW102",
                "readQueueNums": "1",
                "writeQueueNums": "1",
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
            },
        )
        assert "Need admin permission" in code_of(await it.call(topic, USER))[1]
        assert (await it.call(topic, ADMIN)).code == 0


@on_loop
async def test_bodies_of_34_41_42_and_46_need_the_rights_on_what_they_name(tmp_path: Path) -> None:
    """The guard does not read them: each processor asks once it has read the body in slices."""

    def beat(group: str, topic: str) -> bytes:
        wanted = SubscriptionData(topic=topic, expression="*", version=1)
        consumer = ConsumerData(group=group, subscriptions=(wanted,))
        return HeartbeatData(client_id="c", consumers=(consumer,)).encode()

    def locks(topic: str) -> bytes:
        queues = frozenset({MessageQueue(topic, "broker-a", 0)})
        return LockRequest(client_id="c", group="g", queues=queues).encode()

    def check(topic: str) -> bytes:
        wanted = SubscriptionData(topic=topic, expression="*", version=1)
        return CheckClient(client_id="c", group="g", subscription=wanted).encode()

    async with guarded(tmp_path) as it:
        for code, body_of in ((34, partial(beat, "g")), (41, locks), (42, locks), (46, check)):
            allowed = await it.call(Command(code, {}, body_of("readable")), USER)
            assert allowed.code == 0, (code, allowed.remark)
            denied = await it.call(Command(code, {}, body_of("secret")), USER)
            assert code_of(denied) == (1, "No default permission for topic:secret"), code
            broken = await it.call(Command(code, {}, b"{"), USER)
            assert broken.code == 1, code
        # A refused heartbeat has joined no group, and one of nobody is not even read.
        assert it.broker.metadata.groups.get("g") is not None
        nobody = await it.call(Command(34, {}, beat("g", "readable")))
        assert code_of(nobody) == (1, "No accessKey is configured")


@on_loop
async def test_accounts_are_listed_changed_and_deleted_by_an_administrator_alone(
    tmp_path: Path,
) -> None:
    async with (
        guarded(tmp_path) as it,
        roquet.connect(it.url, credentials=ADMIN) as mq,
        roquet.connect(it.url, credentials=USER) as user,
    ):
        accounts = mq.admin().accounts
        broker = it.broker.identity.name
        known = {each.access_key: each for each in await accounts.list_of(broker)}
        assert known.keys() == {USER.access_key, ADMIN.access_key}
        assert known[ADMIN.access_key].admin
        assert known[USER.access_key].topics == ("orders=PUB|SUB", "readable=SUB")
        assert CANARY not in repr(known)
        made = {"accessKey": "made-key", "secretKey": "made-secret", "topicPerms": "t=PUB"}
        with pytest.raises(Refused):
            await user.admin().accounts.put(made)
        await accounts.put(made)
        found = {each.access_key: each for each in await accounts.list_of(broker)}
        assert found["made-key"].topics == ("t=PUB",)
        assert "made-secret" not in repr(found)
        await accounts.delete("made-key")
        assert len(await accounts.list_of(broker)) == 2
        with pytest.raises(Refused) as caught:
            await accounts.delete("made-key")
        assert caught.value.code == 210
        await accounts.set_white_list(("10.9.8.7",))
        with pytest.raises(Refused):
            await accounts.set_white_list(("no address",))
        with pytest.raises(Refused):
            await user.admin().accounts.list_of(broker)


@on_loop
async def test_our_client_signs_and_a_broker_registers_at_a_guarded_name_server(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as it:
        async with roquet.connect(it.url, credentials=ADMIN) as admin:
            await admin.admin().topics.create("orders")
        async with roquet.connect(it.url, credentials=USER) as mq:
            async with mq.producer("makers") as producer:
                for number in range(20):
                    await producer.send("orders", b"%d" % number)
                with pytest.raises(Refused, match="No default permission"):
                    await producer.send("readable", b"x")
            found: list[bytes] = []
            consumer = mq.consumer("takers", ["orders"], start="earliest")
            async with asyncio.timeout(30), consumer:
                async for message in consumer:
                    found.append(message.body)
                    message.ack()
                    if len(found) == 20:
                        break
            assert sorted(found) == sorted(b"%d" % number for number in range(20))
        async with roquet.connect(it.url) as nobody:
            with pytest.raises(Refused, match="No accessKey is configured"):
                await nobody.admin().topics.route("orders")
        assert it.broker.store.max_offset("orders", 0) >= 0


@on_loop
async def test_signed_sends_and_pulls_are_answered_natively_by_the_accounts_in_force(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as it:
        plain = send_command("orders", b"x", 0, "UNIQ_KEY\x01u\x02")
        assert (await it.call(send_command("orders", b"x"), USER)).code == 0

        async def natively(command: Command, who: Credentials | None, what: str) -> Command:
            before = it.broker.path.native.counters()[what]
            answer = await it.call(command, who)
            assert it.broker.path.native.counters()[what] == before + 1, answer.remark
            return answer

        assert (await natively(plain, USER, "sends")).code == 0
        await it.stored(2)
        assert (await it.call(pull_command("orders"), USER)).code == 0
        pull = pull_command("orders")
        assert (await natively(pull, USER, "pulls")).code == 0
        # Not signed, or not allowed: the guard's words, and nothing is stored.
        wrong = "Check signature failed for accessKey=user-one"
        assert code_of(await natively(plain, STRANGER, "passed")) == (1, wrong)
        keys = {"accessKey": USER.access_key, "secretKey": USER.secret_key}
        denied = {**keys, "topicPerms": "orders=SUB", "defaultGroupPerm": "SUB"}
        assert (await it.call(Command(50, denied), ADMIN)).code == 0
        said = "No default permission for topic:orders"
        assert code_of(await natively(plain, USER, "passed")) == (1, said)
        assert (await natively(pull, USER, "pulls")).code == 0
        assert (await it.call(Command(51, {"accessKey": USER.access_key}), ADMIN)).code == 0
        assert code_of(await natively(pull, USER, "passed")) == (1, wrong)
        # A peer of the white list needs no account at all.
        assert (await it.call(Command(53, {"globalWhiteAddrs": "127.0.0.1"}), ADMIN)).code == 0
        answer = await natively(plain, None, "sends")
        assert (answer.code, (answer.ext or {})["queueOffset"]) == (0, "2")


@on_loop
async def test_cve_2024_23321_every_code_asks_who_it_is(tmp_path: Path) -> None:
    """CVE-2024-23321: each code by nobody, a user and an administrator."""
    async with guarded(tmp_path) as it:
        for code in RequestCode:
            anonymous = await it.call(Command(code))
            assert code_of(anonymous) == (1, "No accessKey is configured"), code.name
        for number in range(50, 55):
            answer = await it.call(Command(number, {"accessKey": "hacker-one"}), USER)
            assert "Need admin permission" in code_of(answer)[1]
        shown = await it.call(Command(54), ADMIN)
        assert shown.code == 0
        assert b"user-one" in shown.body
        assert CANARY.encode() not in shown.body


@pytest.mark.parametrize("native", ["true", "false"])
def test_11182_what_may_be_read_may_not_be_written_for_that(tmp_path: Path, native: str) -> None:
    """The same key, connection and topic: each request is judged by what it asks for."""

    async def main() -> None:
        async with guarded(tmp_path, fastPathEnable=native) as it:
            send = send_command("readable", b"x", 0, "UNIQ_KEY\x01u\x02")
            said = "No default permission for topic:readable"
            assert (await it.call(send, ADMIN)).code == 0
            await until(lambda: it.broker.store.max_offset("readable", 0) == 1, 60)
            for _ in range(3):
                # Read first, then send; and the next time round the other way.
                assert (await it.call(pull_command("readable"), USER)).code == 0
                assert code_of(await it.call(send, USER)) == (1, said)
                assert code_of(await it.call(send, USER)) == (1, said)
                assert (await it.call(pull_command("readable"), USER)).code == 0
            for command in (
                Command(RequestCode.GET_MAX_OFFSET, {"topic": "readable", "queueId": "0"}),
                Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "readable"}),
            ):
                deletes = command.code == RequestCode.DELETE_TOPIC_IN_BROKER
                assert ((await it.call(command, USER)).code == 0) != deletes
            assert it.broker.store.max_offset("readable", 0) == 1
            counters = it.broker.path.native.counters()
            assert (counters["pulls"] > 0) == (native == "true")

    asyncio.run(main())


@on_loop
async def test_8046_11082_no_fields_and_blank_topics_are_no_way_in(tmp_path: Path) -> None:
    """Without extFields, with a blank topic, with fields beside the point: nobody gets in."""
    unsigned: tuple[dict[str, str] | None, ...] = (
        None,
        {},
        {"topic": ""},
        {"topic": " ", "consumerGroup": "", "queueId": "0"},
        {"unheard": "of"},
        {"AccessKey": "", "Signature": ""},
        {"AccessKey": ADMIN.access_key},
        {"AccessKey": ADMIN.access_key, "Signature": ""},
    )
    blank: tuple[dict[str, str], ...] = (
        {},
        {"topic": ""},
        {"topic": " "},
        {"topic": " ", "consumerGroup": " "},
    )
    async with guarded(tmp_path) as it:
        before = files_below(tmp_path / "store" / "config")
        served = {code for route in it.broker.routes for code in route.codes}
        for code in RequestCode:
            for ext in unsigned:
                answer = await it.call(Command(code, ext))
                assert answer.code == 1, (code.name, ext)
                assert not answer.body, (code.name, ext)
        for code in WRITES & served:
            for ext in blank:
                answer = await it.call(Command(code, ext, b"x"), USER)
                assert answer.code != 0, (code.name, ext)
        assert files_below(tmp_path / "store" / "config") == before


@on_loop
async def test_tools_change_accounts_at_once_and_durably(tmp_path: Path) -> None:
    made = {
        "accessKey": "made-by-tool",
        "secretKey": f"{CANARY}-made",
        "admin": "false",
        "topicPerms": "orders=PUB,a=SUB",
    }
    fresh = Credentials("made-by-tool", f"{CANARY}-made")
    async with guarded(tmp_path) as it:
        assert (await it.call(Command(50, made), ADMIN)).code == 0
        assert (await it.call(send_command("orders", b"x"), fresh)).code == 0
        denied = {**made, "topicPerms": "orders=DENY"}
        assert (await it.call(Command(50, denied), ADMIN)).code == 0
        assert (await it.call(send_command("orders", b"x"), fresh)).code == 1
        versions = (await it.call(Command(52), ADMIN)).ext or {}
        assert versions["brokerName"] == "broker-a"
        assert '"counter":2' in versions["allAclFileVersion"]
        assert (await it.call(Command(51, {"accessKey": "made-by-tool"}), ADMIN)).code == 0
        assert (await it.call(send_command("orders", b"x"), fresh)).code == 1
        gone = await it.call(Command(51, {"accessKey": "made-by-tool"}), ADMIN)
        assert gone.code == 210
        white = {"globalWhiteAddrs": "127.0.0.1,10.9.*.*"}
        assert (await it.call(Command(53, white), ADMIN)).code == 0
        assert (await it.call(send_command("anything", b"x"))).code == 0
        assert "10.9.*.*" in it.accounts.read_text()
        assert it.accounts.stat().st_mode & 0o777 == 0o600


@on_loop
async def test_b12_bad_changes_by_tools_change_nothing(tmp_path: Path) -> None:
    async with guarded(tmp_path) as it:
        before = it.accounts.read_bytes()
        good = {"accessKey": "made-by-tool", "secretKey": f"{CANARY}-made"}
        for change, said in (
            ({"accessKey": "short"}, "longer than 6"),
            ({"secretKey": "canary"}, "longer than 6"),
            ({"topicPerms": "a=XX"}, "The expected permissions are"),
            ({"topicPerms": "a"}, "The expected resource is"),
            ({"whiteRemoteAddress": "0.0.0.0/0"}, "Netaddress examine Exception"),
            ({"accessKey": "k" * 900_000}, "at most 1024"),
        ):
            answer = await it.call(Command(50, {**good, **change}), ADMIN)
            assert answer.code == 209
            assert said in (answer.remark or "")
            assert "canary" not in (answer.remark or "")
        for file in ("/etc/passwd", str(it.folder / "conf" / ".." / "conf" / "plain_acl.yml")):
            asked = {"globalWhiteAddrs": "1.2.3.4", "aclFileFullPath": file}
            assert (await it.call(Command(53, asked), ADMIN)).code == 211
        assert it.accounts.read_bytes() == before


@on_loop
async def test_a_changed_file_is_used_and_a_broken_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    second = Credentials("second-file", f"{CANARY}-second")
    send = send_command("orders", b"x")
    async with guarded(tmp_path) as it:
        folder = it.folder / "conf" / "acl" / "deeper"
        folder.mkdir(parents=True)
        entry = f"{{accessKey: second-file, secretKey: {second.secret_key}"
        (folder / "more.yml").write_text(f"accounts:\n- {entry}, topicPerms: [orders=PUB]}}\n")

        async def taken(who: Credentials) -> bool:
            return (await it.call(send, who)).code == 0

        async def eventually(who: Credentials, wanted: bool) -> None:
            async with asyncio.timeout(20):
                while await taken(who) is not wanted:  # noqa: ASYNC110  (a file sets no event)
                    await asyncio.sleep(0.05)

        await eventually(second, wanted=True)
        it.accounts.write_text("accounts: [")
        await until(lambda: "accounts stay as they were" in caplog.text, 20)
        assert await taken(USER)
        it.accounts.write_text(ACCOUNTS.replace(USER.secret_key, "another-secret"))
        await eventually(USER, wanted=False)
        (folder / "more.yml").unlink()
        await eventually(second, wanted=False)
    assert CANARY not in caplog.text


@on_loop
async def test_9446_7347_no_secret_in_logs_answers_or_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answers: list[str] = []
    async with guarded(tmp_path) as it:
        made = {"accessKey": "made-by-tool", "secretKey": f"{CANARY}-made"}
        for who in (USER, ADMIN, STRANGER, None):
            asked = [Command(code, {}) for code in RequestCode]
            asked += [Command(50, dict(made)), Command(50, {**made, "topicPerms": "x"})]
            asked.append(send_command("orders", b"x"))
            answers += [repr(await it.call(command, who)) for command in asked]
        config = it.broker.app
        assert CANARY not in repr(config)
    assert CANARY not in caplog.text
    assert CANARY not in "".join(answers)
    files = files_below(tmp_path)
    assert len(files) > 5
    keeper = tmp_path / "conf" / "plain_acl.yml"
    assert [path for path, data in files.items() if CANARY.encode() in data] == [keeper]


def test_the_settings_say_where_the_accounts_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"needs rocketmq\.acl\.plain\.file"):
        load_config(None, {}, {"aclEnable": True})
    conf = tmp_path / "broker.conf"
    conf.write_text("aclEnable=true\n")
    config, _ = load_config(conf, {"ROQUET_ACCESS_KEY": "key", "ROQUET_SECRET_KEY": CANARY}, {})
    assert CANARY not in repr(config) + str(as_properties(config))
    broker = broker_app.build(config)

    async def start() -> None:
        async with broker.app:
            pass

    with pytest.raises(UsageError, match=r"there is no .*plain_acl\.yml"):
        asyncio.run(start())
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(
        "accounts:\n- {accessKey: somebody, secretKey: something-long}\n"
    )
    conf.write_text(f"aclEnable=true\nrocketmqHome={home}\n")
    config, _ = load_config(conf, {}, {})
    assert accounts_path(config.acl, config.file) == home / "conf" / "plain_acl.yml"
    assert not BrokerConfig().acl.enabled
    assert not NamesrvConfig().acl.enabled


@pytest.mark.parametrize("way", ["denied", "deleted", "another secret"])
@on_loop
async def test_request_that_waits_is_judged_again_when_a_message_comes(
    tmp_path: Path, way: str
) -> None:
    made = {
        "accessKey": "made-by-tool",
        "secretKey": f"{CANARY}-made",
        "admin": "false",
        "topicPerms": "orders=SUB",
    }
    fresh = Credentials("made-by-tool", f"{CANARY}-made")
    changes = {
        "denied": Command(50, {**made, "topicPerms": "orders=DENY"}),
        "deleted": Command(51, {"accessKey": "made-by-tool"}),
        "another secret": Command(50, {**made, "secretKey": f"{CANARY}-another"}),
    }
    pull = pull_command("orders", 1, sysFlag="6", suspendTimeoutMillis="60000")
    async with guarded(tmp_path, timerWheelEnable="true") as it:
        assert (await it.call(Command(50, {**made, "groupPerms": "readers=SUB"}), ADMIN)).code == 0
        assert (await it.call(send_command("orders", b"x"), ADMIN)).code == 0
        await it.stored(1)
        # Made here: a pop that was born long before it arrives is refused (210).
        pop = {
            "consumerGroup": "readers",
            "topic": "orders",
            "queueId": "0",
            "maxMsgNums": "1",
            "invisibleTime": "60000",
            "pollTime": "60000",
            "bornTime": str(SystemClock().now_ms()),
            "initMode": "1",
            "order": "false",
        }
        # The group begins at the end of the topic: nothing is there for the pops that wait.
        first = Command(RequestCode.POP_MESSAGE, {**pop, "pollTime": "0"})
        assert (await it.call(first, fresh)).code != 210
        waiting = [
            asyncio.create_task(it.call(command, fresh))
            for command in (
                pull,
                Command(RequestCode.POP_MESSAGE, pop),
                Command(RequestCode.NOTIFICATION, pop),
            )
        ]
        # The lane takes one after the other: what is behind them has been answered.
        assert (await it.call(pull_command("orders", 1), fresh)).code == 19
        assert not any(task.done() for task in waiting)
        assert (await it.call(changes[way], ADMIN)).code == 0
        for _ in range(2):
            assert (await it.call(send_command("orders", b"secret"), ADMIN)).code == 0
        for answer in await asyncio.gather(*waiting):
            assert (answer.code, answer.body) == (1, b""), answer.remark
