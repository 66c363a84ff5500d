"""What the tests of light topics share: parents, groups, and requests as proxies send them."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from broker_harness import dispatched, ext, play, records
from pop_harness import now_ms
from roquet.base.clock import SystemClock
from roquet.base.overriding import override
from roquet.broker.light.facts import LightFacts
from roquet.broker.light.rules import LightTopicConfig
from roquet.broker.light.subscriptions import LightSubscriptions
from roquet.broker.light.upkeep import LightUpkeep
from roquet.broker.pop.receive.orders import PopOrders
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.light import light_topics
from roquet.protocol.light.light_queues import offset_in
from roquet.protocol.pop.handle import ReceiptHandle
from roquet.store.light_queues import LightQueueStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from roquet.store.records import Record
    from roquet.testing.cluster import Cluster

ON = {"enableLmq": "true", "enableMultiDispatch": "true"}
PARENT, GROUP, CLIENT = "chats", "chatters", "client-1"


def queue(name: str) -> str:
    """Return the queue of a light topic of the parent."""
    return light_topics.queue_of(PARENT, name)


def playing(folder: Path, tell: Callable[[Cluster], Awaitable[None]], **changes: str) -> None:
    """Run a cluster with light queues while `tell` is told."""
    play(folder, tell, **{**ON, **changes})


async def put_parent(it: Cluster, topic: str = PARENT, **attributes: str) -> None:
    """Make a parent topic."""
    given = {"message.type": "LITE", **attributes}
    command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=topic_fields(topic, **given))
    answer = await it.call(command)
    assert answer.code == 0, answer.remark


def topic_fields(topic: str, /, **attributes: str) -> dict[str, str]:
    """Return the fields of a request for a topic."""
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": ",".join(f"+{key}={value}" for key, value in attributes.items()),
    }


async def put_group(it: Cluster, group: str = GROUP, /, **attributes: str) -> None:
    """Make or change a group that is bound to the parent."""
    given = {"lite.bind.topic": PARENT, **attributes}
    body = {"groupName": group, "attributes": {f"+{key}": value for key, value in given.items()}}
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    answer = await it.call(Command(code, body=json.dumps(body).encode()))
    assert answer.code == 0, answer.remark


def light_properties(name: str, **more: str) -> str:
    """Return the properties of a message of a light topic."""
    return props.write({props.LITE_TOPIC: name, **more})


async def send(it: Cluster, name: str, *bodies: bytes, parent: str = PARENT) -> None:
    """Send messages to a light topic, and wait until they can be read."""
    for body in bodies:
        answer = await it.send(parent, body, properties=light_properties(name))
        assert answer.code == 0, answer.remark
    await dispatched(it)


def ctl_command(action: str, names: Sequence[str] = (), /, **fields: Any) -> Command:
    """Return a change of the subscription of a client (200071)."""
    entry = {
        "action": action,
        "clientId": CLIENT,
        "group": GROUP,
        "topic": PARENT,
        "liteTopicSet": list(names),
        "version": 1,
        **fields,
    }
    body = json.dumps({"subscriptionSet": [entry]}).encode()
    return Command(RequestCode.LITE_SUBSCRIPTION_CTL, ext={}, body=body)


async def subscribe(it: Cluster, *names: str, **fields: Any) -> None:
    """Add light topics to the subscription of a client."""
    answer = await it.call(ctl_command("PARTIAL_ADD", names, **fields))
    assert answer.code == 0, answer.remark


def pop_command(**fields: str) -> Command:
    """Return a pop of the client's light topics that does not wait (200070)."""
    given = {
        "clientId": CLIENT,
        "consumerGroup": GROUP,
        "topic": PARENT,
        "maxMsgNum": "32",
        "invisibleTime": "60000",
        "pollTime": "0",
        "bornTime": str(now_ms()),
        **fields,
    }
    return Command(RequestCode.POP_LITE_MESSAGE, ext=given)


@dataclasses.dataclass(frozen=True)
class LightPop:
    """The answer to a pop, as the Java client reads it."""

    code: int
    ext: dict[str, str]
    records: list[Record]
    handles: list[tuple[str, ReceiptHandle]]
    """Light topic and receipt handle of each record."""

    @property
    def bodies(self) -> list[bytes]:
        """Return the bodies."""
        return [record.body for record in self.records]

    @property
    def counts(self) -> list[int]:
        """Return how often each message was delivered before."""
        text = self.ext.get("orderCountInfo", "")
        return [int(one) for one in text.split(";")] if text else []


def popped(answer: Command, broker_name: str = "broker-a") -> LightPop:
    """Read the answer to a pop."""
    fields = ext(answer)
    handles: list[tuple[str, ReceiptHandle]] = []
    for record in records(answer):
        said = props.read(record.properties)
        found = light_topics.split(said[props.INNER_MULTI_DISPATCH])
        offset = offset_in(said[props.INNER_MULTI_DISPATCH], said)
        assert found is not None
        assert offset is not None
        handle = ReceiptHandle(
            start_offset=offset,
            pop_time_ms=int(fields["popTime"]),
            invisible_ms=int(fields["invisibleTime"]),
            revive_queue=int(fields["reviveQid"]),
            retry_flag="0",
            broker_name=broker_name,
            queue_id=0,
            queue_offset=offset,
        )
        handles.append((found[1], handle))
    return LightPop(int(answer.code), fields, records(answer), handles)


async def pop(it: Cluster, **fields: str) -> LightPop:
    """Pop once."""
    return popped(await it.call(pop_command(**fields)))


def ack_command(taken: tuple[str, ReceiptHandle], **fields: str) -> Command:
    """Return the acknowledgement of a message of a light topic (200051)."""
    name, handle = taken
    given = {
        "consumerGroup": GROUP,
        "topic": PARENT,
        "queueId": "0",
        "extraInfo": handle.encode(),
        "offset": str(handle.queue_offset),
        "liteTopic": name,
        **fields,
    }
    return Command(RequestCode.ACK_MESSAGE, ext=given)


async def ack(it: Cluster, *taken: tuple[str, ReceiptHandle]) -> None:
    """Acknowledge messages."""
    for one in taken:
        answer = await it.call(ack_command(one))
        assert answer.code == 0, answer.remark


class LaterClock(SystemClock):
    """A clock that runs ahead."""

    def __init__(self, ahead_ms: int) -> None:
        super().__init__()
        self._ahead_ms = ahead_ms

    @override
    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


def light_upkeep(it: Cluster, clock: SystemClock) -> LightUpkeep:
    """Return an upkeep over the broker's tables that sees another time."""
    tables = it.broker.metadata
    return LightUpkeep(
        LightFacts(tables.topics, tables.groups),
        LightSubscriptions(),
        store=LightQueueStore(it.broker.store),
        offsets=tables.offsets,
        orders=PopOrders(None, clock),
        deletions=tables.deletions,
        leaving=set(),
        rules=LightTopicConfig(idle_min_ms=0),
        clock=clock,
    )
