"""What the log of a cluster's proxy says of brokers that are not there or do not let it in."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from remoting_harness import on_loop
from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable
from roquet.broker.api.refusal import Reason
from roquet.proxy.cluster.calls import Calls
from roquet.proxy.rules.codes import Code
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    import pytest


class Client:
    """Says which masters there are."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.found: dict[str, str] | RoquetError = {}

    async def masters(self) -> dict[str, str]:
        if isinstance(self.found, RoquetError):
            raise self.found
        return self.found


@on_loop
async def test_log_says_once_why_there_is_no_broker_and_when_there_is_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    client = Client()
    calls = Calls(client)  # type: ignore[arg-type]

    async def said() -> list[tuple[str, str]]:
        caplog.clear()
        for _ in range(3):
            await calls.look()
        return [(record.levelname, record.getMessage()) for record in caplog.records]

    none = "clients cannot be served: no master broker is registered at the name servers"
    assert await said() == [("WARNING", none)]
    client.found = Unreachable("no name\nserver")
    assert await said() == [("WARNING", "clients cannot be served: no name\\nserver")]
    client.found = OutcomeUnknown("it took too long")
    assert await said() == [("WARNING", "clients cannot be served: it took too long")]
    client.found = {"b": "1:1", "a": "1:2"}
    assert await said() == [("INFO", "there are brokers: a, b")]
    assert await said() == []
    client.found = {}
    assert await said() == [("WARNING", none)]
    # A proxy that has had brokers from its start says nothing.
    client.found = {"a": "1:2"}
    calls = Calls(client)  # type: ignore[arg-type]
    assert await said() == []


@on_loop
async def test_log_names_brokers_that_are_away_and_that_do_not_let_the_proxy_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Client()
    calls = Calls(client)  # type: ignore[arg-type]
    told = calls.away("b1", Unreachable("refused"))
    assert (told.code, told.text) == (Code.INTERNAL_SERVER_ERROR, "b1 cannot be reached: refused")
    told = calls.away("b2", OutcomeUnknown("3 s"))
    assert (told.code, told.text) == (Code.PROXY_TIMEOUT, "b2 did not answer in time: 3 s")
    refusal = calls.refusal("b3", Refused(16, "User:in is not found."))
    assert refusal.reason is Reason.ACCOUNT_REFUSED
    # What is refused for another reason is the client's business.
    assert calls.refusal("b4", Refused(16, "the topic is closed")).reason is Reason.FORBIDDEN
    assert [record.getMessage() for record in caplog.records] == [
        "b1 cannot be reached: refused",
        "b2 did not answer in time: 3 s",
        "b3 does not let this proxy in: User:in is not found.",
    ]
