"""A broker on an IPv6 address: everything that reaches it by IPv4 reaches it by IPv6."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, ext, play, records
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster


@pytest.mark.parametrize("threads", ["0", "1"])
@pytest.mark.parametrize("fast", ["true", "false"])
def test_sends_over_ipv6_are_stored_with_their_senders_address(
    tmp_path: Path, threads: str, fast: str
) -> None:
    async def tell(it: Cluster) -> None:
        assert it.address.startswith("[::1]:")
        answers = [
            await it.send("T", b"plain"),
            await it.send("T", b"plain again"),
            await it.send("T", b"with a key", properties="KEYS\x01k\x02"),
            await it.send("T", b"waits for no flush", properties="WAIT\x01false\x02"),
        ]
        assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 4
        await dispatched(it)
        found = records(await it.pull("T"))
        assert [record.body for record in found] == [
            *(b"plain", b"plain again", b"with a key", b"waits for no flush")
        ]
        for record, answer in zip(found, answers, strict=True):
            assert len(record.born_host) == len(record.store_host) == 20
            assert record.born_host[:16] == record.store_host[:16] == bytes(15) + b"\x01"
            by_id = await it.call(
                Command(
                    RequestCode.VIEW_MESSAGE_BY_ID,
                    ext={"offset": str(record.physical_offset)},
                )
            )
            assert records(by_id)[0].body == record.body
            assert len(ext(answer)["msgId"]) == 56, "16 bytes of address, 4 of port, 8 of offset"

    play(
        tmp_path,
        tell,
        bindAddress="::1",
        brokerIP1="::1",
        ioThreads=threads,
        fastPathEnable=fast,
    )
