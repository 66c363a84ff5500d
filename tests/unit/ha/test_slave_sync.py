"""What a slave copies beside the log, told by a master that is made of answers."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from roquet.base.errors import Unreachable
from roquet.broker.app import build
from roquet.broker.replication.slave_sync import SlaveSync
from roquet.broker.state import BrokerState
from roquet.model.data_version import DataVersion
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.request_mode import GroupRequestMode, RequestMode
from roquet.model.topic import TopicConfig
from roquet.protocol.bodies.assignments import RequestModeTable
from roquet.protocol.bodies.groups import GroupTableBody
from roquet.protocol.bodies.offsets import ConsumerOffsetBody, DelayOffsetBody
from roquet.protocol.bodies.topics import TopicTableBody
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.testing.clock import FakeClock
from roquet.testing.cluster import broker_config

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.broker.metadata import Metadata


class Master:
    """Answers with the bodies it was given."""

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {}
        self.away = False

    async def call(self, address: str, command: Command, timeout_s: float = 3.0) -> Command:
        assert (address, timeout_s) == ("master:1", 5.0)
        if self.away:
            raise Unreachable("away")
        body = self.bodies.get(command.code)
        if body is None:
            return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, flag=1)
        return Command(ResponseCode.SUCCESS, flag=1, body=body)


def slave(folder: Path, master: Master) -> tuple[SlaveSync, Metadata]:
    config = broker_config(folder, brokerRole="SLAVE", brokerId="1")
    metadata = build(config).metadata
    clock = FakeClock()
    state = BrokerState(is_slave=True)
    sync = SlaveSync(master, metadata, config.store.config_folder, state, clock)
    sync.learn("master:1")
    return sync, metadata


def offsets(**queues: int) -> bytes:
    table = {"T@g": {int(name[1:]): offset for name, offset in queues.items()}}
    return ConsumerOffsetBody(offsets=table, version=DataVersion()).encode()


def test_1094_1440_7790_alibaba_28_offsets_never_go_back_but_a_reset_is_followed(
    tmp_path: Path,
) -> None:
    """L5, #1094: a slave that clients committed to is ahead, and stays so."""
    master = Master()
    sync, metadata = slave(tmp_path, master)

    def copied(**queues: int) -> list[int | None]:
        master.bodies[RequestCode.GET_ALL_CONSUMER_OFFSET] = offsets(**queues)
        asyncio.run(sync.tick())
        return [metadata.offsets.committed("g", "T", queue_id) for queue_id in (0, 1)]

    assert copied(q0=5, q1=1) == [5, 1]
    metadata.offsets.commit("g", "T", 0, 9)
    assert copied(q0=5, q1=2) == [9, 2], "ahead of the master"
    assert copied(q0=7, q1=2) == [9, 2]
    assert copied(q0=12, q1=2) == [12, 2]
    assert copied(q0=3, q1=2) == [3, 2], "the master went back: an administrator's reset"
    sync.learn("master:1")
    metadata.offsets.commit("g", "T", 0, 20)
    assert copied(q0=3, q1=2) == [20, 2]


def test_topics_and_groups_follow_by_version(tmp_path: Path) -> None:
    master = Master()
    sync, metadata = slave(tmp_path, master)
    version = DataVersion(counter=7, timestamp=5)
    topics = {
        name: TopicConfig(name=name, read_queues=3, write_queues=3) for name in ("T", "../../evil")
    }
    master.bodies[RequestCode.GET_ALL_TOPIC_CONFIG] = TopicTableBody(
        topics=topics, version=version
    ).encode()
    master.bodies[RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG] = GroupTableBody(
        groups={"g": SubscriptionGroupConfig(name="g")}, version=version, forbidden={"g": {"T": 1}}
    ).encode()
    asyncio.run(sync.tick())
    assert metadata.topics.version == version
    assert metadata.topics.get("T") == topics["T"]
    assert metadata.topics.get("../../evil") is None, "a name becomes a folder"
    assert metadata.topics.get("SCHEDULE_TOPIC_XXXX") is not None, "built-in topics stay"
    assert metadata.groups.forbidden("g", "T") == 1
    metadata.topics.remove("T")
    asyncio.run(sync.tick())
    assert metadata.topics.get("T") == topics["T"], "what is changed here is the master's again"
    saved = json.loads((tmp_path / "config" / "topics.json").read_text())
    assert "T" in saved["topicConfigTable"]


def test_files_that_a_new_master_reads(tmp_path: Path) -> None:
    master = Master()
    sync, metadata = slave(tmp_path, master)
    mode = GroupRequestMode(topic="T", group="g", mode=RequestMode.POP, pop_share=2)
    master.bodies |= {
        RequestCode.GET_ALL_DELAY_OFFSET: DelayOffsetBody(offsets={3: 17}).encode(),
        RequestCode.GET_TIMER_CHECK_POINT: bytes(range(56)),
        RequestCode.GET_TIMER_METRICS: b'{"timingCount":{}}',
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: RequestModeTable(modes=(mode,)).encode(),
    }
    asyncio.run(sync.tick())
    config = tmp_path / "config"
    assert DelayOffsetBody.decode((config / "delayOffset.json").read_bytes()).offsets == {3: 17}
    assert (config / "timercheck").read_bytes() == bytes(range(56)) + bytes(4096 - 56)
    assert (config / "timermetrics").read_bytes() == b'{"timingCount":{}}'
    written = RequestModeTable.decode((config / "messageRequestMode.json").read_bytes())
    assert written.modes == (mode,)
    assert metadata.modes.get("T", "g") == mode, "a slave answers by what its master has"
    # What makes no sense replaces nothing.
    master.bodies[RequestCode.GET_TIMER_CHECK_POINT] = b"short"
    master.bodies[RequestCode.GET_TIMER_METRICS] = b"no json"
    master.bodies[RequestCode.GET_ALL_DELAY_OFFSET] = b"{"
    asyncio.run(sync.tick())
    assert (config / "timercheck").stat().st_size == 4096
    assert (config / "timermetrics").read_bytes() == b'{"timingCount":{}}'
    master.away = True
    asyncio.run(sync.tick())
    assert DelayOffsetBody.decode((config / "delayOffset.json").read_bytes()).offsets == {3: 17}
