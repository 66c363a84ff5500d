"""Pairs of both makes with light topics: what the slave has of them, and gives as a master."""

from __future__ import annotations

import contextlib
import json
import random
from typing import TYPE_CHECKING

import pytest

from light_harness import (
    GROUP,
    ON,
    PARENT,
    ack_command,
    ctl_command,
    light_properties,
    pop_command,
    popped,
    queue,
    topic_fields,
)
from roquet.base.errors import RoquetError
from roquet.protocol.bodies.light_topics import LightTopic
from roquet.protocol.bodies.offsets import ConsumerOffsetBody
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.testing.cluster import send_command
from roquet.testing.pair import NAME, Make, Pair, Side, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from light_harness import LightPop

NAMES = ("a", "b")


def asked(pair: Pair, side: Side, command: Command) -> Command:
    answer = pair.call(side, command)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


def made(pair: Pair, side: Side) -> None:
    """Have the parent and a group that is bound to it."""
    fields = topic_fields(PARENT, **{"message.type": "LITE"})
    asked(pair, side, Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=fields))
    group = {"groupName": GROUP, "attributes": {"+lite.bind.topic": PARENT}}
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    asked(pair, side, Command(code, body=json.dumps(group).encode()))


def sent(pair: Pair, side: Side, name: str, *bodies: bytes) -> None:
    for body in bodies:
        text = light_properties(name, UNIQ_KEY=body.decode())
        asked(pair, side, send_command(PARENT, body, 0, text))


def stored(pair: Pair, side: Side) -> dict[str, int]:
    """Return how many messages each light topic gives."""
    code = RequestCode.GET_LITE_TOPIC_INFO
    fields = [{"parentTopic": PARENT, "liteTopic": name} for name in NAMES]
    answers = [asked(pair, side, Command(code, ext=it)) for it in fields]
    return {it.name: it.max_offset for it in (LightTopic.decode(one.body) for one in answers)}


def subscribed(pair: Pair, side: Side) -> None:
    asked(pair, side, ctl_command("COMPLETE_ADD", NAMES))


def came(pair: Pair, side: Side, count: int) -> LightPop:
    """Pop until one answer has so many messages; what it has is in flight afterwards."""
    found: list[LightPop] = []

    def has_come() -> bool:
        with contextlib.suppress(RoquetError):
            answer = pair.call(side, pop_command(pollTime="1000"))
            if answer.code == ResponseCode.SUCCESS:
                found.append(popped(answer, NAME))
        return sum(len(one.bodies) for one in found) >= count

    wait_until(f"{count} messages", has_come, 240)
    assert sum(len(one.bodies) for one in found) == count, [one.bodies for one in found]
    (first, *more) = found
    for one in more:
        first.records.extend(one.records)
        first.handles.extend(one.handles)
    return first


def committed(pair: Pair, side: Side) -> dict[str, int]:
    """Return where the group is in each light topic, as slaves copy it."""
    answer = asked(pair, side, Command(RequestCode.GET_ALL_CONSUMER_OFFSET))
    offsets = ConsumerOffsetBody.decode(answer.body).offsets
    keys = {name: f"{queue(name)}@{GROUP}" for name in NAMES}
    return {name: offsets[key][0] for name, key in keys.items() if key in offsets}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("master", "slave"), [("ours", "java"), ("java", "ours")])
def test_slave_that_becomes_master_goes_on_in_light_topics_of_the_other_make(
    tmp_path: Path, master: Make, slave: Make
) -> None:
    """What was acknowledged does not come again, what was in flight does; new messages follow."""
    with Pair(tmp_path, master, slave, random.Random(), ON) as pair:
        pair.start("master")
        pair.start("slave")
        wait_until("the slave follows", lambda: _has_slaves(pair), 240)
        made(pair, "master")
        subscribed(pair, "master")
        sent(pair, "master", "a", b"a0", b"a1", b"a2")
        sent(pair, "master", "b", b"b0")
        # A message is in its queue a moment after it is acknowledged; a pop takes what is there.
        wait_until("all are there", lambda: stored(pair, "master") == {"a": 3, "b": 1}, 60)
        taken = came(pair, "master", 4)
        assert sorted(taken.bodies) == [b"a0", b"a1", b"a2", b"b0"]
        by_body = dict(zip(taken.bodies, taken.handles, strict=True))
        for body in (b"a0", b"b0"):
            asked(pair, "master", ack_command(by_body[body]))
        assert committed(pair, "master") == {"a": 1, "b": 1}
        sent(pair, "master", "b", b"b1")

        def is_copied() -> bool:
            return committed(pair, "slave") == {"a": 1, "b": 1}

        wait_until("the slave has the offsets", is_copied, 240)
        pair.catch_up()
        pair.kill("master")
        pair.stop("slave")
        pair.promote()
        sent(pair, "slave", "a", b"a3")
        subscribed(pair, "slave")
        taken = came(pair, "slave", 4)
        assert sorted(taken.bodies) == [b"a1", b"a2", b"a3", b"b1"]
        for one in taken.handles:
            asked(pair, "slave", ack_command(one))
        assert committed(pair, "slave") == {"a": 4, "b": 2}


def _has_slaves(pair: Pair) -> bool:
    status = pair.status("master")
    return status is not None and bool(status.slaves)
