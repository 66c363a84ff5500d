"""CVE-2019-17572 at every door that takes a name or a number: none becomes a file elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, play, records
from roquet.base.errors import UsageError
from roquet.broker.config import load_config
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.subscription import SubscriptionData
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData
from roquet.protocol.bodies.groups import encode_group
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from roquet.testing.cluster import Cluster

PATHS = ("../evil", "../../evil", "/etc/evil", "a\0b", "..\\evil", ".", "..", "a/../../evil")


def tree(folder: Path) -> set[str]:
    """Return all names; the log makes its files ahead of time, on a thread of its own."""
    found = (path for path in folder.rglob("*") if path.parent.name != "commitlog")
    return {str(path.relative_to(folder)) for path in found}


async def leave(it: Cluster, name: str) -> tuple[int, int]:
    fields = {"clientID": name, "producerGroup": name, "consumerGroup": name}
    return (await it.call(Command(RequestCode.UNREGISTER_CLIENT, fields))).code, 0


async def make_group(it: Cluster, name: str) -> tuple[int, int]:
    body = encode_group(SubscriptionGroupConfig(name=name))
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    return (await it.call(Command(code, {}, body))).code, 29


async def delete_group(it: Cluster, name: str) -> tuple[int, int]:
    fields = {"groupName": name, "cleanOffset": "true"}
    return (await it.call(Command(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields))).code, 0


async def beat(it: Cluster, name: str) -> tuple[int, int]:
    wanted = (SubscriptionData(topic=name, version=1),)
    groups = (ConsumerData(group=name, subscriptions=wanted),)
    body = HeartbeatData(client_id=name, consumers=groups, producers=(name,)).encode()
    return (await it.call(Command(RequestCode.HEART_BEAT, {}, body))).code, 0


async def commit(it: Cluster, name: str) -> tuple[int, int]:
    fields = {"consumerGroup": name, "topic": "TBW102", "queueId": "0", "commitOffset": "1"}
    return (await it.call(Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields))).code, 26


async def show_units(it: Cluster, name: str) -> tuple[int, int]:
    fields = {"topic": name, "queueId": "0", "index": "0", "count": "1"}
    return (await it.call(Command(RequestCode.QUERY_CONSUME_QUEUE, fields))).code, 1


async def find(it: Cluster, name: str) -> tuple[int, int]:
    fields = {"topic": name, "key": name, "maxNum": "1"}
    fields |= {"beginTimestamp": "0", "endTimestamp": "9999999999999"}
    return (await it.call(Command(RequestCode.QUERY_MESSAGE, fields))).code, 22


@pytest.mark.parametrize("door", [leave, make_group, delete_group, beat, commit, show_units, find])
def test_cve_2019_17572_no_name_makes_a_file(
    tmp_path: Path, door: Callable[[Cluster, str], Awaitable[tuple[int, int]]]
) -> None:
    async def tell(it: Cluster) -> None:
        before = tree(tmp_path)
        for name in PATHS:
            code, wanted = await door(it, name)
            assert code == wanted, name
            await it.broker.metadata.persist_configs()
            await it.broker.metadata.persist_offsets()
        made = tree(tmp_path) - before
        tables = ("topics", "subscriptionGroup", "consumerOffset", "roquetDeletions")
        allowed = {"broker-a/config", *(f"broker-a/config/{table}.json" for table in tables)}
        assert {name.removesuffix(".bak") for name in made} <= allowed

    play(tmp_path, tell)
    # Some files are made by the stop only.
    assert {name.split("/")[0] for name in tree(tmp_path)} <= {"broker-a", "namesrv"}
    assert not list(tmp_path.rglob("*evil*"))
    assert not list((tmp_path / "broker-a").glob("consumequeue/*"))
    assert not Path("/etc/evil").exists()


@pytest.mark.parametrize("name", ["con", "nul", "%2e%2e", "%2e%2e%2fevil", "%RETRY%%2e%2e"])
def test_cve_2019_17572_odd_names_are_folders_as_others(tmp_path: Path, name: str) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send(name, b"x")).code == 0
        await dispatched(it)
        assert [record.body for record in records(await it.pull(name))] == [b"x"]

    play(tmp_path, tell)
    assert {path.split("/")[0] for path in tree(tmp_path)} <= {"broker-a", "namesrv"}
    queues = tmp_path / "broker-a" / "consumequeue"
    assert [str(path.relative_to(queues)) for path in queues.glob("*/*")] == [f"{name}/0"]


@pytest.mark.parametrize("queue_id", ["-2", "2147483647", "../0", "0/..", "%2e%2e", "1e3", "99"])
def test_cve_2019_17572_no_queue_id_makes_a_file(tmp_path: Path, queue_id: str) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders")).code == 0
        await dispatched(it)
        await it.pull("orders")
        before = tree(tmp_path)
        where = {"consumerGroup": "readers", "topic": "orders", "queueId": queue_id}
        if queue_id != "-2":
            # A negative one is the broker's choice, as in Java.
            assert (await it.send("orders", e=queue_id)).code == 29
        assert (await it.pull("orders", 0, queueId=queue_id)).code == 29
        for code in (
            RequestCode.UPDATE_CONSUMER_OFFSET,
            RequestCode.QUERY_CONSUMER_OFFSET,
            RequestCode.GET_MAX_OFFSET,
            RequestCode.GET_MIN_OFFSET,
            RequestCode.QUERY_CONSUME_QUEUE,
        ):
            fields = {**where, "commitOffset": "1", "index": "0", "count": "1"}
            await it.call(Command(code, fields))
        assert tree(tmp_path) == before

    play(tmp_path, tell)


@pytest.mark.parametrize("setting", ["brokerName", "brokerClusterName"])
@pytest.mark.parametrize("name", PATHS)
def test_cve_2019_17572_the_brokers_own_names_are_names(setting: str, name: str) -> None:
    with pytest.raises(UsageError, match=f"{setting} = .*: must be letters"):
        load_config(None, {}, {setting: name})
