"""What a Java 5.5.0 broker was recorded answering, asked of ours: over its store and a new one."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from broker_harness import dispatched, ext, play, records
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.codec import decode

if TYPE_CHECKING:
    from roquet.testing.cluster import Cluster

VECTORS = Path(__file__).parents[2] / "vectors"
SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)

Exchange = tuple[Command, Command]


def exchanges() -> list[Exchange]:
    """Return (request, answer) of all calls that clients made, in the order of the requests."""
    asked: list[tuple[int, Command]] = []
    answers: dict[tuple[int, int], Command] = {}
    with gzip.open(VECTORS / "broker_frames.jsonl.gz", "rt") as lines:
        for line in lines:
            frame = json.loads(line)
            ((command, *_), _) = decode(bytes.fromhex(frame["hex"]))
            if command.is_response and frame["dir"] == "s2c":
                answers[frame["conn"], command.opaque] = command
            elif not command.is_response and frame["dir"] == "c2s":
                asked.append((frame["conn"], command))
    return [
        (command, answers[conn, command.opaque])
        for conn, command in asked
        if (conn, command.opaque) in answers
    ]


def java_store(folder: Path, which: str) -> Path:
    """Copy Java's store to where the cluster's first broker will look for it."""
    target = folder / "broker-a"
    shutil.copytree(VECTORS / "store" / which, target)
    return target


def settings(**more: str) -> dict[str, str]:
    """Return what the Java broker's store was written with."""
    return {
        "mappedFileSizeCommitLog": "131072",
        "mappedFileSizeConsumeQueue": "2000",
        "brokerIP1": "127.0.0.2",
        "bindAddress": "127.0.0.2",
        **more,
    }


def test_sends_get_the_same_answers_byte_for_byte_placed(tmp_path: Path) -> None:
    """Physical offsets are part of the ids, so equal ids mean records of equal length."""
    told = [pair for pair in exchanges() if pair[0].code in SENDS]
    # What follows the delayed message waits for the timer wheel and for transactions.
    until = next(i for i, (asked, _) in enumerate(told) if ext(asked)["b"] == "GoldenTimer")
    assert until == 23

    async def tell(it: Cluster) -> None:
        for asked, expected in told[:until]:
            answer = await it.call(asked)
            assert (answer.code, answer.remark) == (expected.code, expected.remark)
            ours, theirs = dict(ext(answer)), dict(ext(expected))
            ids = [fields.pop("msgId").split(",") for fields in (ours, theirs)]
            assert ours == theirs
            assert [id_[-16:] for id_ in ids[0]] == [id_[-16:] for id_ in ids[1]]
            assert {id_[:8] for id_ in ids[0]} == {"7F000002"}

    play(tmp_path, tell, **settings())


def test_javas_store_is_served_with_javas_own_bytes(tmp_path: Path) -> None:
    java_store(tmp_path, "clean")
    pulls = [
        (asked, expected)
        for asked, expected in exchanges()
        if asked.code == RequestCode.PULL_MESSAGE
        and expected.code == 0
        and ext(asked)["consumerGroup"] == "golden_consumers"
        and ext(asked)["topic"] in {"GoldenTopic", "GoldenTx"}
    ]
    assert len(pulls) >= 3
    tags = {"GoldenTopic": "TagA || TagBatch", "GoldenTx": "*"}

    async def tell(it: Cluster) -> None:
        for asked, expected in pulls:
            fields = {
                **ext(asked),
                "sysFlag": "4",
                "subscription": tags[ext(asked)["topic"]],
                "maxMsgNums": str(len(records(expected))),
            }
            answer = await it.call(Command(RequestCode.PULL_MESSAGE, ext=fields))
            assert (answer.code, answer.remark) == (0, "FOUND")
            assert answer.body == expected.body
            assert ext(answer).keys() == ext(expected).keys()
        topics = it.broker.metadata.topics
        assert {"GoldenTopic", "GoldenDelay", "GoldenTx"} <= topics.all().keys()
        found = it.broker.metadata.offsets.queues("golden_consumers", "GoldenTopic")
        assert found == {0: 6, 1: 6, 2: 6, 3: 10}

    play(tmp_path, tell, **settings())


def test_offset_queries_get_the_same_answers(tmp_path: Path) -> None:
    """The group is new in the recording, so its offsets are removed from Java's store first."""
    told = [
        (asked, expected)
        for asked, expected in exchanges()
        if asked.code == RequestCode.QUERY_CONSUMER_OFFSET
        and ext(asked)["topic"] in {"GoldenTopic", "GoldenTx", "GoldenDelay"}
    ]
    assert {expected.code for _, expected in told} == {0, 22}
    config = java_store(tmp_path, "clean") / "config"
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (config / name).unlink()

    async def tell(it: Cluster) -> None:
        for asked, expected in told:
            answer = await it.call(asked)
            assert (answer.code, answer.remark, answer.ext) == (
                expected.code,
                expected.remark,
                expected.ext,
            ), ext(asked)

    play(tmp_path, tell, **settings(), newQueueFromZero="false")


def test_a_query_by_key_finds_javas_message(tmp_path: Path) -> None:
    java_store(tmp_path, "running")
    (told,) = [pair for pair in exchanges() if pair[0].code == RequestCode.QUERY_MESSAGE]
    asked, expected = told

    async def tell(it: Cluster) -> None:
        answer = await it.call(asked)
        assert answer.code == expected.code == 0
        assert answer.body == expected.body
        assert ext(answer).keys() == ext(expected).keys()
        await it.send("GoldenTopic", b"after the crash")
        await dispatched(it)

    play(tmp_path, tell, **settings())
