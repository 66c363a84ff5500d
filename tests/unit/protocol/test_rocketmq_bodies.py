"""Answers that only RocketMQ's controllers and brokers give, in their 5.5.0 shape."""

from __future__ import annotations

import pytest

from roquet.cli.mqadmin.rocketmq.extras import with_times
from roquet.protocol.bodies.rocketmq import controllers
from roquet.protocol.bodies.rocketmq.controllers import Epoch, Replica, ReplicaSet
from roquet.protocol.fastjson import JsonError


def test_members_of_an_election_stand_beside_the_set_in_sync() -> None:
    body = (
        b'{"brokerMemberGroup":{"brokerAddrs":{1:"127.0.0.1:25175",2:"127.0.0.1:21745"},'
        b'"brokerName":"alone","cluster":"Foreign"},"syncStateSet":[2]}'
    )
    assert controllers.decode_members(body) == {1: "127.0.0.1:25175", 2: "127.0.0.1:21745"}
    assert controllers.decode_members(b"") == controllers.decode_members(b"{}") == {}


def test_set_without_a_master_has_none() -> None:
    row = b'{"alive":false,"brokerAddress":"h:1","brokerId":1,"brokerName":"a"}'
    found = controllers.decode_replica_sets(
        b'{"replicasInfoTable":{"a":{"inSyncReplicas":[],"masterEpoch":3,'
        b'"notInSyncReplicas":[%s],"syncStateSetEpoch":4}}}' % row
    )
    replica = Replica(broker_name="a", broker_id=1, address="h:1", alive=False)
    assert found == {
        "a": ReplicaSet(
            master_id=None,
            master_address=None,
            master_epoch=3,
            set_epoch=4,
            in_sync=(),
            not_in_sync=(replica,),
        )
    }


def test_last_epoch_ends_where_the_log_does() -> None:
    found = controllers.decode_epochs(
        b'{"brokerId":0,"brokerName":"a","clusterName":"C","maxOffset":900,"epochList":['
        b'{"endOffset":300,"epoch":1,"startOffset":0},'
        b'{"endOffset":9223372036854775807,"epoch":2,"startOffset":300}]}'
    )
    assert found.epochs == (
        Epoch(number=1, start=0, end=300),
        Epoch(number=2, start=300, end=900),
    )


@pytest.mark.parametrize("data", [b"", b"[]", b'{"replicasInfoTable":[]}', b"{"])
def test_answer_of_another_kind_is_refused(data: bytes) -> None:
    with pytest.raises(JsonError):
        controllers.decode_replica_sets(data)


def test_cold_reads_have_times_and_nothing_that_a_terminal_obeys() -> None:
    row = {"coldAcc": 7, "lastColdReadTimeMills": 0, "createTimeMills": "1000"}
    found = with_times({"runtimeTable": {"g\x1b": row}, "configTable": {"h\n": 5}, "globalAcc": 1})
    assert list(found) == ["runtimeTable", "configTable", "globalAcc"]
    assert found["configTable"] == {"h\\n": 5}
    ((group, shown),) = found["runtimeTable"].items()
    assert (group, list(shown)) == (
        "g\\x1b",
        ["coldAcc", "lastColdReadTimeFormat", "createTimeFormat"],
    )
    assert shown["createTimeFormat"][-2:] == "01"
