"""Two rules of the relay's workers: nobody hears of himself, and silence ends at its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay_harness import RawServer, looped, until, world
from roquet.relay import events as e
from roquet.relay import packets
from roquet.relay.codes import RelayCode

if TYPE_CHECKING:
    from pathlib import Path


def heard(server: RawServer, code: RelayCode) -> list[int]:
    """Return the ids that a server was told with packets of one code."""
    said = [command for command in server.got if command.code == code]
    if code == RelayCode.SERVER_MAP:
        return [other for one in said for other in packets.read_server_map(one)]
    return [packets.read_new_server(one).server_id for one in said]


@looped
async def test_relay_tells_a_server_of_all_others_and_never_of_itself(tmp_path: Path) -> None:
    async with world(tmp_path) as made, RawServer(1, 3) as one, RawServer(2, 3) as two:
        made.publish(one.entry)
        relay = await made.relay(workers=1)
        await until(lambda: relay.view.health().registered == 1)
        made.publish(one.entry, two.entry)
        await until(lambda: relay.view.health().registered == 2)
        await until(lambda: bool(heard(one, RelayCode.NEW_SERVER)))
        await until(lambda: bool(heard(two, RelayCode.SERVER_MAP)))
        assert heard(one, RelayCode.SERVER_MAP) == []
        assert heard(one, RelayCode.NEW_SERVER) == [2]
        assert heard(two, RelayCode.SERVER_MAP) == [1]
        # Registered anew, while the link before is in the table still.
        assert await relay.master.ask("reconnect", 2)
        await until(lambda: len(heard(two, RelayCode.SERVER_MAP)) == 2)
        await until(lambda: heard(one, RelayCode.NEW_SERVER) == [2, 2])
        assert heard(two, RelayCode.SERVER_MAP) == [1, 1]
        assert heard(two, RelayCode.NEW_SERVER) == []
        # On a newer link, while the older one is owned still.
        (worker,) = relay.view._workers
        worker.handle([e.NewServerNotice(packets.Other(2, 3, 0))])
        await until(lambda: heard(one, RelayCode.NEW_SERVER) == [2, 2, 2])
        worker.handle([e.NewServerNotice(packets.Other(1, 3, 0))])
        await until(lambda: heard(two, RelayCode.NEW_SERVER) == [1])
        assert heard(one, RelayCode.NEW_SERVER) == [2, 2, 2]


@looped
async def test_relay_ends_a_silent_link_after_the_timeout_and_not_before(tmp_path: Path) -> None:
    async with world(tmp_path) as made, RawServer(1, 3) as silent:
        silent.beats = False
        made.publish(silent.entry)
        # Longer than the test: only steps of the clock bring it about.
        relay = await made.relay(workers=1, heartbeat_ms=60_000, heartbeat_timeout_ms=600_000)
        (worker,) = relay.view._workers
        await until(lambda: 1 in worker.owned)
        await worker.watch()
        for _ in range(2):
            made.clock.shift_ms += 280_000
            await worker.watch()
            assert list(worker.owned) == [1], "it is not silent for so long yet"
        made.clock.shift_ms += 60_000
        await worker.watch()
        await until(lambda: 1 not in worker.owned)


@looped
async def test_relay_whose_wall_clock_is_set_ends_no_link(tmp_path: Path) -> None:
    async with world(tmp_path) as made, RawServer(1, 3) as silent:
        silent.beats = False
        made.publish(silent.entry)
        relay = await made.relay(workers=1, heartbeat_ms=60_000, heartbeat_timeout_ms=600_000)
        (worker,) = relay.view._workers
        await until(lambda: 1 in worker.owned)
        for _ in range(4):
            # Steps that do not look like a process that slept.
            made.clock.set_by_ms += 280_000
            await worker.watch()
        assert list(worker.owned) == [1]


@looped
async def test_relay_that_slept_judges_nobody_by_its_first_look(tmp_path: Path) -> None:
    async with world(tmp_path) as made, RawServer(1, 3) as server:
        made.publish(server.entry)
        relay = await made.relay(workers=1, heartbeat_ms=60_000, heartbeat_timeout_ms=600_000)
        (worker,) = relay.view._workers
        await until(lambda: 1 in worker.owned)
        made.clock.shift_ms += 700_000
        await worker.watch()
        assert list(worker.owned) == [1]
