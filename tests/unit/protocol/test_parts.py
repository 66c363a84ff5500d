"""Long bodies read part by part say what they say when they are read at once."""

from __future__ import annotations

import json

import pytest
from tools.budget.worst_bodies import heartbeat

from roquet.protocol import fastjson
from roquet.protocol.bodies.clients import HeartbeatData
from roquet.protocol.bodies.fields import PAUSE_BYTES, at_once
from roquet.protocol.bodies.groups import decode_groups, groups_of
from roquet.protocol.bodies.locks import LockRequest
from roquet.protocol.bodies.topics import decode_topic_configs, topic_configs_of
from roquet.protocol.fastjson import COMMAS_MAX, ITEM_SIZE_MAX, JsonError


def parts(body: bytes) -> dict[str, object]:
    found = fastjson.parts(body)
    assert found is not None
    return found


def test_each_body_read_by_parts_is_the_same_and_pauses() -> None:
    body = heartbeat(60, topics=8)
    steps = HeartbeatData.of_json(parts(body))
    pauses = sum(1 for _ in steps)
    assert at_once(HeartbeatData.of_json(parts(body))) == HeartbeatData.decode(body)
    assert pauses >= len(body) // PAUSE_BYTES // 2
    one = heartbeat(1, topics=1_000)
    assert at_once(HeartbeatData.of_json(parts(one))) == HeartbeatData.decode(one)
    queue = {"topic": "t", "brokerName": "b", "queueId": "3"}
    locks = json.dumps({"clientId": "c", "consumerGroup": "g", "mqSet": [queue]}).encode()
    assert at_once(LockRequest.of_json(parts(locks))) == LockRequest.decode(locks)
    topics = b'{"topicConfigList": [ {"topicName":"t","perm":"6"}, {"topicName":"u"} ]}'
    assert at_once(topic_configs_of(parts(topics))) == decode_topic_configs(topics)
    groups = b'{"groupConfigList":[{"groupName":"g","retryMaxTimes":3}]}'
    assert at_once(groups_of(parts(groups))) == decode_groups(groups)


def test_parts_leaves_loose_json_to_the_other_reader() -> None:
    for loose in (b"{a:1}", b"{'a':1}", b'{"a":[1,]}', b"[]", b"", b'{"a":{1:2}}'):
        assert fastjson.parts(loose) is None


def test_parts_refuses_what_would_take_long() -> None:
    with pytest.raises(JsonError, match="values"):
        fastjson.parts(b'{"a":[' + b"1," * COMMAS_MAX + b"1,1]}")
    long = b'{"topicConfigList":[{"topicName":"' + b"x" * ITEM_SIZE_MAX + b'"}]}'
    with pytest.raises(JsonError, match="one has at most"):
        at_once(topic_configs_of(parts(long)))
    with pytest.raises(JsonError, match="is not an object"):
        at_once(topic_configs_of(parts(b'{"topicConfigList":[1]}')))
