"""Sums of ranges of a queue (GET_SUMS): what they are, whose they are, and what is refused."""

from __future__ import annotations

import asyncio
import random
import struct
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, ext, play, records
from roquet import _native as native
from roquet.acl.credentials import Credentials
from roquet.broker.services import receive
from roquet.model.topic import TopicConfig
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.store.records import Record, Sum, summed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from roquet.testing.cluster import Cluster

TOPIC, GROUP = "orders", "auditors"
READER, OTHER = Credentials("reader-one", "one-secret"), Credentials("other-one", "two-secret")
ACCOUNTS = f"""\
accounts:
- accessKey: {READER.access_key}
  secretKey: {READER.secret_key}
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: ["{TOPIC}=SUB"]
- accessKey: {OTHER.access_key}
  secretKey: {OTHER.secret_key}
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: ["{TOPIC}=PUB"]
"""
P1, P2, P3, P4, P5 = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)
MASK = 2**64 - 1


def rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & MASK


def xxh64(data: bytes, seed: int) -> int:
    """XXH64 as its specification says it: a second opinion, slow and short."""
    at, size = 0, len(data)
    if size >= 32:
        lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        while at + 32 <= size:
            for index, (word,) in enumerate(struct.iter_unpack("<Q", data[at : at + 32])):
                lanes[index] = rotated((lanes[index] + word * P2) & MASK, 31) * P1 & MASK
            at += 32
        value = sum(map(rotated, lanes, (1, 7, 12, 18))) & MASK
        for lane in lanes:
            value ^= rotated(lane * P2 & MASK, 31) * P1 & MASK
            value = (value * P1 + P4) & MASK
    else:
        value = (seed + P5) & MASK
    value = (value + size) & MASK
    while at + 8 <= size:
        (word,) = struct.unpack_from("<Q", data, at)
        value ^= rotated(word * P2 & MASK, 31) * P1 & MASK
        value = (rotated(value, 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= size:
        (half,) = struct.unpack_from("<I", data, at)
        value ^= half * P1 & MASK
        value = (rotated(value, 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        value ^= byte * P5 & MASK
        value = rotated(value, 11) * P1 & MASK
    value = (value ^ (value >> 33)) * P2 & MASK
    value = (value ^ (value >> 29)) * P3 & MASK
    return value ^ (value >> 32)


def checksum(offset: int, key: bytes, body: bytes) -> int:
    found = xxh64(body, xxh64(key, xxh64(struct.pack("<q", offset), 42)))
    return found - 2**64 if found >= 2**63 else found


def expected(bodies: Sequence[tuple[int, bytes, bytes]]) -> Sum:
    if not bodies:
        return Sum()
    offsets = [offset for offset, _, _ in bodies]
    xor = 0
    for it in bodies:
        xor ^= checksum(*it)
    return Sum(len(bodies), xor, min(offsets), max(offsets))


def filled(store: native.Store, count: int) -> list[tuple[int, bytes, bytes]]:
    """Put messages of many lengths, some without a key."""
    rng, made = random.Random(count), list[tuple[int, bytes, bytes]]()
    for offset in range(count):
        key = b"key%d" % offset if offset % 3 else b""
        body = rng.randbytes(rng.randrange(200))
        store.put(TOPIC, 0, body, b"UNIQ_KEY\x01%s\x02" % key if key else b"")
        made.append((offset, key, body))
    return made


def asked(begin: int, end: int, **changes: str) -> Command:
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
    given = {**fields, "begin": str(begin), "end": str(end), **changes}
    return Command(RequestCode.GET_SUMS, given)


async def sums(it: Cluster, begin: int, end: int, **changes: str) -> tuple[Sum, int]:
    answer = await it.call(asked(begin, end, **changes))
    assert answer.code == 0, answer.remark
    told = ext(answer)
    found = Sum(*(int(told[name]) for name in ("count", "xor", "first", "last")))
    return found, int(told["next"])


async def ready(it: Cluster, count: int) -> list[tuple[int, bytes, bytes]]:
    it.broker.metadata.topics.put(TopicConfig(name=TOPIC, read_queues=2, write_queues=2))
    made = filled(it.broker.store.native, count)
    await dispatched(it)
    return made


def test_second_opinion_of_the_hash_is_the_published_one() -> None:
    # The vectors of the reference implementation.
    assert xxh64(b"", 0) == 0xEF46DB3751D8E999
    assert xxh64(b"abc", 0) == 0x44BC2CF5AD770999
    assert xxh64(b"Nobody inspects the spammish repetition", 0) == 0xFBCEA83C8A378BF1


def test_sums_of_a_range_are_those_of_its_messages(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        made = await ready(it, 300)
        for begin, end in ((0, 300), (0, 1), (17, 250), (299, 300), (120, 9_000)):
            assert await sums(it, begin, end) == (expected(made[begin:end]), end)
        assert await sums(it, 300, 10_000) == (Sum(), 10_000)
        assert await sums(it, 0, 10, queueId="1") == (Sum(), 10)
        # What two parts come to is what the whole does.
        (one, _), (two, _) = await sums(it, 0, 100), await sums(it, 100, 300)
        assert one.plus(two) == two.plus(one) == expected(made)
        (stored,) = {it.store_timestamp for it in await pulled(it, 150)}
        later, _ = await sums(it, 0, 300, storedBegin=str(stored + 1))
        before, _ = await sums(it, 0, 300, storedEnd=str(stored + 1))
        assert later.plus(before) == expected(made)
        assert before.messages >= 1

    play(tmp_path, tell)


async def pulled(it: Cluster, offset: int) -> list[Record]:
    found: list[Record] = records(await it.pull(TOPIC, offset))
    return found[:1]


def test_sums_stop_at_their_bytes_and_say_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receive, "SUM_BYTES_MAX", 1)

    async def tell(it: Cluster) -> None:
        made = await ready(it, 100)
        at, found = 0, Sum()
        while at < 100:
            part, following = await sums(it, at, 100)
            assert at < following < at + 100
            at, found = following, found.plus(part)
        assert found == expected(made)

    play(tmp_path, tell)


def test_sums_are_refused_with_the_codes_of_pulls(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await ready(it, 1)
        cases = (
            (asked(0, 10_001), ResponseCode.INVALID_PARAMETER),
            (asked(5, 5), ResponseCode.INVALID_PARAMETER),
            (asked(-1, 5), ResponseCode.INVALID_PARAMETER),
            (asked(0, 2**63 - 1), ResponseCode.INVALID_PARAMETER),
            (asked(0, 1, queueId="2"), ResponseCode.INVALID_PARAMETER),
            (asked(0, 1, queueId="-1"), ResponseCode.INVALID_PARAMETER),
            (asked(0, 1, topic="nobody"), ResponseCode.TOPIC_NOT_EXIST),
        )
        for command, code in cases:
            answer = await it.call(command)
            assert answer.code == code, (command.ext, answer.remark)
            assert answer.remark

    play(tmp_path, tell)


def test_sums_need_the_right_to_read_the_topic(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        made = await ready(it, 3)
        answer = await it.call(READER.sign(asked(0, 3)))
        assert (answer.code, ext(answer)["xor"]) == (0, str(expected(made).xor))
        texts = "No accessKey is configured", f"No default permission for topic:{TOPIC}"
        for command, text in zip((asked(0, 3), OTHER.sign(asked(0, 3))), texts, strict=True):
            answer = await it.call(command)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert text in str(answer.remark)
            assert not (answer.ext or {}).get("xor")

    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf" / "plain_acl.yml"
    file.touch(0o600)
    file.write_text(ACCOUNTS)
    play(tmp_path, tell, rocketmqHome=str(tmp_path), aclEnable="true")


def test_more_sums_than_may_be_in_hand_are_told_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receive, "SUMS_WAITING", 0)

    async def tell(it: Cluster) -> None:
        await ready(it, 1)
        answer = await it.call(asked(0, 1))
        assert answer.code == ResponseCode.SYSTEM_BUSY, answer.remark

    play(tmp_path, tell)


def test_sums_in_hand_are_counted_down_after_each(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        made = await ready(it, 40)
        for _ in range(4):
            several = [sums(it, 0, 40) for _ in range(6)]
            found = await asyncio.gather(*several)
            assert {told for told, _ in found} == {expected(made)}

    play(tmp_path, tell)


def test_sums_of_what_is_no_record_are_an_error() -> None:
    with pytest.raises(ValueError, match="record at byte 0"):
        summed(b"x" * 100, 0, 10, (None, None))
    with pytest.raises(ValueError, match="one offset at least"):
        native.sum_records([], bucket=0)
