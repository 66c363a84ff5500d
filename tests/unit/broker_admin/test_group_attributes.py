"""Attributes of groups: they change one by one, by their names with a sign."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from broker_harness import play
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

GROUP = "readers"


async def set_group(it: Cluster, **attributes: str) -> Command:
    """Make or change the group."""
    body = json.dumps({"groupName": GROUP, "attributes": attributes}).encode()
    return await it.call(Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))


def test_group_attributes_change_one_by_one(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        async def attributes() -> dict[str, str]:
            config = it.broker.metadata.groups.get(GROUP)
            return {} if config is None else dict(config.attributes)

        for wrong, remark in (
            ({"-priority.factor": ""}, "only add attribute is supported"),
            ({"+priority.factor": "101"}, "value is not in range(0, 100)"),
            ({"+priority.factor": "x"}, "value is not a number"),
            ({"+odd": "1"}, "unsupported key: odd"),
            ({"+": "1"}, "kv string format wrong"),
            ({"+lite.bind.topic": "t" * 256}, "value is not a text of 255 characters"),
            ({"+lite.sub.model": "shared"}, "value is not in set: ['Exclusive', 'Shared']"),
            ({"+lite.sub.reset.offset.exclusive": "1"}, "boolean attribute format is wrong."),
            ({"+lite.sub.reset.offset.unsubscribe": ""}, "boolean attribute format is wrong."),
            ({"+lite.sub.client.quota": "-2"}, "value is not in range(-1, 9223372036854775807)"),
            ({"+lite.sub.client.quota": "9" * 19}, "value is not a number"),
            (
                {"+lite.sub.client.max.event.cnt": "9"},
                "value is not in range(10, 9223372036854775807)",
            ),
            ({"lite.sub.wildcard": "x", "+lite.sub.wildcard": "y"}, "alter duplication key"),
        ):
            answer = await set_group(it, **wrong)
            assert (answer.code, remark in (answer.remark or "")) == (1, True), answer.remark
            assert it.broker.metadata.groups.get(GROUP) is None
        assert (await set_group(it, **{"+priority.factor": "40"})).code == 0
        assert await attributes() == {"priority.factor": "40"}
        # A change of the group that does not name them leaves them.
        assert (await set_group(it)).code == 0
        assert await attributes() == {"priority.factor": "40"}
        # As it was read, without a sign, is how tools write a group back.
        assert (await set_group(it, **{"priority.factor": "30"})).code == 0
        assert await attributes() == {"priority.factor": "30"}
        assert (await set_group(it, **{"-priority.factor": ""})).code == 0
        assert await attributes() == {}
        answer = await set_group(it, **{"-priority.factor": ""})
        assert (answer.code, answer.remark) == (
            1,
            "attempt to delete a nonexistent key: priority.factor",
        )

    play(tmp_path, tell)


def test_attributes_of_light_topics_are_kept_as_given(tmp_path: Path) -> None:
    wanted = {
        "lite.bind.topic": "chats",
        "lite.sub.model": "Exclusive",
        "lite.sub.reset.offset.exclusive": "TRUE",
        "lite.sub.reset.offset.unsubscribe": "false",
        "lite.sub.client.quota": "-1",
        "lite.sub.client.max.event.cnt": "9223372036854775807",
        "lite.sub.wildcard": "",
    }

    async def tell(it: Cluster) -> None:
        signed = {f"+{key}": value for key, value in wanted.items()}
        assert (await set_group(it, **signed)).code == 0
        config = it.broker.metadata.groups.get(GROUP)
        assert config is not None
        assert dict(config.attributes) == wanted
        # What a value cannot be changes nothing else of the request either.
        wrong = {"-lite.sub.wildcard": "", "+lite.sub.client.quota": "x"}
        assert (await set_group(it, **wrong)).code == 1
        config = it.broker.metadata.groups.get(GROUP)
        assert config is not None
        assert dict(config.attributes) == wanted

    play(tmp_path, tell)
