"""The most expensive request of each kind, at its limit, for `tools.budget`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from roquet.model.data_version import DataVersion
from roquet.model.topic import TopicConfig
from roquet.protocol.bodies.topics import TopicTableBody
from roquet.protocol.codes import RequestCode as Code
from roquet.protocol.command import Command
from roquet.protocol.messages import batch
from roquet.protocol.registration.body import RegisterBody
from tools.budget.worlds import WIDE_QUEUES
from tools.budget.worst_bodies import WORST, filled

if TYPE_CHECKING:
    from collections.abc import Callable


class Asked(NamedTuple):
    """A request to measure: `make(round)` returns it, `code` is the answer's when it matters."""

    name: str
    make: Callable[[int], Command]
    code: int | None = None
    signed: bool = False
    admin: bool = False


def _always(command: Command) -> Callable[[int], Command]:
    return lambda _: command


def _named(name: str, *, signed: bool = False) -> Asked:
    code, body = WORST[name]()
    admin = code == Code.UPDATE_AND_CREATE_TOPIC_LIST
    return Asked(
        f"{int(code)} {name}",
        _always(Command(code, ext={}, body=body)),
        signed=signed,
        admin=admin,
    )


def _plain(
    code: Code, what: str, ext: dict[str, str] | None = None, answer: int | None = 0
) -> Asked:
    return Asked(f"{int(code)} {what}", _always(Command(code, ext=dict(ext or {}))), answer)


_WIDE = {
    "topic": "wide",
    "group": "g",
    "consumerGroup": "g",
    "isOrder": "false",
    "timestamp": "-1",
    "isForce": "true",
    "offline": "true",
    "srcGroup": "g",
    "destGroup": "g2",
    "compareGroup": "g",
}
BODY_MAX = 4 << 20
_SEND = {"a": "p", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1"}
_SEND |= {"h": "0", "i": "", "j": "0", "k": "false", "m": "false"}
_MANY_NAMES = ";".join(f"topic-{number}" for number in range(50_000))[: 1 << 19]


def _new_topics(number: int) -> Command:
    item = '{{"topicName":"new-{0}-{1}","readQueueNums":1,"writeQueueNums":1,"perm":6}}'
    items = ",".join(item.format(number, at) for at in range(2_900))
    body = f'{{"topicConfigList":[{items}]}}'.encode()
    return Command(Code.UPDATE_AND_CREATE_TOPIC_LIST, ext={}, body=body)


def _new_groups(number: int) -> Command:
    item = '{{"groupName":"new-{0}-{1}","retryQueueNums":1,"retryMaxTimes":16}}'
    items = ",".join(item.format(number, at) for at in range(15_000))
    body = f'{{"groupConfigList":[{items}]}}'.encode()
    return Command(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, ext={}, body=body)


def _members(number: int) -> Command:
    """Return the heartbeat of a client in 2,000 groups, 1,000 of which create a retry topic."""
    code, body = WORST["new groups"]()
    return Command(code, ext={}, body=body.replace(b': "g', b': "round-%d-g' % number))


def _topic(name: str, perm: int = 6) -> Callable[[int], Command]:
    ext = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": str(WIDE_QUEUES),
        "writeQueueNums": str(WIDE_QUEUES),
        "perm": str(perm),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    return lambda number: Command(
        Code.UPDATE_AND_CREATE_TOPIC, ext={**ext, "topic": name + str(number)}
    )


def _batch(number: int) -> Command:
    """Return a batch of as many messages as one may have."""
    del number
    body = batch.encode([(0, b"x", b"")] * batch.messages_max(8))
    return Command(Code.SEND_BATCH_MESSAGE, ext={**_SEND, "m": "true"}, body=body)


def _batch_with_keys(number: int) -> Command:
    """Return a batch whose messages have a property and 18 keys each; its body is full."""
    keys = " ".join(f"k{number}-{at}" for at in range(18))
    element = (0, b"x", f"UNIQ_KEY\x01U\x02KEYS\x01{keys}\x02a\x01b\x02".encode())
    count = min(BODY_MAX // len(batch.encode([element])), batch.messages_max(8))
    body = batch.encode([element] * count)
    return Command(Code.SEND_BATCH_MESSAGE, ext={**_SEND, "m": "true"}, body=body)


def _sequence(number: int) -> Command:
    """Return as many messages in sequence as one request may have, with the longest bodies."""
    rows = [(0, b"x" * 4_000, b"")] * 1_000
    ext = {"topic": "orders", "queueId": "0", "bornTimestamp": "1", "producer": f"p{number}"}
    ext |= {"epoch": "0", "first": "0", "chain": "0" * 16}
    return Command(Code.SEND_IN_SEQUENCE, ext=ext, body=batch.encode(rows))


def _send(number: int) -> Command:
    """Return a send with the longest body and many properties."""
    del number
    properties = "".join(f"p{at}\x01v\x02" for at in range(3_500))
    return Command(Code.SEND_MESSAGE_V2, ext={**_SEND, "i": properties}, body=b"x" * BODY_MAX)


def _pull(number: int) -> Command:
    """Return a pull that looks at as many units as one may, for a tag that nothing has."""
    del number
    ext = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "queueOffset": "0"}
    ext |= {"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0"}
    ext |= {"subscription": "none", "subVersion": "0", "expressionType": "TAG"}
    return Command(Code.PULL_MESSAGE, ext=ext)


def _settings(number: int) -> Command:
    del number
    return Command(Code.UPDATE_BROKER_CONFIG, ext={}, body=b"unknownKey=1\n" * (65_000 // 13))


def _everything(body_max: int = 4_000) -> list[Asked]:
    """Return every code with the body that any code may have, full of what is slow to read."""
    body = b"{" + b"a:{}," * ((body_max - 2) // 5) + b"}"
    codes = (code for code in sorted(Code) if code not in _NO_ANSWER)
    return [
        Asked(f"{int(code)} any body", _always(Command(code, ext=dict(_WIDE), body=body)))
        for code in codes
    ]


_NO_ANSWER = {Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE}
_ALL_QUEUES = (
    Code.GET_TOPIC_STATS_INFO,
    Code.GET_CONSUME_STATS,
    Code.GET_BROKER_CONSUME_STATS,
    Code.QUERY_CONSUME_TIME_SPAN,
    Code.INVOKE_BROKER_TO_RESET_OFFSET,
    Code.GET_TOPIC_STATS_INFO,
)

BROKER = [
    Asked(
        "0 nothing", _always(Command(Code.GET_MAX_OFFSET, ext={"topic": "wide", "queueId": "0"}))
    ),
    # Before tables grow: a frame has room for them as they are now.
    _plain(Code.GET_ALL_TOPIC_CONFIG, "all topics"),
    _plain(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "all groups"),
    *(_named(name) for name in WORST if name != "new groups"),
    Asked("34 new groups", _members),
    Asked("18 new topics", _new_topics),
    Asked("225 new groups", _new_groups),
    *(_plain(code, "all queues", _WIDE) for code in _ALL_QUEUES),
    _plain(
        Code.GET_CONSUME_STATS,
        "many topics",
        {"consumerGroup": "g", "topicList": _MANY_NAMES},
        answer=1,
    ),
    _plain(Code.QUERY_CORRECTION_OFFSET, "all queues", _WIDE),
    _plain(Code.CLONE_GROUP_OFFSET, "all queues", _WIDE),
    _plain(Code.GET_ALL_CONSUMER_OFFSET, "all offsets", answer=None),
    _plain(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "a page", {"groupSeq": "1", "maxGroupNum": "2"}),
    _plain(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, "all topics"),
    _plain(Code.QUERY_TOPIC_CONSUME_BY_WHO, "all groups", _WIDE),
    _plain(Code.QUERY_TOPICS_BY_CONSUMER, "all topics", _WIDE),
    _plain(Code.GET_BROKER_RUNTIME_INFO, "all figures"),
    _plain(Code.GET_BROKER_CONFIG, "all settings"),
    Asked("25 settings", _settings),
    Asked("320 batch", _batch, 0),
    Asked("17 wide topic", _topic("wider")),
    *_everything(),
    _plain(Code.DELETE_TOPIC_IN_BROKER, "wide topic", {"topic": "wider0"}),
    _plain(Code.DELETE_SUBSCRIPTIONGROUP, "group", {"groupName": "g", "cleanOffset": "true"}),
]

PROCESSORS = [
    Asked("310 send", _send, 0),
    Asked("320 batch", _batch, 0),
    Asked("320 batch with keys", _batch_with_keys, 0),
    Asked("7001 messages in sequence", _sequence, 0),
    Asked("11 pull", _pull, 20),
]

ACCOUNTS = [
    *(
        _named(name, signed=True)
        for name in WORST
        if WORST[name]()[0]
        in {Code.HEART_BEAT, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ, Code.CHECK_CLIENT_CONFIG}
    ),
]


def _registration(*, compressed: bool) -> Callable[[int], Command]:
    def make(number: int) -> Command:
        topics = {f"topic-{at}": TopicConfig(name=f"topic-{at}") for at in range(65_536)}
        table = TopicTableBody(topics=topics, version=DataVersion(timestamp=number + 1))
        body = RegisterBody(table=table).encode(compressed=compressed)
        ext = {
            "brokerName": "b",
            "brokerAddr": "127.0.0.1:10911",
            "clusterName": "c",
            "haServerAddr": "127.0.0.1:10912",
            "brokerId": "0",
            "compressed": str(compressed).lower(),
            "bodyCrc32": "0",
        }
        return Command(Code.REGISTER_BROKER, ext=ext, body=body, version=513)

    return make


_BROKER = {
    "brokerName": "b",
    "brokerAddr": "127.0.0.1:10911",
    "clusterName": "c",
    "cluster": "c",
    "brokerId": "0",
    "topic": "topic-1",
}

NAME_SERVER = [
    Asked("103 registration", _registration(compressed=False), 0),
    Asked("103 compressed", _registration(compressed=True), 0),
    *(
        _plain(code, "all topics", _BROKER)
        for code in (
            Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            Code.GET_TOPICS_BY_CLUSTER,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
            Code.GET_UNIT_TOPIC_LIST,
            Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
            Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            Code.WIPE_WRITE_PERM_OF_BROKER,
            Code.ADD_WRITE_PERM_OF_BROKER,
            Code.GET_BROKER_CLUSTER_INFO,
            Code.GET_ROUTEINFO_BY_TOPIC,
        )
    ),
    Asked(
        "217 route",
        _always(
            Command(
                Code.REGISTER_TOPIC_IN_NAMESRV,
                ext={"topic": "t"},
                body=filled(
                    Code.REGISTER_TOPIC_IN_NAMESRV,
                    b'{"queueDatas":[',
                    b'{"brokerName":"b","readQueueNums":1,"writeQueueNums":1,"perm":6}',
                    b"]}",
                    64 * 1024,
                )[1],
            )
        ),
    ),
    Asked(
        "100 value",
        _always(
            Command(
                Code.PUT_KV_CONFIG, ext={"namespace": "n", "key": "k", "value": "v" * 1_000_000}
            )
        ),
    ),
    _plain(Code.GET_KVLIST_BY_NAMESPACE, "values", {"namespace": "n"}),
    *(
        Asked(one.name, one.make)
        for one in _everything()
        if int(one.name.split()[0]) not in (100, 104, 318)
    ),
    _plain(Code.UNREGISTER_BROKER, "all topics", _BROKER),
]

REQUESTS = {
    "broker": BROKER,
    "processors": PROCESSORS,
    "accounts": ACCOUNTS,
    "namesrv": NAME_SERVER,
}
