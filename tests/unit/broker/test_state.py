"""What the broker takes at the moment, and who hears when that changes."""

from __future__ import annotations

from roquet.broker.state import BrokerState


def test_fact_that_is_set_to_what_it_is_tells_nobody() -> None:
    # Each news takes all rows back from the threads of connections, and timers set facts often.
    state = BrokerState()
    told: list[int] = []
    state.listen(lambda: told.append(state.version))
    before = state.version
    state.lacks_slave = False
    state.permission = state.permission
    assert not told
    assert state.version == before
    state.lacks_slave = True
    assert told == [before + 1]
