"""CLEAN_UNUSED_TOPIC (316) beside a table of topics that was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, play, records
from roquet.model.topic import TopicConfig
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

CLEAN = Command(RequestCode.CLEAN_UNUSED_TOPIC, {})


@pytest.mark.parametrize("loss", ["missing", "broken"])
def test_7556_nothing_is_cleaned_after_the_table_was_lost(tmp_path: Path, loss: str) -> None:
    table = tmp_path / "broker-a" / "config" / "topics.json"

    async def fill(it: Cluster) -> None:
        # Fresh, and nothing to clean: no reason to refuse.
        assert (await it.call(CLEAN)).code == 0
        await it.broker.metadata.topics.persist()
        assert (await it.send("orders", b"wanted")).code == 0
        await dispatched(it)

    async def refused(it: Cluster) -> None:
        assert it.broker.metadata.topics.get("orders") is None
        answer = await it.call(CLEAN)
        assert answer.code == 1
        assert "1 topics with queues are not in it (orders ...)" in (answer.remark or "")
        assert str(table) + ".lost" in (answer.remark or "")
        it.broker.metadata.topics.put(TopicConfig(name="other"))

    async def kept(it: Cluster) -> None:
        it.broker.metadata.topics.put(TopicConfig(name="orders", read_queues=1, write_queues=1))
        assert [record.body for record in records(await it.pull("orders"))] == [b"wanted"]
        # Now that all topics are there, nothing would be deleted.
        assert (await it.call(CLEAN)).code == 0
        it.broker.metadata.topics.remove("orders")

    async def cleaned(it: Cluster) -> None:
        assert (await it.call(CLEAN)).code == 0
        assert "orders" not in {row[0] for row in it.broker.store.native.queues()}

    play(tmp_path, fill)
    spare = table.with_name("topics.json.bak")
    if loss == "missing":
        table.unlink()
        spare.unlink(missing_ok=True)
    else:
        assert b'"orders"' not in spare.read_bytes()
        table.write_bytes(b"\0" * 100)
    play(tmp_path, refused)
    # The table that was saved meanwhile is whole, and still does not know what was lost.
    play(tmp_path, refused)
    play(tmp_path, kept)
    table.with_name("topics.json.lost").unlink()
    play(tmp_path, cleaned)
