"""What else in Python reads bytes from a peer or a disk: for `tools.fuzz.python` and atheris.

Each reader takes bytes and returns or raises what its callers answer. Where a rule holds for every
input, the reader asserts it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.acl import accounts
from roquet.acl.documents import read_document
from roquet.base.clock import SystemClock
from roquet.base.properties_file import read_properties
from roquet.ha.secret import MARK, NONCE_SIZE, MasterGate, SlaveGate
from roquet.namesrv.kv import KeyValues
from roquet.relay.servers import LastGood
from roquet.store.tables.files import JsonFile
from roquet.store.tables.filters import FilterTable, compiled
from roquet.store.tables.groups import GroupTable, GroupTableConfig
from roquet.store.tables.offsets import OffsetTable
from roquet.store.tables.topics import TopicTable, TopicTableConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Reader = Callable[[bytes], object]

OFFSET_MAX = (1 << 63) - 1
PROPERTIES = b"a\x011\x02color\x01red\x02n\x017\x02"
NONCE = bytes(NONCE_SIZE)

SEEDS: dict[str, tuple[bytes, ...]] = {
    "ha.secret": (MARK + NONCE + bytes(32), bytes(72)),
    "sql": (
        b"a > 5 AND (color = 'red' OR n IN ('1','2')) AND NOT x IS NULL",
        b"a BETWEEN 1 AND 2.5e3 OR b CONTAINS 'x' AND c NOT STARTSWITH 'y'",
        b"TRUE = FALSE OR a <> -5 OR b >= 7.5",
        b"((((((((((a=1))))))))))",
    ),
    "table.topics": (
        (
            b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1},"topicConfigTable":{"T":'
            b'{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":'
            b'"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":4}}}'
        ),
    ),
    "table.groups": (
        (
            b'{"dataVersion":{"counter":1},"forbiddenTable":{"g":{"T":1}},"subscriptionGroupTable":'
            b'{"g":{"brokerId":0,"consumeEnable":true,"groupName":"g","retryMaxTimes":16}}}'
        ),
    ),
    "table.offsets": (b'{"dataVersion":{"counter":1},"offsetTable":{"T@g":{0:5,1:7}}}',),
    "table.filters": (
        (
            b'{"filterDataByTopic":{"T":{"groupFilterData":{"g":{"bornTime":1,"clientVersion":2,'
            b'"consumerGroup":"g","deadTime":0,"expression":"a > 1","expressionType":"SQL92",'
            b'"topic":"T"}},"topic":"T"}}}'
        ),
    ),
    "table.servers": (
        b'{"version":3,"servers":[{"id":1,"type":2,"host":"10.0.0.1","port":7000,"name":"a"}]}',
    ),
    "table.key_values": (b'{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"a:4;b:4"}}}',),
    "acl": (
        (
            b"globalWhiteRemoteAddresses:\n- 10.10.*.*\n- 192.168.0.{1,2}\n"
            b"accounts:\n- accessKey: reader1\n"
            b"  secretKey: 12345678\n  admin: false\n  defaultTopicPerm: DENY\n  topicPerms:\n"
            b"  - T=PUB|SUB\n  groupPerms: [g=SUB]\ndataVersion:\n- counter: 1\n  timestamp: 2\n"
        ),
    ),
    "properties_file": (b"# c\nlistenPort = 10911\nname:a\\u0041\\\n  b\nempty\n",),
}
"""Valid inputs by the begin of a reader's name."""


def more() -> Iterator[tuple[str, Reader]]:
    """Yield the readers by name."""
    yield "ha.secret.master", master_gate
    yield "ha.secret.slave", slave_gate
    yield "sql", sql
    yield "acl", acl
    yield "properties_file", read_properties
    yield from tables()


def master_gate(data: bytes) -> None:
    """Let somebody without the secret answer the master, in pieces."""
    gate = MasterGate("secret", NONCE)
    for at in range(0, len(data), 7):
        assert gate.receive(data[at : at + 7]) is None


def slave_gate(data: bytes) -> None:
    """Let somebody without the secret challenge the slave, in pieces."""
    gate = SlaveGate("secret", 1, NONCE)
    for at in range(0, len(data), 7):
        _, rest = gate.receive(data[at : at + 7])
        assert rest is None


def sql(data: bytes) -> object:
    """Compile an expression and run it."""
    found = compiled.__wrapped__(data.decode(errors="surrogateescape"))
    found.matches(data)
    return found.matches(PROPERTIES)


def acl(data: bytes) -> object:
    """Read a file of accounts."""
    return accounts.build({"plain_acl.yml": read_document(data)})


def tables() -> Iterator[tuple[str, Reader]]:
    """Yield what loads each saved table from its file."""
    kept = tempfile.TemporaryDirectory(prefix="roquet-fuzz-tables-")
    folder = Path(kept.name)
    clock = SystemClock()

    def loading(name: str, load: Callable[[Path], object]) -> tuple[str, Reader]:
        path = folder / f"{name}.json"

        def read(data: bytes) -> object:
            # The folder goes away with the last of its readers.
            (Path(kept.name) / path.name).write_bytes(data)
            return load(path)

        return f"table.{name}", read

    yield loading(
        "topics", lambda path: TopicTable(JsonFile(path), TopicTableConfig(), clock).load()
    )
    yield loading(
        "groups", lambda path: GroupTable(JsonFile(path), GroupTableConfig(), clock).load()
    )
    yield loading("offsets", lambda path: OffsetTable(JsonFile(path), clock).load())
    yield loading("filters", lambda path: FilterTable(JsonFile(path), clock).load())
    yield loading("servers", lambda path: LastGood(path, 100).load())
    yield loading("key_values", lambda path: KeyValues(path).load())
