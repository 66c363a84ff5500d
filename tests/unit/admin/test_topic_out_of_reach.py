"""A topic whose only broker is away: it is out of reach, not nowhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import roquet
from roquet.base.errors import Refused
from roquet.testing.cluster import running_broker, running_name_server

if TYPE_CHECKING:
    from pathlib import Path


def test_topic_of_a_broker_that_left_is_said_to_be_out_of_reach(tmp_path: Path) -> None:
    async def tell() -> None:
        async with running_name_server(tmp_path / "n") as name_server:
            address = f"127.0.0.1:{name_server.server.port}"
            async with roquet.connect(f"rmq://{address}") as mq:
                async with running_broker(tmp_path / "b", address):
                    await mq.admin().topics.create("t", 1)
                with pytest.raises(Refused, match=r"broker-a left .* start it") as refused:
                    await mq.admin().topics.route("t")
                assert refused.value.code == 17
                with pytest.raises(Refused, match="there is no topic other"):
                    await mq.admin().topics.route("other")

    asyncio.run(tell())
