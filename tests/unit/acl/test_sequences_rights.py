"""Appends in sequence are sends: the right to send to the topic decides, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import roquet
from remoting_harness import on_loop
from roquet.base.errors import Refused
from roquet.client import Credentials, SequencedPart
from roquet.model.queue import MessageQueue
from roquet.protocol.messages import batch
from roquet.protocol.messages.sequences import START
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from pathlib import Path

ACCOUNTS = """\
accounts:
- {accessKey: the-admin, secretKey: secret-of-admin, admin: true}
- accessKey: the-writer
  secretKey: secret-of-writer
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [orders=PUB]
- accessKey: the-reader
  secretKey: secret-of-reader
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [orders=SUB]
"""
PART = SequencedPart("orders", batch.encode([(0, b"x", b"")]), "p", 0, 0, START)


@on_loop
async def test_who_may_send_to_a_topic_may_append_in_sequence(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf" / "plain_acl.yml"
    file.touch(0o600)
    file.write_text(ACCOUNTS)
    async with cluster(tmp_path, aclEnable="true", rocketmqHome=str(tmp_path)) as it:
        url = f"rmq://{it.name_servers}"

        async def attempt(who: str, topic: str) -> int:
            credentials = Credentials(f"the-{who}", f"secret-of-{who}")
            async with roquet.connect(url, credentials=credentials) as mq:
                queue, writer = MessageQueue(topic, "broker-a", 0), mq.sequences("writers")
                await writer.known(queue, "p")
                return (await writer.send(PART._replace(topic=topic), queue)).added

        async with roquet.connect(
            url, credentials=Credentials("the-admin", "secret-of-admin")
        ) as mq:
            for topic in ("orders", "others"):
                await mq.admin().topics.create(topic, queues=1)
        assert await attempt("writer", "orders") == 1
        for who, topic in (("writer", "others"), ("reader", "orders"), ("nobody", "orders")):
            with pytest.raises(Refused) as refused:
                await attempt(who, topic)
            assert refused.value.code == 1
        assert await attempt("admin", "orders") == 0
        assert it.broker.store.native.next_offset("orders", 0) == 1
        assert it.broker.store.native.next_offset("others", 0) == 0
