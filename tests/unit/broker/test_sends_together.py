"""Sends that one read brings are handled together; each is answered as if it had come alone."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from broker_harness import dispatched, play
from roquet.model.topic import TopicConfig
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import FLAG_ONE_WAY, Command
from roquet.protocol.headers.message import PullMessageRequest, SendMessageRequest
from roquet.protocol.messages import batch
from roquet.remoting.codec import decode, encode
from roquet.remoting.headers import reader
from roquet.store.results import StoreFault
from roquet.testing.cluster import Cluster, send_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

KEY = "UNIQ_KEY\x01%d\x02"


def requests() -> list[Command]:
    """Good and bad sends, in one queue as far as they get into one."""
    pair = batch.encode([(0, b"one", b""), (0, b"two", b"KEYS\x01k\x02")])
    late_batch = batch.encode([(0, b"one", b"DELAY\x011\x02")])
    commands = [
        send_command("orders", b"first"),
        send_command("orders", b"no such queue", 99),
        send_command("orders", b"second", properties="TAGS\x01a\x02"),
        send_command("no topic!", b"illegal name"),
        send_command("TBW102", b"nobody may send there"),
        send_command("orders", b""),
        send_command("orders", b"a number that is none", g="soon"),
        send_command("orders", b"x" * 5_000),
        send_command("orders", b"third"),
        send_command("orders", pair, m="true"),
        send_command("orders", late_batch, m="true"),
        send_command("orders", b"behind the batch"),
        send_command("made_by_a_send", b"fourth"),
        send_command("orders", b"late", properties="DELAY\x013\x02"),
        send_command("orders", b"late, but when?", properties="DELAY\x01soon\x02"),
        send_command("orders", b"for the wheel", properties="TIMER_DELAY_MS\x0110\x02"),
        send_command("orders", b"half", properties="TRAN_MSG\x01true\x02", f="4"),
        send_command("orders", b"prepared only", f="4"),
        send_command("compacted", b"without key"),
        send_command("compacted", b"with key", properties="KEYS\x01k\x02"),
        send_command("%RETRY%nobody", b"no such group"),
        send_command("orders", b"long", properties="LONG\x01" + "x" * 40_000 + "\x02"),
        send_command("orders", b"inner", properties="INNER_NUM\x012\x02"),
        send_command("orders", b"first in line", properties="_SYS_MSG_PRIORITY_\x013\x02"),
        send_command("orders", b"no wait", properties="WAIT\x01false\x02"),
        send_command("orders", b"sixth"),
    ]
    missing = send_command("orders", b"a field is missing")
    assert missing.ext is not None
    del missing.ext["g"]
    quiet = dataclasses.replace(send_command("orders", b"quiet"), flag=FLAG_ONE_WAY)
    commands += [missing, quiet, send_command("orders", b"last")]
    for number, command in enumerate(commands):
        assert command.ext is not None
        command.opaque = number
        command.ext["i"] += KEY % number
    return commands


async def told(it: Cluster, bursts: Sequence[Sequence[Command]]) -> dict[int, Command]:
    """Write each burst at once, and wait for its answers."""
    host, _, port = it.address.rpartition(":")
    own, writer = await asyncio.open_connection(host, int(port))
    answers: dict[int, Command] = {}
    rest = b""
    for burst in bursts:
        writer.write(b"".join(map(encode, burst)))
        expected = {it.opaque for it in burst if not it.is_one_way}
        while not expected <= answers.keys():
            data = await asyncio.wait_for(own.read(65_536), 20)
            assert data, "the connection was closed"
            found, used = decode(rest + data)
            rest = (rest + data)[used:]
            answers.update({answer.opaque: answer for answer in found})
    writer.close()
    await writer.wait_closed()
    return answers


def outcome(folder: Path, *, together: bool, **changes: str) -> tuple[Any, ...]:
    """Return answers, what is in which queue, and the counts."""
    # The handle of a timer message says when it was sent.
    changes = {"timerWheelEnable": "false", **changes}
    seen: list[Any] = []

    async def tell(it: Cluster) -> None:
        it.broker.metadata.topics.put(
            TopicConfig(name="orders", read_queues=4, write_queues=4),
            TopicConfig(name="compacted", attributes={"cleanup.policy": "COMPACTION"}),
        )
        await it.broker.metadata.topics.persist()
        sends = requests()
        answers = await told(it, [sends] if together else [[each] for each in sends])
        await dispatched(it)
        store = it.broker.store
        contents = [
            (topic, queue_id, [(it.body, it.flag, it.sys_flag) for it in found if it])
            for topic, queue_id, *_ in sorted(store.native.queues())
            for found in [[store.record(at) for at, *_ in store.units(topic, queue_id, 0, 99)]]
        ]
        info = await it.call(Command(RequestCode.GET_BROKER_RUNTIME_INFO))
        counts = [
            info.body.count(text)
            for text in (b'"msgPutTotalTodayNow":"15"', b'"putMessageFailedTimes":"0"')
        ]
        told_of = {
            opaque: (
                answer.code,
                (answer.remark or "").replace(it.address, "broker").rpartition("Producer: ")[0]
                or (answer.remark or ""),
                {name: text for name, text in (answer.ext or {}).items() if name != "msgId"},
                len((answer.ext or {}).get("msgId", "")),
            )
            for opaque, answer in sorted(answers.items())
        }
        seen.extend([told_of, contents, counts])

    play(folder, tell, fastPathEnable="false", maxMessageSize="4096", **changes)
    return tuple(seen)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_each_is_answered_and_stored_as_if_it_had_come_alone(tmp_path: Path, flush: str) -> None:
    alone = outcome(tmp_path / "alone", together=False, flushDiskType=flush)
    together = outcome(tmp_path / "together", together=True, flushDiskType=flush)
    for one, other in zip(together, alone, strict=True):
        assert one == other
    answers, queues, _ = together
    assert [answers[opaque][0] for opaque in (0, 1, 2, 3)] == [0, 29, 0, 29]
    bodies = {(topic, queue_id): [it[0] for it in there] for topic, queue_id, there in queues}
    first = [b"first", b"second", b"third", b"one", b"two", b"behind the batch"]
    assert bodies["orders", 0] == [*first, b"no wait", b"sixth", b"quiet", b"last"]


def test_a_log_that_cannot_take_them_together_takes_them_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(it: Cluster) -> None:
        await it.send("orders", b"there is a topic")
        native = it.broker.store.native
        calls: list[int] = []

        class Short:
            """Refuses to take more than one message."""

            def put_many(self, messages: Sequence[tuple[Any, ...]]) -> tuple[list[Any], int]:
                calls.append(len(messages))
                if len(messages) == 1:
                    return native.put_many(messages)
                placed, stored_at = native.put_many(messages[:2])
                return placed + [(4, -1, 0, -1)] * (len(messages) - 2), stored_at

            def __getattr__(self, name: str) -> object:
                return getattr(native, name)

        monkeypatch.setattr(it.broker.store, "_native", Short())
        sends = [
            dataclasses.replace(send_command("orders", b"%d" % number), opaque=number)
            for number in range(5)
        ]
        answers = await told(it, [sends])
        assert [answers[number].code for number in range(5)] == [0] * 5
        offsets = [(answers[number].ext or {})["queueOffset"] for number in range(5)]
        assert offsets == ["1", "2", "3", "4", "5"]
        assert calls == [5, 1, 1, 1]

    play(tmp_path, tell, fastPathEnable="false")


def test_a_failure_of_the_append_is_answered_to_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(it: Cluster) -> None:
        await it.send("orders", b"there is a topic")

        def broken(_: object) -> object:
            raise StoreFault("io", "no luck")

        def odd(_: object) -> object:
            raise RuntimeError("a mistake")

        sends = [
            dataclasses.replace(send_command("orders", b"%d" % number), opaque=number)
            for number in range(3)
        ]
        with monkeypatch.context() as patch:
            patch.setattr(it.broker.store, "append", odd)
            answers = await told(it, [sends])
            assert [answers[number].code for number in range(3)] == [1, 1, 1]
            assert answers[2].remark == "RuntimeError: a mistake"
        with monkeypatch.context() as patch:
            patch.setattr(type(it.broker.store), "native", property(broken))
            answers = await told(it, [sends])
            assert [answers[number].code for number in range(3)] == [14, 14, 14]
            assert answers[1].ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        answers = await told(it, [sends])
        assert [(answers[number].ext or {})["queueOffset"] for number in range(3)] == list("123")

    play(tmp_path, tell, fastPathEnable="false")


def test_a_broker_that_takes_no_sends_says_so_to_each(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        it.broker.state.is_slave = True
        answers = await told(it, [requests()[:3]])
        assert [answers[number].code for number in range(3)] == [2, 2, 2]
        assert answers[0].ext is None
        it.broker.state.is_slave = False

    play(tmp_path, tell, fastPathEnable="false")


ODD: list[Callable[[dict[str, str]], object]] = [
    lambda ext: ext,
    lambda ext: ext.update(g="-1"),
    lambda ext: ext.update(g="9" * 19),
    lambda ext: ext.update(g=""),
    lambda ext: ext.update(e="0000000001"),
    lambda ext: ext.update(e="99999999999"),
    lambda ext: ext.update(e="\u0661"),
    lambda ext: ext.update(k="TRUE", m="\u212a"),
    lambda ext: ext.pop("b"),
    lambda ext: ext.pop("i"),
    lambda ext: ext.update(e=" 1", h="x"),
    lambda ext: ext.clear(),
]


@pytest.mark.parametrize("change", ODD)
def test_the_compiled_reader_reads_what_the_plain_one_does(
    change: Callable[[dict[str, str]], object],
) -> None:
    command = send_command("orders", b"", 3, "KEYS\x01k\x02")
    assert command.ext is not None
    change(command.ext)

    def read(how: Callable[[], object]) -> object:
        try:
            return how()
        except ValueError as error:
            return str(error), getattr(error, "missing", None)

    compiled = reader(SendMessageRequest, short=True)
    plain = read(lambda: SendMessageRequest.decode(command.ext, short=True))
    assert read(lambda: compiled(command)) == plain


def test_a_header_without_fields_is_read_as_well() -> None:
    with pytest.raises(ValueError, match="consumerGroup of PullMessageRequest is missing"):
        reader(PullMessageRequest)(Command(11))
