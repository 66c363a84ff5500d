"""What users learn of assignments, and of what slaves copy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import auth_harness as users
from remoting_harness import on_loop
from roquet.protocol.command import Command
from roquet.testing.cluster import send_command

if TYPE_CHECKING:
    from pathlib import Path

ASSIGNMENT = json.dumps(
    {
        "topic": "orders",
        "consumerGroup": "vg",
        "clientId": "c1",
        "strategyName": "AVG",
        "messageModel": "CLUSTERING",
    }
).encode()


@on_loop
async def test_user_learns_of_no_assignment_and_no_table_of_others(tmp_path: Path) -> None:
    ann, bob = users.ANN, users.CLERK
    async with users.guarded(tmp_path, autoCreateTopicEnable="true") as it:
        await it.make(ann)
        await it.make(bob)
        await it.allow(ann, users.entry("Topic:orders", "Sub"), users.entry("Group:vg", "Sub"))
        await it.allow(bob, users.entry("Topic:mine", "All"), users.entry("Group:mine", "All"))
        assert (await it.call(send_command("orders", b"x"))).code == 0
        asked = Command(400, {}, ASSIGNMENT)
        assert (await it.call(asked, ann)).code == 0
        assert (await it.call(asked, bob)).code == 16
        for code in (43, 61, 402):
            assert (await it.call(Command(code, {}), ann)).code == 16, code
            # What slaves sign with: RocketMQ makes the inner user a super user.
            assert (await it.call(Command(code, {}), users.INNER)).code == 0, code
        await it.allow(bob, users.entry("Cluster:DefaultCluster", "Get"))
        assert (await it.call(Command(43, {}), bob)).code == 0


@on_loop
async def test_user_keeps_no_offsets_in_the_retry_topic_of_another_group(tmp_path: Path) -> None:
    ann = users.ANN
    async with users.guarded(tmp_path) as it:
        await it.make(ann)
        await it.allow(ann, users.entry("Group:mine", "Sub"))
        for code, group, answer in (
            *((14, "theirs", 16), (15, "theirs", 16)),
            # The one is not there, the other has no topic: the user may ask.
            *((14, "mine", 22), (15, "mine", 17)),
        ):
            asked = {"topic": f"%RETRY%{group}", "consumerGroup": "mine", "queueId": "0"}
            asked["commitOffset"] = "7"
            assert (await it.call(Command(code, asked), ann)).code == answer, (code, group)
