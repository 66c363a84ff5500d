"""A projected pull is a pull: the rights to topic and group decide, whatever it leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remoting_harness import on_loop
from roquet import connect
from roquet import roquet_native as native
from roquet.acl.credentials import Credentials
from roquet.client import Message
from roquet.testing.cluster import cluster, pull_command

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.protocol.command import Command

ACCOUNTS = """\
accounts:
- {accessKey: the-admin, secretKey: secret-of-admin, admin: true}
- accessKey: the-reader
  secretKey: secret-of-reader
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [orders=SUB]
  groupPerms: [readers=SUB]
- accessKey: the-writer
  secretKey: secret-of-writer
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [orders=PUB]
  groupPerms: [readers=SUB]
"""
ADMIN = Credentials("the-admin", "secret-of-admin")
READER = Credentials("the-reader", "secret-of-reader")
WRITER = Credentials("the-writer", "secret-of-writer")


@pytest.mark.parametrize("fast", ["true", "false"])
@on_loop
async def test_who_may_pull_may_pull_a_projection_and_nobody_else(
    tmp_path: Path, fast: str
) -> None:
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf" / "plain_acl.yml"
    file.touch(0o600)
    file.write_text(ACCOUNTS)
    settings = {"aclEnable": "true", "rocketmqHome": str(tmp_path), "fastPathEnable": fast}
    async with cluster(tmp_path, **settings) as it:

        async def pull(who: Credentials, topic: str, **fields: str) -> Command:
            return await it.call(who.sign(pull_command(topic, **fields)))

        async with connect(f"rmq://{it.name_servers}", credentials=ADMIN) as mq:
            for topic in ("orders", "others"):
                await mq.admin().topics.create(topic, queues=1)
            async with mq.producer("p") as producer:
                for topic in ("orders", "others"):
                    await producer.send(Message(topic, b"a body that is long"))
            while (await pull(ADMIN, "others")).code != 0:
                pass
        plain = await pull(READER, "orders")
        assert plain.code == 0
        for text in ("headers", "properties", "properties:KEYS"):
            answer = await pull(READER, "orders", projection=text)
            assert answer.code == 0
            assert answer.body == native.project_records(plain.body, text)
            for who, topic in ((READER, "others"), (WRITER, "orders"), (WRITER, "others")):
                refused, usual = [await pull(who, topic, **it) for it in ({"projection": text}, {})]
                assert refused.code == usual.code == 1
                assert not refused.body
        # Who may not read learns nothing of a wrong value either.
        assert (await pull(WRITER, "orders", projection="body")).code == 1
