"""Frames that producers, consumers and mischief makers might send, drawn from a seed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.protocol.command import Command
from roquet.protocol.messages.batch import encode as encode_batch
from roquet.remoting.codec import encode

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    Sign = Callable[[Command, bool], Command]
    """Signs a command; surely well, or perhaps badly."""

TYPED = {"message.type": "NORMAL", "queue.type": "SimpleCQ", "topic.reserve.time": "-1"}
"""Attributes that change nothing for a plain message."""
TOPICS = (
    *("Plain", "Typed", "Other", "Multi", "Ordered", "ReadOnly", "WriteOnly", "Compacted", "Lost"),
)
BY_SQL = ("TAGS = 'TagA' OR p0 IS NOT NULL", "TAGS IN ('TagB', 'TagÄ') AND KEYS IS NULL")
GROUPS = ("cg", "cg_tags", "cg_off", "cg_reset", "cg_nobody")
BODY_MAX = 4096
_DELAYS = (
    *(f"DELAY\x01{level}\x02" for level in (9, 10, 12, 14, 16, 18, 19, "017", 0)),
    "DELAY\x0117\x02REAL_TOPIC\x01Other\x02",
)
"""Levels that no run waits for, and some that are none."""
_HALF = "TRAN_MSG\x01true\x02PGROUP\x01pg\x02"
_HALVES = (
    *(_HALF, _HALF, _HALF, _HALF + "__transactionId__\x01other\x02"),
    "TRAN_MSG\x01TRUE\x02PGROUP\x01pg\x02",
    "TRAN_MSG\x01true\x02",
    _HALF + "DELAY\x0114\x02",
    _HALF + "TRANSACTION_CHECK_TIMES\x013\x02",
    _HALF + "REAL_QID\x012\x02",
)
"""Half messages, and some that are looked at more closely."""
HOLD_MS = 1000
"""How long a pull is asked to be held."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """One frame; `answered` tells whether an answer will come."""

    opaque: int
    frame: bytes
    answered: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Waiting:
    """A pull at the end of a queue, which waits for a message; the end is known when it is sent."""

    command: Command
    topic: str
    queue_id: int
    sign: Sign

    def at(self, offset: int) -> Sent:
        """Return it with the offset to begin at."""
        ext = {**(self.command.ext or {}), "queueOffset": str(offset)}
        frame = encode(self.sign(dataclasses.replace(self.command, ext=ext), False))
        return Sent(self.command.opaque, frame, answered=False)


def unsigned(command: Command, surely: bool) -> Command:
    """Sign nothing: for brokers without accounts."""
    del surely
    return command


class Frames:
    """Makes frames with opaque numbers of their own."""

    def __init__(self, rng: random.Random, sign: Sign = unsigned) -> None:
        self._rng = rng
        self._sign = sign
        self._opaque = 0
        self.oddness = 0.35
        """How many of the sends have something odd about them."""

    def frame(
        self,
        code: int,
        ext: dict[str, str] | None,
        body: bytes = b"",
        *,
        one_way: bool = False,
        surely: bool = False,
    ) -> Sent:
        command = self._command(code, ext, body, 2 if one_way else 0)
        return Sent(command.opaque, encode(self._sign(command, surely)), answered=not one_way)

    def _command(
        self, code: int, ext: dict[str, str] | None, body: bytes = b"", flag: int = 0
    ) -> Command:
        rng = self._rng
        self._opaque += 1
        return Command(
            code,
            ext,
            body,
            flag=flag,
            opaque=self._opaque,
            language=rng.choice(("JAVA", "GO", "CPP")),
            version=rng.choice((0, 62, 399, 513)),
            encoding=rng.choice((0, 0, 0, 1)),
        )

    # --- sends ----------------------------------------------------------------------------------

    def plain_send(self, topic: str, queue_id: int) -> Sent:
        """A send that is answered and has nothing odd about it."""
        fields = self._fields(topic)
        fields["queueId"] = str(queue_id)
        ext = {_SHORT[name]: value for name, value in fields.items()}
        return self.frame(310, ext, b"plain", surely=True)

    def answered_send(self, topic: str) -> Sent:
        """A send to a topic that is answered."""
        while not (sent := self.send(topic)).answered:
            pass
        return sent

    def batch(self) -> Sent:
        """A batch as producers send it, or one that has something odd about it."""
        rng = self._rng
        odd = rng.random() < self.oddness
        fields = {**self._fields(rng.choice(TOPICS[:4])), "batch": "true"}
        if rng.random() < 0.3:
            fields["properties"] = "WAIT\x01false\x02"
        elements = [
            (rng.randrange(8), rng.randbytes(rng.randrange(200)), self._properties().encode())
            for _ in range(rng.randrange(1, 9))
        ]
        body = encode_batch(elements)
        if odd:
            body = self._twist_batch(fields, elements, body)
        ext = {_SHORT[name]: value for name, value in fields.items()}
        return self.frame(rng.choice((320, 320, 310)), ext, body, one_way=rng.random() < 0.1)

    def _twist_batch(
        self, fields: dict[str, str], elements: list[tuple[int, bytes, bytes]], body: bytes
    ) -> bytes:
        rng = self._rng
        kind = rng.randrange(5)
        if kind == 0:
            return body[: rng.randrange(len(body))]
        if kind == 1:
            # The sizes that an element gives itself are not believed.
            return bytes(4) + body[4:]
        if kind == 2:
            flag, text, _ = elements[-1]
            properties = (rng.choice(_ODD_PROPERTIES) + self._properties()).encode()
            return encode_batch([*elements[:-1], (flag, text, properties[:32_767])])
        if kind == 3:
            fields["batch"] = rng.choice(("TRUE", "True", "false", "no"))
            return body
        return self._twist(fields, body)

    def _fields(self, topic: str) -> dict[str, str]:
        rng = self._rng
        return {
            "producerGroup": "pg",
            "topic": topic,
            "defaultTopic": "nothing",
            "defaultTopicQueueNums": "4",
            "queueId": str(rng.randrange(4)),
            "sysFlag": "0",
            "bornTimestamp": str(1_700_000_000_000 + rng.randrange(1000)),
            "flag": str(rng.choice((0, 0, 7, -1, 2**31 - 1))),
            "properties": self._properties(),
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": "false",
            "bname": "broker-a",
        }

    def send(self, topic: str | None = None) -> Sent:
        """A plain send, or one that has something odd about it."""
        rng = self._rng
        odd = rng.random() < self.oddness
        fields = self._fields(topic or rng.choice(TOPICS[:4] if not odd else TOPICS))
        body = rng.randbytes(rng.choice((1, 10, 100, 1000)))
        if rng.random() < 0.06:
            fields["properties"] = rng.choice(_DELAYS) + fields["properties"]
        elif rng.random() < 0.06:
            fields["properties"] = rng.choice(_HALVES) + fields["properties"]
            fields["sysFlag"] = rng.choice(("4", "4", "4", "0", "12"))
        if odd:
            body = self._twist(fields, body)
        short = rng.random() < 0.7
        ext = {_SHORT[name] if short else name: value for name, value in fields.items()}
        if rng.random() < 0.05:
            ext["unknown"] = "ignored"
        return self.frame(310 if short else 10, ext, body, one_way=rng.random() < 0.1)

    def _properties(self) -> str:
        rng = self._rng
        pairs = [("UNIQ_KEY", f"U{self._opaque:08X}"), ("WAIT", rng.choice(("true", "false")))]
        if rng.random() < 0.5:
            pairs.append(("KEYS", f"k{rng.randrange(50)}"))
        if rng.random() < 0.7:
            pairs.append(("TAGS", rng.choice(("TagA", "TagB", "TagÄ"))))
        pairs += [(f"p{n}", "v" * rng.randrange(1, 30)) for n in range(rng.randrange(3))]
        rng.shuffle(pairs)
        return "".join(f"{name}\x01{value}\x02" for name, value in pairs)

    def _twist(self, fields: dict[str, str], body: bytes) -> bytes:
        rng = self._rng
        kind = rng.randrange(8)
        if kind == 0:
            fields["properties"] = rng.choice(_ODD_PROPERTIES) + fields["properties"]
        elif kind == 1:
            fields["properties"] = rng.choice(_ODD_TEXTS)
        elif kind == 2:
            name = rng.choice(list(fields))
            del fields[name]
        elif kind == 3:
            name = rng.choice(("queueId", "sysFlag", "bornTimestamp", "flag", "reconsumeTimes"))
            fields[name] = rng.choice(_ODD_NUMBERS)
        elif kind == 4:
            fields["sysFlag"] = str(rng.choice((1, 2, 4, 8, 12, 0x30, 0x40, 0x80, 0x301, -1)))
        elif kind == 5:
            fields["topic"] = rng.choice(_ODD_TOPICS)
        elif kind == 6:
            return rng.choice((b"", b"x" * BODY_MAX, b"x" * (BODY_MAX + 1)))
        else:
            fields["maxReconsumeTimes"] = rng.choice(("16", "-1", "many"))
            fields["batch"] = rng.choice(("false", "FALSE", "no"))
        return body

    # --- reads and the rest ---------------------------------------------------------------------

    def pull(self) -> Sent:
        rng = self._rng
        ext = {
            "consumerGroup": rng.choice(GROUPS[:2] if rng.random() < 0.7 else GROUPS),
            "topic": rng.choice(TOPICS[:3] if rng.random() < 0.7 else TOPICS),
            "queueId": str(rng.choice((0, 1, 2, 3, 3, 3, 9, -1))),
            "queueOffset": str(rng.choice((0, 1, 5, 20, 100, 100_000, -1))),
            "maxMsgNums": str(rng.choice((1, 4, 32, 33, 50, 2**31 - 1, 0, -5))),
            "sysFlag": str(rng.choice((0, 0, 1, 4, 5, 1))),
            "commitOffset": str(rng.choice((0, 3, 7, -1, 10**6))),
            "suspendTimeoutMillis": "15000",
            "subVersion": str(rng.choice((0, 1, 1, 10**13))),
        }
        if rng.random() < 0.5:
            ext["subscription"] = rng.choice(("*", "", "TagA", "TagA || TagB", "||", *BY_SQL))
        if rng.random() < 0.3:
            ext["expressionType"] = rng.choice(("TAG", "", "SQL92"))
        if rng.random() < 0.1:
            ext[rng.choice(("maxMsgBytes", "requestSource", "liteTopic"))] = rng.choice(("1", "x"))
        if rng.random() < 0.05:
            del ext[rng.choice(list(ext))]
        return self.frame(rng.choice((11, 11, 11, 11, 361)), ext)

    def plain_pull(self) -> Sent:
        """A pull as consumers send it all day."""
        rng = self._rng
        ext = {
            "consumerGroup": rng.choice(GROUPS[:2]),
            "topic": rng.choice(TOPICS[:3]),
            "queueId": str(rng.randrange(3)),
            "queueOffset": str(rng.randrange(20)),
            "maxMsgNums": "32",
            "sysFlag": str(rng.choice((0, 1, 2, 3))),
            "commitOffset": str(rng.randrange(40)),
            "suspendTimeoutMillis": "15000",
            "subVersion": "1",
            "expressionType": "TAG",
        }
        if rng.random() < 0.3:
            ext["sysFlag"] = str(int(ext["sysFlag"]) | 4)
            ext["subscription"] = rng.choice(("TagA || TagB", " TagÄ", *BY_SQL))
            if ext["subscription"] in BY_SQL:
                ext["expressionType"] = "SQL92"
        return self.frame(rng.choice((11, 11, 11, 361)), ext)

    def waiting_pull(self) -> Waiting:
        """A pull that waits for the next message of a queue, or of one tag in it."""
        rng = self._rng
        topic, queue_id = rng.choice(TOPICS[:3]), rng.randrange(4)
        ext = {
            "consumerGroup": rng.choice(GROUPS[:2]),
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": "",
            "maxMsgNums": "32",
            "sysFlag": str(rng.choice((2, 2, 3, 6, 7))),
            "commitOffset": str(rng.randrange(40)),
            "suspendTimeoutMillis": str(HOLD_MS),
            "subscription": rng.choice(("*", "*", "TagA", BY_SQL[0])),
            "subVersion": "1",
            "expressionType": "TAG",
        }
        if ext["subscription"] in BY_SQL:
            ext["expressionType"] = "SQL92"
        return Waiting(
            self._command(rng.choice((11, 11, 11, 361)), ext), topic, queue_id, self._sign
        )

    def question(self) -> Sent:
        """Something that asks about offsets, or that nobody knows."""
        rng = self._rng
        where = {
            "consumerGroup": rng.choice(GROUPS),
            "topic": rng.choice(TOPICS),
            "queueId": str(rng.randrange(5)),
        }
        kind = rng.randrange(5)
        if kind == 0:
            return self.frame(14, where)
        if kind == 1:
            return self.frame(15, {**where, "commitOffset": str(rng.randrange(50))})
        if kind == 2:
            return self.frame(30, where)
        if kind == 3:
            return self.frame(31, where)
        return self.unknown()

    def unknown(self) -> Sent:
        """A code that nobody knows: answered at once."""
        return self.frame(9999, None, surely=True)


_SHORT = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
    "bname": "n",
}
_ODD_PROPERTIES = (
    # No level that a run reaches: whether a held pull finds the message is then a race.
    "DELAY\x019\x02",
    "DELAY\x010\x02",
    "TIMER_DELAY_SEC\x015\x02",
    "TRAN_MSG\x01true\x02",
    "TRAN_MSG\x01false\x02",
    "_SYS_MSG_PRIORITY_\x012\x02",
    "_SYS_MSG_PRIORITY_\x01high\x02",
    "POP_CK\x01x\x02",
    "MSG_REGION\x01mine\x02",
    "CLUSTER\x01mine\x02",
    "TRACE_ON\x01no\x02",
    "INNER_NUM\x013\x02",
    "KEYS\x01a\x02KEYS\x01b\x02",
    "UNIQ_KEY\x01first\x02",
    "empty\x01\x02",
    "\x01noname\x02",
    "\x02\x02",
    "half\x02",
    "two\x01a\x01b\x02",
    "".join(f"n{n}\x01v\x02" for n in range(40)),
    "big\x01" + "x" * 32_000 + "\x02",
)
_ODD_TEXTS = (
    "",
    "UNIQ_KEY\x01open",
    "TAGS\x01TagA\x02",
    "UNIQ_KEY\x01u\x02WAIT\x01FALSE\x02",
    "UNIQ_KEY\x01u\x02TAGS\x01" + "é" * 50 + "\x02",
    "no separators at all",
)
_ODD_NUMBERS = ("", "x", "-1", "4", "99", "1.0", "+1", "2147483648", "-2147483648", "1" * 20)
_ODD_TOPICS = (
    "bad name",
    "a/b",
    "",
    "x" * 127,
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "TBW102",
    "BenchmarkTest",
    "%RETRY%cg",
    "%DLQ%cg",
)
