"""Numbers of redelivery as they are shown."""

from __future__ import annotations

import asyncio

from pop_world import PopWorld
from roquet.broker.pop.revive_metrics import watch_revive
from roquet.service.metrics import Metrics


def shown(metrics: Metrics) -> dict[str, float]:
    """Return the numbers of redelivery by name and labels."""
    lines = metrics.render().decode().splitlines()
    pairs = [line.rpartition(" ") for line in lines if "pop_revive" in line and line[0] != "#"]
    return {name: float(number) for name, _, number in pairs}


def test_redelivery_is_shown_by_queue_kind_and_outcome() -> None:
    async def story() -> None:
        world, metrics = PopWorld(), Metrics()
        watch_revive(world.service, metrics)
        assert 'rocketmq_pop_revive_lag_milliseconds{queue_id="0"}' not in shown(metrics)
        await world.service.tick()
        before = shown(metrics)
        assert 'rocketmq_pop_revive_lag_milliseconds{queue_id="0"}' in before
        assert {name for name, number in before.items() if number} == set(), "nothing came yet"
        offsets = [world.send(b"x") for _ in range(3)]
        first = await world.pop(offsets, 5000)
        await world.ack(first, offsets[0])
        await world.run(30)
        again = shown(metrics)
        assert len(world.again()) == 2
        owner = 'consumer_group="g"'
        out = "rocketmq_pop_revive_out_message_total"
        for kind in ("CK", "ACK"):
            labels = f'{owner},queue_id="0",revive_message_type="{kind}",topic="T"'
            assert again[f"{out}{{{labels}}}"] == 1
        put = f'{{{owner},put_status="PUT_OK",topic="T"}}'
        assert again[f"rocketmq_pop_revive_retry_messages_total{put}"] == 2
        assert again['rocketmq_pop_revive_lag_milliseconds{queue_id="0"}'] == world.service.lag(0)
        assert again['rocketmq_pop_revive_latency_milliseconds{queue_id="0"}'] == 0
        assert again["roquet_pop_revive_unreadable"] == 0
        counts = world.service.copies.counts
        kinds = ("dead", "gone", "failed", "orphans", "re_puts", "given_up", "no_room")
        for at, name in enumerate(kinds, 1):
            setattr(counts, name, at)
        for queue in world.service.queues.values():
            queue.counts.unreadable = 7
        now = shown(metrics)
        outcomes = {
            name.partition('outcome="')[2].rstrip('"}'): number
            for name, number in now.items()
            if "outcome" in name
        }
        assert outcomes == {
            "dead": 1,
            "gone": 2,
            "failed": 3,
            "orphans": 4,
            "re_puts": 5,
            "given_up": 6,
            "no_room": 7,
        }
        assert now["roquet_pop_revive_unreadable"] == 7 * len(world.service.queues)
        assert all("_total{" in name for name in now if "outcome" in name)

    asyncio.run(story())
