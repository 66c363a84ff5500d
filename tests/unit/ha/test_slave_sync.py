"""What a slave copies beside the log, told by a master that is made of answers."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, ClassVar

from roquet.base.errors import Unreachable
from roquet.base.overriding import override
from roquet.broker.app import build
from roquet.broker.replication.slave_sync import OFFSETS_AT_ONCE, CopiedDeletions, SlaveSync
from roquet.broker.state import BrokerState
from roquet.model.data_version import DataVersion
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.request_mode import GroupRequestMode, RequestMode
from roquet.model.topic import TopicConfig
from roquet.protocol.bodies.assignments import RequestModeTable
from roquet.protocol.bodies.deletions import DeletionsBody
from roquet.protocol.bodies.groups import GroupTableBody
from roquet.protocol.bodies.offsets import ConsumerOffsetBody, DelayOffsetBody
from roquet.protocol.bodies.topics import TopicTableBody, decode_data_version
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.service.background import give_way
from roquet.testing.clock import FakeClock
from roquet.testing.cluster import broker_config

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from roquet.broker.metadata import Metadata


class Master:
    """Answers with the bodies it was given."""

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {}
        self.away = False

    async def call(self, address: str, command: Command, timeout_s: float = 3.0) -> Command:
        if address == "master:2":
            return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, flag=1)
        assert (address, timeout_s) == ("master:1", 5.0)
        if self.away:
            raise Unreachable("away")
        body = self.bodies.get(command.code)
        if body is None:
            return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, flag=1)
        return Command(ResponseCode.SUCCESS, flag=1, body=body)


def slave(
    folder: Path, master: Master, deletions: CopiedDeletions | None = None
) -> tuple[SlaveSync, Metadata]:
    config = broker_config(folder, brokerRole="SLAVE", brokerId="1")
    metadata = build(config).metadata
    clock = FakeClock()
    state = BrokerState(is_slave=True)
    sync = SlaveSync(
        *(master, metadata, config.store.config_folder, state, clock), deletions=deletions
    )
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


def test_offsets_are_followed_in_slices_and_no_further_when_the_master_changes(
    tmp_path: Path,
) -> None:
    master = Master()
    sync, metadata = slave(tmp_path, master)
    count = 3 * OFFSETS_AT_ONCE
    master.bodies[RequestCode.GET_ALL_CONSUMER_OFFSET] = offsets(
        **{f"q{number}": number + 1 for number in range(count)}
    )

    async def told_of_another() -> None:
        copying = asyncio.ensure_future(sync.tick())
        while metadata.offsets.committed("g", "T", 0) is None:
            await give_way()
        # The first slice is followed, and others have their turn: this is one of them.
        assert len(metadata.offsets) == OFFSETS_AT_ONCE
        sync.learn("master:2")
        await copying

    asyncio.run(told_of_another())
    assert len(metadata.offsets) == OFFSETS_AT_ONCE
    sync.learn("master:1")
    asyncio.run(sync.tick())
    assert len(metadata.offsets) == count
    assert metadata.offsets.committed("g", "T", count - 1) == count


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


class Growing(Master):
    """Gives a page of two topics; `changes` are made before pages that are not the first."""

    def __init__(self, changes: Sequence[Callable[[dict[str, TopicConfig]], object]]) -> None:
        super().__init__()
        self.topics = {f"T{number}": TopicConfig(name=f"T{number}") for number in range(4)}
        self.changes = iter(changes)
        self.counter = 1
        self.asked: list[str] = []

    @override
    async def call(self, address: str, command: Command, timeout_s: float = 3.0) -> Command:
        if command.code != RequestCode.GET_ALL_TOPIC_CONFIG:
            return await super().call(address, command, timeout_s)
        fields = command.ext or {}
        self.asked.append(fields["topicSeq"])
        if fields["topicSeq"] != "0":
            change = next(self.changes, None)
            if change is not None:
                change(self.topics)
                self.counter += 1
        version = DataVersion(counter=self.counter, timestamp=5)
        known = fields.get("dataVersion")
        same = known is None or decode_data_version(known.encode()) == version
        at = int(fields["topicSeq"]) if same else 0
        page = dict(list(self.topics.items())[at : at + 2])
        body = TopicTableBody(topics=page, version=version).encode()
        return Command(0, {"totalTopicNum": str(len(self.topics))}, body, flag=1)


def test_table_that_changes_while_it_is_read_is_read_anew(tmp_path: Path) -> None:
    master = Growing([lambda topics: topics.pop("T0")])
    sync, metadata = slave(tmp_path, master)
    metadata.topics.put(TopicConfig(name="T0"))
    asyncio.run(sync.tick())
    assert master.asked == ["0", "2", "0", "2"]
    assert metadata.topics.get("T0") is None
    assert all(metadata.topics.get(name) for name in ("T1", "T2", "T3"))
    assert metadata.topics.version.counter == master.counter
    asyncio.run(sync.tick())
    assert master.asked[4:] == ["0"], "what is known already is not read on"


def test_table_that_never_stands_still_loses_nothing_here(tmp_path: Path) -> None:
    """What was not seen may be there: it stays until the table is read as a whole."""
    master = Growing([lambda topics: topics.update(N=TopicConfig(name="N", perm=2))] * 3)
    sync, metadata = slave(tmp_path, master)
    kept = TopicConfig(name="T3", perm=4)
    metadata.topics.put(kept)
    asyncio.run(sync.tick())
    assert master.asked == ["0", "2"] * 3
    assert metadata.topics.get("T3") == kept
    assert metadata.topics.get("T0") == master.topics["T0"]
    assert metadata.topics.version.counter != master.counter
    asyncio.run(sync.tick())
    assert metadata.topics.get("T3") == master.topics["T3"]
    assert metadata.topics.get("N") == master.topics["N"]
    assert metadata.topics.version.counter == master.counter


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


def test_what_a_master_deleted_goes_before_its_offsets_are_followed(tmp_path: Path) -> None:
    """A topic or group made again is read from its first message also after a fail-over."""

    class WithDeletions(Master):
        version, asked = "1", 0

        @override
        async def call(self, address: str, command: Command, timeout_s: float = 3.0) -> Command:
            answer = await super().call(address, command, timeout_s)
            if command.code == RequestCode.GET_ALL_CONSUMER_OFFSET:
                answer.ext = {"deletions": self.version}
                if command.ext == {"deletions": "true"}:
                    self.asked += 1
                    answer.body = DeletionsBody({"T": 7}, {"h": 7}, {"T": 70, "../up": 9}).encode()
            return answer

    followed: list[tuple[DeletionsBody, int | None]] = []

    class Copies:
        whole = False

        async def follow(self, body: DeletionsBody) -> bool:
            followed.append((body, metadata.offsets.committed("g", "T", 0)))
            await metadata.offsets.remove_topic("T")
            return self.whole

        async def look_at_log(self) -> None:
            pass

    master, copies = WithDeletions(), Copies()
    sync, metadata = slave(tmp_path, master, copies)
    metadata.offsets.commit("g", "T", 0, 9)
    metadata.offsets.commit("g", "T", 1, 9)
    master.bodies[RequestCode.GET_ALL_CONSUMER_OFFSET] = offsets(q0=2)
    asyncio.run(sync.tick())
    assert followed == [(DeletionsBody({"T": 7}, {"h": 7}, {"T": 70, "../up": 9}), 9)]
    assert metadata.offsets.queues("g", "T") == {0: 2}, "what the master says of the new topic"
    copies.whole = True
    asyncio.run(sync.tick())
    assert master.asked == 2, "the log was not copied as far as the deletion"
    asyncio.run(sync.tick())
    assert master.asked == 2, "nothing was deleted since"
    master.version = "2"
    asyncio.run(sync.tick())
    assert master.asked == 3


def test_deletions_are_asked_for_between_copies_and_listed_only_when_they_changed(
    tmp_path: Path,
) -> None:
    """A master that is lost before the next copy has told of them all the same."""

    class Looked(Master):
        version, earlier = "1", False
        asked: ClassVar[list[dict[str, str] | None]] = []

        @override
        async def call(self, address: str, command: Command, timeout_s: float = 3.0) -> Command:
            if command.code != RequestCode.GET_ALL_CONSUMER_OFFSET:
                return await super().call(address, command, timeout_s)
            self.asked.append(command.ext)
            answer = Command(ResponseCode.SUCCESS, {"deletions": "true"}, flag=1)
            if not self.earlier:
                answer.ext = {"deletions": "true", "deletionsSince": self.version}
            if self.earlier or self.version != (command.ext or {}).get("deletionsSince"):
                answer.body = DeletionsBody({"T": 7}, {}, {"T": 70}).encode()
            return answer

    followed: list[DeletionsBody] = []

    class Copies:
        async def follow(self, body: DeletionsBody) -> bool:
            followed.append(body)
            return True

        async def look_at_log(self) -> None:
            pass

    master = Looked()
    sync, _ = slave(tmp_path, master, Copies())
    for version, count in (("1", 1), ("1", 1), ("2", 2)):
        master.version = version
        asyncio.run(sync.look_at_deletions())
        assert len(followed) == count
    assert [ext and ext.get("deletionsSince") for ext in master.asked] == ["", "1", "1"]
    master.earlier = True
    asyncio.run(sync.look_at_deletions())
    asyncio.run(sync.look_at_deletions())
    assert len(master.asked) == 4, "one of an earlier release would send its list each time"
    assert len(followed) == 2
