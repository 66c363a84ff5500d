"""Acknowledgements of popped messages and other invisible times (200051, 200151, 200053)."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from broker_harness import dispatched, ext, play
from pop_harness import (
    GROUP,
    TOPIC,
    ack_command,
    checkpoints,
    invisible_command,
    now_ms,
    pop,
)
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.pop.batch_ack import BatchAck, BatchAckBody
from roquet.store.results import PutResult, PutStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from pop_harness import Popped
    from roquet.store.results import Draft
    from roquet.testing.cluster import Cluster


def after_pop(
    folder: Path, tell: Callable[[Cluster, Popped], Awaitable[None]], **settings: str
) -> None:
    """Have `tell` begin with three messages in flight."""

    async def run(it: Cluster) -> None:
        for number in range(3):
            await it.send(TOPIC, b"%d" % number, queue_id=1)
        await dispatched(it)
        await tell(it, await pop(it))

    play(folder, run, **settings)


def batch_command(got: Popped, broker_name: str = "broker-a", **changes: Any) -> Command:
    """Return the acknowledgement of the first and the last of the messages."""
    first = got.handles[0]
    values: dict[str, Any] = {
        "group": GROUP,
        "topic": TOPIC,
        "retry_flag": "0",
        "start_offset": first.start_offset,
        "queue_id": first.queue_id,
        "revive_queue": first.revive_queue,
        "pop_time_ms": first.pop_time_ms,
        "invisible_ms": first.invisible_ms,
        "offsets": (0, 2),
    }
    body = BatchAckBody(broker_name=broker_name, acks=(BatchAck(**(values | changes)),))
    return Command(RequestCode.BATCH_ACK_MESSAGE, ext={}, body=body.encode())


def test_ack_is_a_record_that_is_due_with_its_checkpoint(tmp_path: Path) -> None:
    async def tell(it: Cluster, got: Popped) -> None:
        handle = got.handles[1]
        answer = await it.call(ack_command(handle))
        assert (answer.code, answer.remark, answer.ext) == (0, None, None)
        await dispatched(it)
        _, ack = checkpoints(it)
        assert ack == {
            "ao": 1,
            "bn": "broker-a",
            "c": GROUP,
            "pt": handle.pop_time_ms,
            "q": 1,
            "so": 0,
            "t": TOPIC,
            "tag": "ack",
            "queue": str(handle.revive_queue),
            "due": str(handle.pop_time_ms + handle.invisible_ms),
        }

    after_pop(tmp_path, tell)


def test_batch_of_acks_is_one_record_for_each_checkpoint(tmp_path: Path) -> None:
    async def tell(it: Cluster, got: Popped) -> None:
        answer = await it.call(batch_command(got, offsets=(0, 2, 9)))
        assert (answer.code, answer.remark) == (0, None)
        await dispatched(it)
        _, batch = checkpoints(it)
        # Offset 9 does not exist: it is left out in silence, as in Java.
        assert (batch["tag"], batch["ao"], batch["aol"]) == ("bAck", -1, [0, 2])
        assert (await it.call(batch_command(got, topic="nowhere"))).code == 0
        assert (await it.call(batch_command(got, queue_id=77))).code == 0
        await dispatched(it)
        assert len(checkpoints(it)) == 2

    after_pop(tmp_path, tell)


def test_batch_names_the_normal_topic_of_redelivered_messages(tmp_path: Path) -> None:
    async def tell(it: Cluster, got: Popped) -> None:
        it.broker.metadata.topics.ensure(f"%RETRY%{GROUP}+{TOPIC}", 2)
        answer = await it.call(batch_command(got, retry_flag="2", offsets=(0,)))
        assert answer.code == 0
        await dispatched(it)
        assert checkpoints(it)[-1]["t"] == f"%RETRY%{GROUP}+{TOPIC}"

    after_pop(tmp_path, tell)


def test_ack_that_is_not_stored_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(it: Cluster, got: Popped) -> None:
        def refuse(drafts: Sequence[Draft]) -> list[PutResult]:
            return [PutResult(PutStatus.SERVICE_NOT_AVAILABLE, why="full")] * len(drafts)

        monkeypatch.setattr(it.broker.store, "append", refuse)
        handle = got.handles[0]
        for command, words in (
            (ack_command(handle), "put ack msg error"),
            (batch_command(got), "put ack msg error"),
            (invisible_command(handle), "append checkpoint or ack origin failed"),
        ):
            answer = await it.call(command)
            assert (answer.code, answer.remark) == (1, f"{words}: SERVICE_NOT_AVAILABLE full")

    after_pop(tmp_path, tell, fastPathEnable="false")


@pytest.mark.parametrize("fast", ["true", "false"])
def test_what_no_pop_can_have_given_is_refused_and_not_stored(tmp_path: Path, fast: str) -> None:
    async def tell(it: Cluster, got: Popped) -> None:
        handle, day_ms = got.handles[1], 86_400_000
        now = now_ms()
        doubts: list[tuple[dict[str, int], str]] = [
            ({"pop_time_ms": now + 120_000}, "is of a pop at"),
            ({"pop_time_ms": now - 4 * day_ms}, "is of a pop at"),
            ({"pop_time_ms": 0}, "is of a pop at"),
            ({"start_offset": -1}, "a checkpoint at offset -1"),
            ({"invisible_ms": 3 * day_ms + 1}, "invisibleTime is"),
        ]
        for changes, words in doubts:
            forged = handle._replace(**changes)  # type: ignore[arg-type]
            for command in (
                ack_command(forged),
                invisible_command(forged),
                batch_command(got, **dict[str, Any](changes)),
            ):
                answer = await it.call(command)
                assert (answer.code, words in str(answer.remark)) == (29, True), answer.remark
        behind = handle._replace(start_offset=2)
        for command in (ack_command(behind), invisible_command(behind)):
            answer = await it.call(command)
            assert (answer.code, "offset 2, behind 1" in str(answer.remark)) == (29, True)
        for command in (
            ack_command(handle, consumerGroup="nobody"),
            invisible_command(handle, consumerGroup="nobody"),
            batch_command(got, group="nobody"),
        ):
            answer = await it.call(command)
            assert (answer.code, "[nobody] does not exist" in str(answer.remark)) == (26, True)
        assert it.broker.metadata.groups.get("nobody") is None
        await dispatched(it)
        assert len(checkpoints(it)) == 1
        # A little ahead, as after a clock was set back, and after a day without a broker.
        for changed in (now + 30_000, now - day_ms // 2):
            assert (await it.call(ack_command(handle._replace(pop_time_ms=changed)))).code == 0

    after_pop(tmp_path, tell, fastPathEnable=fast)


def test_new_invisible_time_is_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    async def tell(it: Cluster, got: Popped) -> None:
        handle = got.handles[2]
        begun = now_ms()
        answer = await it.call(invisible_command(handle, suspend="true"))
        assert (answer.code, answer.remark) == (0, "not set any response code")
        fields = ext(answer)
        changed_ms = int(fields["popTime"])
        assert begun <= changed_ms <= now_ms()
        assert fields == {
            "popTime": str(changed_ms),
            "invisibleTime": "90000",
            "reviveQid": str(handle.revive_queue),
        }
        await dispatched(it)
        _, checkpoint, ack = checkpoints(it)
        assert (ack["tag"], ack["ao"], ack["so"], ack["pt"]) == ("ack", 2, 0, handle.pop_time_ms)
        assert (checkpoint["so"], checkpoint["d"], checkpoint["n"]) == (2, [0], 1)
        assert (checkpoint["pt"], checkpoint["it"], checkpoint["sp"]) == (changed_ms, 90000, True)
        assert checkpoint["queue"] == str(handle.revive_queue)

    after_pop(tmp_path, tell)


def test_new_invisible_time_fails_when_the_old_checkpoint_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(it: Cluster, got: Popped) -> None:
        append = it.broker.store.append

        def refuse_acks(drafts: Sequence[Draft]) -> list[PutResult]:
            if drafts[0].properties["TAGS"] == "ack":
                return [PutResult(PutStatus.SERVICE_NOT_AVAILABLE)]
            return append(drafts)

        monkeypatch.setattr(it.broker.store, "append", refuse_acks)
        assert (await it.call(invisible_command(got.handles[0]))).code == 1

    after_pop(tmp_path, tell, fastPathEnable="false")


REFUSALS: list[tuple[dict[str, str], int, str]] = [
    ({"topic": "nowhere"}, 17, "topic[nowhere] not exist, apply first please!"),
    ({"queueId": "4"}, 13, "queueId[4] is illegal, topic:[orders] topicConfig.readQueueNums:[4]"),
    ({"queueId": "-1"}, 13, "queueId[-1] is illegal"),
    ({"offset": "4"}, 208, ""),
    ({"offset": "-1"}, 208, ""),
    ({"extraInfo": "1 2 3"}, 1, "'1 2 3' is no receipt handle"),
    ({"extraInfo": "0 1 2 3 0 elsewhere 1 0"}, 29, "the receipt handle is of broker 'elsewhere'"),
    ({"extraInfo": "0 1 2 8 0 broker-a 1 0"}, 29, "the receipt handle names revive queue 8 of 8"),
    ({"extraInfo": "0 1 2 -1 0 broker-a 1 0"}, 29, "the receipt handle names revive queue -1"),
    ({"liteTopic": "x"}, 29, "group type or bind topic not match."),
]


@pytest.mark.parametrize("make", [ack_command, invisible_command])
@pytest.mark.parametrize(("fields", "code", "remark"), REFUSALS, ids=lambda it: str(it)[:40])
def test_bad_ack_is_refused_with_the_code_of_java(
    tmp_path: Path,
    make: Callable[..., Command],
    fields: dict[str, str],
    code: int,
    remark: str,
) -> None:
    async def tell(it: Cluster, got: Popped) -> None:
        answer = await it.call(make(got.handles[0], **fields))
        assert answer.code == code
        assert (answer.remark or "").startswith(remark)
        await dispatched(it)
        assert len(checkpoints(it)) == 1

    after_pop(tmp_path, tell)


def test_offset_behind_the_last_message_can_be_acknowledged_but_not_changed(
    tmp_path: Path,
) -> None:
    async def tell(it: Cluster, got: Popped) -> None:
        handle = got.handles[0]
        answer = await it.call(ack_command(handle, offset="3"))
        assert answer.code == 0
        changed = await it.call(invisible_command(handle, offset="3"))
        assert (changed.code, ext(changed)["popTime"]) == (208, "0")
        beyond = await it.call(ack_command(handle, offset="4"))
        assert beyond.remark == "offset is illegal, key:orders@1, commit:4, store:0~3"

    after_pop(tmp_path, tell)


@pytest.mark.parametrize("time", ["-1", "259200001"])
def test_impossible_invisible_time_is_refused(tmp_path: Path, time: str) -> None:
    async def tell(it: Cluster, got: Popped) -> None:
        answer = await it.call(invisible_command(got.handles[0], invisibleTime=time))
        assert answer.code == 29
        await dispatched(it)
        assert len(checkpoints(it)) == 1

    after_pop(tmp_path, tell)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 208),
        (b"{}", 208),
        (b'{"acks":null}', 208),
        (b'{"acks":[]}', 208),
        (b"[", 1),
        (b'{"acks":[1]}', 1),
        (b'{"brokerName":"elsewhere","acks":[{"b":"AQ=="}]}', 29),
        (b'{"brokerName":"broker-a","acks":[{"rq":8}]}', 29),
        (json.dumps({"acks": [{}] * 4097}).encode(), 29),
        (json.dumps({"acks": [{"b": base64.b64encode(bytes(4 << 20)).decode()}]}).encode(), 29),
    ],
    ids=lambda it: str(it)[:40],
)
def test_bad_batch_is_refused(tmp_path: Path, body: bytes, code: int) -> None:
    async def tell(it: Cluster, _: Popped) -> None:
        answer = await it.call(Command(RequestCode.BATCH_ACK_MESSAGE, ext={}, body=body))
        assert answer.code == code
        await dispatched(it)
        assert len(checkpoints(it)) == 1

    after_pop(tmp_path, tell)


def test_acks_count_down_what_is_in_flight(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for _ in range(9):
            await it.send(TOPIC)
        await dispatched(it)
        got = await pop(it, maxMsgNums="4")
        assert (await pop(it)).code == 210
        assert (await it.call(ack_command(got.handles[0]))).code == 0
        assert len((await pop(it, maxMsgNums="1")).records) == 1
        assert (await pop(it)).code == 210
        assert (await it.call(batch_command(got, offsets=(1, 2)))).code == 0
        assert len((await pop(it, maxMsgNums="1")).records) == 1

    limits = {"enablePopMessageThreshold": "true", "popInflightMessageThreshold": "3"}
    play(tmp_path, tell, **limits)


def test_second_change_in_a_millisecond_gets_a_pop_time_of_its_own(tmp_path: Path) -> None:
    """The acknowledgement of the one checkpoint would settle the other as well."""

    async def tell(it: Cluster, got: Popped) -> None:
        handle = got.handles[0]._replace(pop_time_ms=now_ms() + 400)
        answer = await it.call(invisible_command(handle))
        assert ext(answer)["popTime"] == str(handle.pop_time_ms + 1)
        far = handle._replace(pop_time_ms=now_ms() + 10**9)
        answer = await it.call(invisible_command(far))
        assert int(ext(answer)["popTime"]) <= now_ms() + 1000

    after_pop(tmp_path, tell)
