"""Requests of POP with drawn fields: most are what a client says, and some are what nobody says.

A request with only odd fields ends at the first check. So most fields of each are plausible, and
one to three are drawn: receipt handles part by part, sets of a batch bit by bit.
"""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

TOPIC, GROUP, BROKER = "Hostile", "hostile_group", "broker-a"
BATCH_ACK = 200_151
CODES = (
    *(200_050, 200_050, 200_051, 200_051, 200_052, 200_053, 200_053, 200_054, 200_055, 200_056),
    *range(200_070, 200_080),
    *(BATCH_ACK, BATCH_ACK, 400, 401, 402),
)
NUMBERS = (
    *("0", "-1", "1", "31", "32", "33", "999", "1000000000", "1_0", "+1", "007", " 1", "NaN", ""),
    *(str(2**31 - 1), str(2**31), str(2**63 - 1), str(2**63), str(-(2**63)), "9" * 400),
)
TEXTS = (
    *("", "*", "a || b", "||", "(((", "x = 1 AND", 'a"b\\c', "\0", "\x01a\x02", "\u00e4" * 200),
    *("null", "{}", "a" * 40_000, "%LMQ%light", "%DLQ%" + GROUP),
    *(f"%RETRY%{GROUP}_{TOPIC}", f"%RETRY%{GROUP}+{TOPIC}", "%RETRY%", "rmq_sys_wheel_timer"),
    *("SCHEDULE_TOPIC_XXXX", "rmq_sys_REVIVE_LOG_DefaultCluster"),
)
NUMBERED = frozenset(
    {"queueId", "maxMsgNums", "invisibleTime", "pollTime", "bornTime", "initMode", "offset"}
)


def drawn(rng: random.Random) -> tuple[int, dict[str, str], bytes]:
    """Return code, fields and body of a request."""
    code = rng.choice(CODES)
    ext = _plausible(rng)
    for name in rng.sample(sorted(ext), rng.choice((0, 1, 1, 1, 2, 3))):
        ext[name] = rng.choice(NUMBERS if name in NUMBERED else TEXTS)
    for name in rng.sample(sorted(ext), rng.choice((0, 0, 0, 1))):
        del ext[name]
    body = _batch(rng) if code == BATCH_ACK else rng.choice((b"", b"", b"", b"x", bytes(5000)))
    return code, ext, body


def _plausible(rng: random.Random) -> dict[str, str]:
    return {
        "topic": TOPIC,
        "consumerGroup": GROUP,
        "group": GROUP,
        "clientId": "hostile",
        "queueId": str(rng.randrange(-1, 5)),
        "maxMsgNums": str(rng.randrange(1, 33)),
        "invisibleTime": str(rng.choice((0, 1000, 60_000, 259_200_000))),
        # What waits is forgotten with its connection.
        "pollTime": str(rng.choice((0, 0, 50, 20_000))),
        "bornTime": str(now_ms() + rng.choice((0, 0, -100_000, 100_000))),
        "initMode": rng.choice("01"),
        "exp": rng.choice(("*", "a", "a || b", "n = 5")),
        "expType": rng.choice(("TAG", "TAG", "SQL92", "")),
        "order": rng.choice(("false", "false", "true")),
        "attemptId": rng.choice(("one", "", "a" * 5000)),
        "suspend": rng.choice(("false", "true")),
        "offset": str(rng.randrange(-1, 40)),
        "extraInfo": _handle(rng),
        **({"liteTopic": "light"} if rng.random() < 0.1 else {}),
        **({"parentTopic": TOPIC, "bindTopic": TOPIC} if rng.random() < 0.2 else {}),
    }


def _handle(rng: random.Random) -> str:
    """Draw a receipt handle of eight parts: one of them may be anything, and one may be missing."""
    offset = rng.randrange(40)
    parts = [
        *(str(offset), str(now_ms() - rng.randrange(100_000)), "60000"),
        *(str(rng.choice((0, 3, 7, 8, 999))), rng.choice(("0", "0", "1", "2", "x")), BROKER),
        *(str(rng.randrange(-1, 5)), str(offset + rng.choice((0, 0, 1, -1)))),
    ]
    if rng.random() < 0.3:
        parts[rng.randrange(len(parts))] = rng.choice(NUMBERS)
    if rng.random() < 0.05:
        del parts[rng.randrange(len(parts))]
    return rng.choice((" ", " ", " ", " ", "  ", "\t")).join(parts)


def _batch(rng: random.Random) -> bytes:
    """Draw a batch of acknowledgements: bit sets of any length, numbers of any kind."""
    rows: list[dict[str, object]] = []
    for _ in range(rng.choice((0, 1, 1, 2, 30, 5000))):
        bits = rng.randbytes(rng.choice((0, 1, 4, 4, 200)))
        row: dict[str, object] = {
            "b": base64.b64encode(bits).decode(),
            "c": GROUP,
            "it": 60_000,
            "pt": now_ms() - rng.randrange(100_000),
            "q": rng.randrange(-1, 5),
            "r": rng.choice(("0", "0", "0", "1", "2")),
            "rq": rng.choice((0, 7, 8, 999, -1)),
            "so": rng.randrange(40),
            "t": TOPIC,
        }
        if rng.random() < 0.3:
            odd: tuple[object, ...] = (None, -1, 2**63, 1.5, "x", [], {}, True, "a" * 3000)
            row[rng.choice(sorted(row))] = rng.choice(odd)
        rows.append(row)
    body: dict[str, object] = {"acks": rows, "brokerName": BROKER}
    if rng.random() < 0.1:
        body[rng.choice(sorted(body))] = rng.choice((None, 5, [], [1], [[]], {}, "x"))
    data = json.dumps(body).encode()
    return data[: rng.randrange(len(data))] if rng.random() < 0.1 else data


def now_ms() -> int:
    """Return the time, Unix milliseconds."""
    return time.time_ns() // 1_000_000
