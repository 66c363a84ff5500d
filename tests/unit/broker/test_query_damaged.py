"""A message that the disk has damaged is found neither by its key nor by its place."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.store.records import read_records
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.store.records import Record
    from roquet.testing.cluster import Cluster

BODY = b"a body that a disk may damage"


async def by_key(it: Cluster, key: str) -> Command:
    ext = {"topic": "T", "key": key, "maxNum": "32", "beginTimestamp": "0"}
    command = Command(RequestCode.QUERY_MESSAGE, ext={**ext, "endTimestamp": str(1 << 62)})
    return await it.call(command)


async def by_place(it: Cluster, offset: int) -> Command:
    return await it.call(Command(RequestCode.VIEW_MESSAGE_BY_ID, ext={"offset": str(offset)}))


def damage(folder: Path, begin: int) -> None:
    (log,) = folder.rglob("commitlog/00000000000000000000")
    at = log.read_bytes().index(BODY, begin)
    with log.open("r+b") as file:
        file.seek(at)
        file.write(b"A")


async def look(folder: Path) -> None:
    async with cluster(folder, "a") as it:
        for number in range(2):
            sent = await it.send("T", BODY, properties="KEYS\x01same\x02")
            assert sent.code == ResponseCode.SUCCESS, (number, sent)
        async with asyncio.timeout(60):
            # A message is in the index a moment after it is acknowledged.
            both: list[Record] = []
            while len(both) < 2:
                both = read_records((await by_key(it, "same")).body)
        assert [record.body for record in both] == [BODY, BODY]
        first = both[0].physical_offset
        assert (await by_place(it, first)).code == ResponseCode.SUCCESS

        damage(folder, first)

        left = read_records((await by_key(it, "same")).body)
        assert [record.physical_offset for record in left] == [both[1].physical_offset]
        answer = await by_place(it, first)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f"can not find message by the offset, {first}"
        assert (await by_place(it, left[0].physical_offset)).code == ResponseCode.SUCCESS


def test_damaged_records_are_left_out_of_answers(tmp_path: Path) -> None:
    asyncio.run(look(tmp_path))
