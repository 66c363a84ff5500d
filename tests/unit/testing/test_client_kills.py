"""What the kills under official clients hold against the proxy, and what they do not."""

from __future__ import annotations

import time

from tools.faults.proxy.kill_clients import INVISIBLE_S, Ledger

BODY = b"1-1"


def ledger() -> Ledger:
    found = Ledger()
    found.sent.add(BODY)
    found.stored.add(BODY)
    return found


def test_confirmed_message_that_never_comes_is_lost() -> None:
    it = ledger()
    assert it.lost == [BODY]
    assert it.judge({}) == [f"1 confirmed messages are in no queue: [{BODY!r}]"]
    it.came(BODY, 1, time.monotonic())
    assert it.lost == []
    assert it.open == [BODY]


def test_message_that_nobody_sent_is_told() -> None:
    it = ledger()
    assert it.came(b"other", 1, time.monotonic()) is None
    assert it.judge({BODY: 1}) == ["nobody has sent b'other'"]


def test_early_and_settled_deliveries_count_where_one_copy_is_stored() -> None:
    it, now = ledger(), time.monotonic()
    chain = it.came(BODY, 1, now)
    assert chain is not None
    it.settled(chain, now, is_sure=True)
    assert it.open == []
    it.came(BODY, 2, time.monotonic())
    early, settled = it.judge({BODY: 1})
    assert "came again after 0.0 s" in early
    assert "was acknowledged after 0.0 s" in settled
    # The client has sent it twice: it may be the other copy.
    assert it.judge({BODY: 2}) == []


def test_late_or_unanswered_acknowledgement_settles_nothing() -> None:
    for began, is_sure in ((time.monotonic() - INVISIBLE_S, True), (time.monotonic(), False)):
        it = ledger()
        chain = it.came(BODY, 1, began)
        assert chain is not None
        it.settled(chain, began, is_sure=is_sure)
        assert it.open == []
        chain.at = time.monotonic() - INVISIBLE_S
        it.came(BODY, 2, time.monotonic())
        assert it.judge({BODY: 1}) == []


def test_second_delivery_of_a_first_attempt_is_a_second_copy() -> None:
    it, now = ledger(), time.monotonic()
    it.came(BODY, 1, now)
    it.came(BODY, 1, now)
    assert len(it.chains[BODY]) == 2
    assert it.judge({BODY: 1}) == [f"{BODY!r} came twice as attempt 1"]
    assert it.judge({BODY: 2}) == []
