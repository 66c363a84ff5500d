"""What a broker does at the moment: a set of duties that may change while it runs.

A part of the life-cycle table names the duties that it serves, and runs while all of them are held;
a part that names none runs always. Servers without roles hold `MASTER` and never change it.
"""

from __future__ import annotations

import enum


class Duty(enum.Flag):
    """One thing that a broker can be charged with, or several."""

    NONE = 0
    WRITES = enum.auto()
    """Take messages: the log is this broker's own."""
    FEEDS = enum.auto()
    """Listen for slaves and give them the log."""
    DELAYS = enum.auto()
    """Deliver what waits in the delay levels."""
    TIMERS = enum.auto()
    """Turn the timer wheel."""
    REVIVE = enum.auto()
    """Store again what was popped and not acknowledged."""
    CHECKS = enum.auto()
    """Settle half messages, and ask producers about them."""
    POPS = enum.auto()
    """Serve POP."""
    COPIES = enum.auto()
    """Copy the log and the tables of a master."""


SPECIAL = Duty.DELAYS | Duty.TIMERS | Duty.REVIVE | Duty.CHECKS | Duty.POPS
"""What a broker does of its own accord with the messages in its log: it appends by itself."""
MASTER = Duty.WRITES | Duty.FEEDS | SPECIAL
SLAVE = Duty.COPIES


def names(duties: Duty) -> str:
    """Return the names of the duties, for people."""
    return ", ".join(str(duty.name).lower() for duty in duties) or "none"
