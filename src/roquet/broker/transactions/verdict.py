"""What is to happen with an open half message in a round of checks. Pure (spec: broker (f))."""

from __future__ import annotations

import dataclasses
import enum
import re

from roquet.base.config import setting
from roquet.protocol import properties as props

_SECONDS = re.compile(r"[0-9]{1,10}", re.ASCII)
_TIMES = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Settings of transactions."""

    reject: bool = setting(
        "rejectTransactionMessage", False, "Whether half messages are refused.", live=True
    )
    timeout_ms: int = setting(
        "transactionTimeOut",
        6_000,
        "A half message is not asked about before.",
        unit="ms",
        low=0,
        live=True,
    )
    checks_max: int = setting(
        "transactionCheckMax",
        15,
        "Checks after which a half message is put aside.",
        low=1,
        high=10_000,
        live=True,
    )
    interval_ms: int = setting(
        "transactionCheckInterval",
        30_000,
        "Between rounds of checks.",
        unit="ms",
        low=10,
        live=True,
    )
    op_bytes_max: int = setting(
        "transactionOpMsgMaxSize",
        4_096,
        "Body of an op record that is written at once.",
        unit="bytes",
        low=32,
        high=1_048_576,
        live=True,
    )
    op_interval_ms: int = setting(
        "transactionOpBatchInterval",
        100,
        "Longest time that an op record gathers; 3000 in RocketMQ.",
        unit="ms",
        low=1,
        high=60_000,
        live=True,
    )
    metrics_interval_ms: int = setting(
        "transactionMetricFlushInterval",
        10_000,
        "Between saves of the counts of half messages.",
        unit="ms",
        low=10,
        live=True,
    )


class Verdict(enum.Enum):
    """What to do with an open half message now."""

    STOP = "this one and all behind it are too young"
    WAIT = "its producer asked for more time"
    CHECK = "its producer is asked"
    DISCARD = "it was asked about often enough, or is too old"


def immunity_ms(text: str | None, timeout_ms: int) -> int:
    """Return how long nobody asks about a half message, by its property in seconds."""
    if text is None or _SECONDS.fullmatch(text) is None:
        return timeout_ms
    return max(int(text) * 1000, timeout_ms)


def checks_of(properties: dict[str, str]) -> int:
    """Return how often a half message was asked about."""
    text = properties.get(props.TRANSACTION_CHECK_TIMES, "")
    return int(text) if _TIMES.fullmatch(text) else 0


def judge(
    properties: dict[str, str], age_ms: int, rules: TransactionConfig, keep_ms: int
) -> Verdict:
    """Decide about a half message that was first stored `age_ms` ago.

    An age below zero means that the clock was set back; far back, and it is asked about at once.
    """
    checks = checks_of(properties)
    if checks >= rules.checks_max or age_ms > keep_ms:
        return Verdict.DISCARD
    text = properties.get(props.CHECK_IMMUNITY_TIME_IN_SECONDS)
    immune_ms = immunity_ms(text, rules.timeout_ms)
    if checks == 0 and -immune_ms <= age_ms < immune_ms:
        return Verdict.STOP if text is None else Verdict.WAIT
    return Verdict.CHECK
