"""What `roquet doctor` says of a running broker's timers."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from roquet.cli.upkeep.doctor import Verdict, _damage

if TYPE_CHECKING:
    from roquet.client.sync import Admin


class Running:
    """Answers the runtime information of a broker."""

    def __init__(self, waits: int) -> None:
        self._waits = waits
        self.brokers = self

    def runtime(self, _: str) -> dict[str, str]:
        return {"timerWaits": str(self._waits)}


def test_doctor_warns_of_due_timers_that_waited_for_the_store() -> None:
    looks = list(_damage(cast("Admin", Running(3)), "127.0.0.1:10911"))
    assert (looks[0].verdict, looks[0].about) == (Verdict.WARN, "timers")
    assert "3 times" in looks[0].found
    quiet = _damage(cast("Admin", Running(0)), "127.0.0.1:10911")
    assert [it.about for it in quiet] == ["messages"]
