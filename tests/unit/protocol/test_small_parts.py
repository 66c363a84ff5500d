"""Names, properties, tags, ids, hosts and versions against values of the specification."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest

from roquet.protocol import hosts, names, properties, tags, versions
from roquet.protocol.headers.message import SendMessageResponse
from roquet.protocol.java_hash import java_hash
from roquet.protocol.messages import compression, message_id, sys_flag
from roquet.protocol.messages.compression import CompressionError, CompressionType


@pytest.mark.parametrize(
    ("text", "value"),
    [("TagA", 2598919), ("TagB", 2598920), ("*", 42), ("中文", 646394), ("", 0), ("😀", 1772899)],
)
def test_java_hash(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_legal_names() -> None:
    assert names.check_topic("a-Z_09%|") is None
    assert names.check_topic("a" * 127) is None
    assert names.check_topic("%RETRY%" + "a" * 248) is None
    assert names.check_group("g" * 120) is None


@pytest.mark.parametrize("name", [None, "", " ", "\n", "a\n", "a b", "a.b", "é", "a" * 128])
def test_illegal_topics(name: str | None) -> None:
    assert (names.check_topic(name) or "").startswith("The specified topic")


def test_remarks_of_names() -> None:
    assert names.check_topic("a+b") == (
        "The specified topic: a+b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    )
    assert (names.check_topic("%DLQ%" + "a" * 251) or "").endswith("topic max length: 255")
    assert (names.check_group("g" * 121) or "").endswith(", is longer than group max length: 120")
    assert names.check_group(None) == "The specified group is blank."
    assert (names.check_group("g\n") or "").startswith("The specified group: g\n, contains")
    assert names.check_not_system("TBW102") == "The topic[TBW102] is conflict with system topic."
    assert names.check_not_system("rmq_sys_x") is not None
    assert names.check_not_system("x") is None
    assert names.check_may_send("OFFSET_MOVED_EVENT") == (
        "Sending message to topic[OFFSET_MOVED_EVENT] is forbidden."
    )
    assert names.check_may_send("TBW102") is None


def test_names_with_a_meaning() -> None:
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.retry_topic("%RETRY%g") == "%RETRY%g"
    assert names.dlq_topic("g") == "%DLQ%g"
    assert names.reply_topic("c") == "c_REPLY_TOPIC"
    assert names.is_retry("%RETRY%g")
    assert names.is_dlq("%DLQ%g")
    assert names.is_lmq("%LMQ%x")
    assert not names.is_lmq(None)
    assert names.is_system_group("CID_RMQ_SYS_x")


def test_properties_round_trip() -> None:
    given = {"KEYS": "k1 k2", "TAGS": "TagA", "x": "中"}
    assert properties.read(properties.write(given)) == given
    assert properties.write({"KEYS": "k1", "e": ""}) == "KEYS\x01k1\x02"
    assert properties.size("x\x01中\x02") == 6


def test_properties_are_read_as_java_does() -> None:
    assert properties.read("a\x011\x02b\x012") == {"a": "1", "b": "2"}
    assert properties.read("a\x011\x02a\x012\x02") == {"a": "2"}
    assert properties.read("a\x011\x01x\x02") == {"a": "1\x01x"}
    assert properties.read("\x01x\x02a\x01\x02ab\x02\x02") == {}
    assert properties.read(b"a\x01\xff\x02") == {"a": "\ufffd"}
    assert properties.read(None) == {}


@pytest.mark.parametrize("bad", [{"": "x"}, {"a\x01": "x"}, {"a": "\x02"}, {"a\x02": "x"}])
def test_ambiguous_properties_are_refused(bad: dict[str, str]) -> None:
    with pytest.raises(properties.PropertyError):
        properties.write(bad)


def test_reserved_names() -> None:
    assert {"KEYS", "TIMER_OUT_MS", "__CRC32#", "1ST_POP_TIME"} <= properties.RESERVED
    assert "\x01" not in properties.RESERVED


@pytest.mark.parametrize("expression", [None, "", "*", " * "])
def test_everything_is_subscribed(expression: str | None) -> None:
    found = tags.subscribe("t", expression)
    assert (found.expression, found.tags, found.codes) == ("*", frozenset(), frozenset())
    assert found.takes_tag(None)
    assert found.takes_code(0)


def test_tags_are_subscribed() -> None:
    found = tags.subscribe("t", " TagA || TagB||", version=5)
    assert found.tags == {"TagA", "TagB"}
    assert found.codes == {2598919, 2598920}
    assert found.version == 5
    assert found.takes_tag("TagA")
    assert not found.takes_tag(None)
    assert found.takes_code(2598919)
    assert not found.takes_code(1)


def test_sql_is_kept_as_text() -> None:
    found = tags.subscribe("t", "a > 1", expression_type="SQL92")
    assert (found.expression_type, found.expression, found.tags) == ("SQL92", "a > 1", frozenset())


@pytest.mark.parametrize(
    "bad", ["||", " || ", "a" * 4097, "||".join("t" + str(n) for n in range(600))]
)
def test_bad_expressions(bad: str) -> None:
    with pytest.raises(tags.ExpressionError):
        tags.subscribe("t", bad)


def test_offset_ids() -> None:
    host = hosts.host_bytes("127.0.0.1:10911")
    text = message_id.offset_id(host, 1000)
    assert text == "7F00000100002A9F00000000000003E8"
    assert message_id.parse_offset_id(text) == (host, 1000)
    v6 = message_id.offset_id(hosts.host_bytes("[::1]:1"), 5)
    assert len(v6) == 56
    assert message_id.parse_offset_id(v6) == (hosts.host_bytes("[::1]:1"), 5)
    for bad in ("", "7F", "Z" * 32, "0" * 31, "0" * 40):
        assert not message_id.is_offset_id(bad)
        with pytest.raises(ValueError, match="hex"):
            message_id.parse_offset_id(bad)


def test_unique_ids() -> None:
    ids = message_id.UniqueIds(bytes([10, 0, 0, 9]), 0x1234, 0xCAFEBABE)
    start = dt.datetime(2026, 11, 1).astimezone()
    now = int(start.timestamp() * 1000) + 0x01020304
    first, second = ids.make(now), ids.make(now)
    assert first == "0A0000091234CAFEBABE010203040001"
    assert second.endswith("0002")
    assert len(message_id.UniqueIds(bytes(16), 1, 1).make(now)) == 56
    december = ids.make(now + 40 * 86_400_000)
    assert int(december[20:28], 16) < 31 * 86_400_000
    with pytest.raises(ValueError, match="address"):
        message_id.UniqueIds(bytes(5), 1, 1)


def test_hosts() -> None:
    assert hosts.host_text(bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])) == "127.0.0.1:10911"
    assert hosts.host_text(hosts.host_bytes("[fe80::1]:9")) == "[fe80::1]:9"
    for host, joined in (
        ("10.0.0.7", "10.0.0.7:9"),
        ("fd00::7", "[fd00::7]:9"),
        ("fe80::1%eth0", "[fe80::1%eth0]:9"),
        ("::ffff:10.0.0.7", "10.0.0.7:9"),
        ("?", "?:9"),
    ):
        assert hosts.join_address(host, 9) == joined
        if host != "?":
            assert len(hosts.host_bytes(joined)) == (20 if "[" in joined else 8)
    assert hosts.split_address("localhost:1") == ("localhost", 1)
    assert hosts.split_addresses(" a:1; b:2 ;") == ("a:1", "b:2")
    for bad in (
        "",
        "a",
        ":1",
        "a:",
        "a:65536",
        "a:-1",
        "a:٣",
        "a\r:1",
        "a b:1",
        "a:999999",
        "a:b:1",
        "[a:1",
    ):
        with pytest.raises(ValueError, match=r"is not host|no port"):
            hosts.split_address(bad)
    with pytest.raises(ValueError, match="8 or 20"):
        hosts.host_text(b"123")


def test_versions() -> None:
    assert versions.describe(513) == "V5_5_0"
    assert versions.describe(401) == "V4_9_4"
    assert versions.describe(232) == "V4_1_0_SNAPSHOT"
    assert versions.describe(28) == "V28"
    assert versions.describe(700) == "HIGHER_VERSION"


def test_sys_flags() -> None:
    assert sys_flag.transaction(0x31F) == 0x00C
    assert sys_flag.with_transaction(0x304, sys_flag.TRANSACTION_COMMIT) == 0x308
    assert 0x33F & ~sys_flag.HOST_BITS == 0x30F


@pytest.mark.parametrize("kind", list(CompressionType))
def test_compression(kind: CompressionType) -> None:
    data = b"roquet" * 2000
    packed = compression.compress(data, kind)
    assert len(packed) < len(data)
    assert compression.body_of(packed, kind.flag) == data
    assert compression.body_of(packed, kind.flag, len(data)) == data
    with pytest.raises(CompressionError):
        compression.body_of(packed, kind.flag, len(data) - 1)
    with pytest.raises(CompressionError):
        compression.body_of(packed[:-3], kind.flag)
    with pytest.raises(CompressionError):
        compression.body_of(b"nonsense of some length", kind.flag)


def test_compression_flags() -> None:
    assert CompressionType.ZLIB.flag == 0x301
    assert compression.body_of(b"x", 0x300) == b"x"
    assert compression.body_of(b"", 0x301) == b""
    with pytest.raises(CompressionError, match="unknown"):
        compression.body_of(b"x", 0x501)
    with pytest.raises(CompressionError, match="follows"):
        compression.body_of(compression.compress(b"x") + b"y", 0x301)


@pytest.mark.parametrize("kind", [CompressionType.ZLIB, CompressionType.ZSTD, CompressionType.LZ4])
def test_b9_bombs_stop_at_the_limit(kind: CompressionType) -> None:
    limit = 8 * 1024 * 1024
    bomb = compression.compress(bytes(200 * 1024 * 1024), kind, 9)
    # What C libraries take is in no account of Python's: the kernel is asked, its peak begun anew.
    Path("/proc/self/clear_refs").write_text("5")
    before = _memory("VmRSS")
    with pytest.raises(CompressionError):
        compression.decompress(bomb, kind, limit)
    assert _memory("VmHWM") - before < 2 * limit


def _memory(what: str) -> int:
    """Return one of the figures that the kernel has about this process, in bytes."""
    found = re.search(rf"^{what}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def test_writer_of_a_header_writes_what_encode_does_and_misses_no_field() -> None:
    values: dict[str, object] = {"msg_id": "ID", "queue_id": 3, "queue_offset": 1 << 40}
    write = SendMessageResponse.writer()
    full = values | {"transaction_id": "T", "recall_handle": None}
    for given in (values, full):
        assert write(given) == SendMessageResponse.of(given).encode()
    assert write(full) == {"msgId": "ID", "queueId": "3", "queueOffset": "1099511627776"} | {
        "transactionId": "T"
    }
    for missing in values:
        with pytest.raises(KeyError, match=missing):
            write({name: value for name, value in full.items() if name != missing})
