"""Accounts that may do nothing, or read one topic, try every request; nothing may come of it.

What is looked for: a byte of a message (the canary) in any answer or question to accounts that may
not read its topic, any change of what they may not write, and any secret of the settings.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from tools.attack import matrix
from tools.attack.matrix import Aim
from tools.attack.raw import Frame, Key, RawClient
from tools.attack.records import Forged, Found

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

CANARY = b"canary-in-a-body"
FOREIGN = "secret"
OPEN, READABLE = "open", "readable"
THEIRS, MINE, PRODUCERS = "theirs", "mine", "tx"
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
RETRY, DEAD = f"%RETRY%{THEIRS}", f"%DLQ%{THEIRS}"
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
NAMESAKE = "a_secret"
"""With the group `mine` its pop retry topic is the one of the group `mine_a` and `secret`."""
VICTIMS = (FOREIGN, HALF, OP, SCHEDULE, RETRY, DEAD)
REFUSED = 1
NEVER = "1700000000000"
DELAY_18_QUEUE = 17
BODY_AT = 4 + 40 + 8 + 8 + 8 + 12 + 4
"""Bytes of a record before its body, with hosts of 8 bytes."""

POWERLESS = Key("powerless-one", "powerless-secret")
READER = Key("reader-of-one", "reader-secret")
ADMIN = Key("admin-of-all", "admin-secret")
WRONG = Key(ADMIN.access_key, "not-the-secret")
ATTACKERS: dict[str, Key | None] = {
    "nobody": None,
    "wrong secret": WRONG,
    "powerless": POWERLESS,
    "reader": READER,
}
ACCOUNTS = f"""\
accounts:
- {{accessKey: {ADMIN.access_key}, secretKey: {ADMIN.secret}, admin: true}}
- {{accessKey: {POWERLESS.access_key}, secretKey: {POWERLESS.secret}}}
- accessKey: {READER.access_key}
  secretKey: {READER.secret}
  defaultTopicPerm: SUB
  topicPerms: [{READABLE}=SUB, {OPEN}=PUB|SUB, {FOREIGN}=DENY, "{DEAD}=DENY"]
  groupPerms: [{MINE}=SUB]
"""
"""The accounts that a broker under attack has. The reader may read whatever is not denied by name:
the topics in which the broker keeps messages of others must not be among that."""


class Broken(Exception):  # noqa: N818  (a promise is)
    """The world could not be made ready for the attack."""


@dataclasses.dataclass(frozen=True, slots=True)
class World:
    """Where the victims' messages are: (place in the log, place in the queue)."""

    half: tuple[int, int]
    places: tuple[tuple[int, int], ...]


def place_of(frame_ext: dict[str, str]) -> tuple[int, int]:
    """Return where a message is by the answer to its send."""
    return int(frame_ext["msgId"][16:32], 16), int(frame_ext["queueOffset"])


def send(
    client: RawClient, topic: str, body: bytes, properties: str = "", **fields: str
) -> tuple[int, int]:
    """Send a message; return its place. Raises Broken."""
    ext = {
        "a": PRODUCERS,
        "b": topic,
        "c": "TBW102",
        "d": "2",
        "e": "0",
        "f": "0",
        "g": NEVER,
        "h": "0",
        "i": properties,
        "j": "0",
        "m": "false",
    }
    answer = client.call(matrix.SEND_SHORT, {**ext, **fields}, body)
    if answer.code != 0:
        raise Broken(f"{topic}: {answer.code} {answer.remark}")
    return place_of(answer.ext)


def prepare(admin: RawClient) -> World:
    """Make topics and messages that attackers may not have. Raises Broken."""
    for topic in (FOREIGN, OPEN, READABLE, NAMESAKE):
        ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "2"}
        more = {"writeQueueNums": "2", "perm": "6", "topicFilterType": "SINGLE_TAG"}
        _done(admin, matrix.CREATE_TOPIC, {**ext, **more, "topicSysFlag": "0", "order": "false"})
    _done(admin, matrix.HEARTBEAT, {}, matrix.heartbeat(FOREIGN, THEIRS, PRODUCERS))
    key = "KEYS\x01order-1\x02UNIQ_KEY\x01unique-1\x02"
    first = send(admin, FOREIGN, CANARY, key)
    half = send(
        admin, FOREIGN, CANARY, f"TRAN_MSG\x01true\x02PGROUP\x01{PRODUCERS}\x02{key}", f="4"
    )
    later = send(admin, FOREIGN, CANARY, f"DELAY\x0118\x02{key}")
    retried = send(admin, RETRY, CANARY, key)
    popped = f"%RETRY%{MINE}_{NAMESAKE}"
    send(admin, popped, CANARY, f"ORIGIN_GROUP\x01{MINE}_a\x02{key}")
    _visible(admin, popped, 0, 1)
    send(admin, READABLE, b"for every reader")
    _visible(admin, FOREIGN, 0, 1)
    back = {"group": THEIRS, "delayLevel": "-1", "offset": str(first[0])}
    _done(admin, matrix.SEND_BACK, {**back, "originTopic": FOREIGN, "unitMode": "false"})
    (dead,) = _visible(admin, DEAD, 0, 1)
    _visible(admin, SCHEDULE, DELAY_18_QUEUE, 1)
    places = (first, half, later, retried, (dead.physical_offset, 0))
    return World(half, places)


def forge(writer: RawClient) -> Iterator[tuple[int, int]]:
    """Send messages whose bodies are records; yield the places at which these would stand."""
    real = {"REAL_TOPIC": FOREIGN, "REAL_QID": "0", "PGROUP": PRODUCERS, "UNIQ_KEY": "u"}
    for topic in (HALF, FOREIGN, OPEN, SCHEDULE, "../../escape"):
        forged = Forged(topic=topic, properties=real)
        one, _ = send(writer, OPEN, forged.encode())
        two, _ = send(writer, OPEN, forged.encode())
        place = two + (two - one) + BODY_AT
        exact = dataclasses.replace(forged, physical_offset=place)
        found, _ = send(writer, OPEN, exact.encode())
        if found + BODY_AT != place:
            raise Broken("another message came in between")
        yield place, 0


def snapshot(admin: RawClient) -> dict[str, object]:
    """Return everything that no attacker may change."""
    found: dict[str, object] = {}
    for topic in VICTIMS:
        found[topic] = admin.call(351, {"topic": topic}).body
        for queue in (0, 1, DELAY_18_QUEUE):
            at = {"topic": topic, "queueId": str(queue)}
            found[f"{topic}/{queue} end"] = admin.call(30, at).ext.get("offset")
            found[f"{topic}/{queue}"] = [one.body for one in read(admin, topic, queue)]
            asked = {**at, "consumerGroup": THEIRS}
            found[f"{topic}/{queue} offset"] = admin.call(14, asked).ext.get("offset")
    found["settings"] = admin.call(26).body
    found["accounts"] = admin.call(54).body
    found["members"] = admin.call(38, {"consumerGroup": THEIRS}).body
    found["producers"] = admin.call(204, {"producerGroup": PRODUCERS}).body.count(b"clientId")
    return found


def read(client: RawClient, topic: str, queue: int = 0) -> list[Found]:
    """Return the messages of a queue, as far as one pull gives them."""
    return list(Found.read(pull(client, topic, queue).body))


def pull(client: RawClient, topic: str, queue: int = 0, group: str = "watchers") -> Frame:
    """Return the answer to a pull from the start of a queue."""
    ext = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue),
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return client.call(matrix.PULL, ext)


def attack(
    address: str, *, secrets: Collection[bytes] = (), codes: Collection[int] = matrix.CODES
) -> list[str]:
    """Attack a broker that has `ACCOUNTS`; return what the attackers achieved.

    `secrets` are values of its settings, which no answer to anybody may have. Raises Broken, and
    OSError when the broker hangs up.
    """
    findings: list[str] = []
    # Too old to be asked anything by a tool: nobody here would answer.
    with RawClient(address, ADMIN, version=1) as admin:
        world = prepare(admin)
        with RawClient(address, READER) as reader:
            forged = tuple(forge(reader))
        before = snapshot(admin)
        for name, key in ATTACKERS.items():
            # Who is not let in at all needs no places.
            places = (*world.places, *forged) if key in (POWERLESS, READER) else world.places[:1]
            with RawClient(address, key) as client:
                wanted = (CANARY, *secrets)
                findings += [f"{name}: {it}" for it in _try_all(client, places, codes, wanted)]
        for code in codes:
            if any(secret in admin.call(code).raw for secret in secrets):
                findings.append(f"an administrator: {code} shows a secret")
        after = snapshot(admin)
        findings += [f"{what} changed" for what in before if before[what] != after[what]]
        findings += _commits(admin, world.half)
    return findings


def _try_all(
    client: RawClient,
    places: tuple[tuple[int, int], ...],
    codes: Collection[int],
    wanted: tuple[bytes, ...],
) -> Iterator[str]:
    client.call(matrix.HEARTBEAT, {}, matrix.heartbeat(READABLE, MINE))
    for code in codes:
        aims = _by_place(places) if code in matrix.BY_PLACE else _by_name(places[0])
        for aim in aims:
            for attempt in matrix.attempts(code, aim):
                answer = client.call(attempt.code, attempt.ext, attempt.body)
                if any(one in answer.raw for one in wanted):
                    yield f"{code} about {aim.topic}, {aim.group}, {aim.offset} shows bytes"
    yield from _pops(client, wanted)
    for topic in (f"%RETRY%{MINE}", f"%DLQ%{MINE}", READABLE, OPEN):
        if any(one in pull(client, topic, group=MINE).raw for one in wanted):
            yield f"bytes were copied to {topic}"
    for frame in client.heard:
        if any(one in frame.raw for one in wanted):
            yield f"{frame.code} was sent to it with bytes"


def _pops(client: RawClient, wanted: tuple[bytes, ...]) -> Iterator[str]:
    """Pop what has the name of others' redelivered messages, and what settles these."""
    for code in (matrix.POP, matrix.PEEK):
        for aim in (Aim(topic=NAMESAKE, group=MINE), Aim(topic=REVIVE, group=MINE)):
            ext = next(matrix.attempts(code, aim)).ext
            answer = client.call(code, {**ext, "queueId": "-1"})
            if any(one in answer.raw for one in wanted):
                yield f"{code} about {aim.topic} shows bytes"
            if aim.topic == REVIVE and answer.code != REFUSED:
                yield f"{code} may read what settles the messages of others"


def _by_place(places: tuple[tuple[int, int], ...]) -> Iterator[Aim]:
    for offset, queue_offset in places:
        for group, topic in ((MINE, OPEN), (THEIRS, FOREIGN)):
            yield Aim(topic=topic, group=group, offset=offset, queue_offset=queue_offset)


def _by_name(place: tuple[int, int]) -> Iterator[Aim]:
    for topic in VICTIMS:
        for group in (MINE, THEIRS):
            yield Aim(topic=topic, group=group, offset=place[0])


def _commits(admin: RawClient, half: tuple[int, int]) -> Iterator[str]:
    """Check that the half message is still open, and its producers' to commit."""
    ends = len(read(admin, FOREIGN))
    ext = {
        "producerGroup": PRODUCERS,
        "tranStateTableOffset": str(half[1]),
        "commitLogOffset": str(half[0]),
        "commitOrRollback": str(matrix.COMMIT),
        "fromTransactionCheck": "false",
        "msgId": "unique-1",
    }
    answer = admin.call(matrix.END, ext)
    if answer.code != 0:
        yield f"the half message cannot be committed any more: {answer.remark}"
        return
    try:
        _visible(admin, FOREIGN, 0, ends + 1)
    except Broken:
        yield "the half message was settled by somebody else"


def _visible(client: RawClient, topic: str, queue: int, count: int) -> list[Found]:
    """Return the messages of a queue once there are so many. Raises Broken."""
    found: list[Found] = []
    for _ in range(1000):
        found = read(client, topic, queue)
        if len(found) >= count:
            return found
        time.sleep(0.01)
    raise Broken(f"{topic}/{queue} has {len(found)} messages, not {count}")


def _done(client: RawClient, code: int, ext: dict[str, str], body: bytes = b"") -> None:
    answer = client.call(code, ext, body)
    if answer.code != 0:
        raise Broken(f"{code}: {answer.code} {answer.remark}")
