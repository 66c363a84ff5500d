"""Frames as Python sees them: Java's recorded ones, the rules of the two encodings, bad input."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import pytest

from roquet import roquet_native as native

VECTORS = Path(__file__).parents[2] / "vectors"
JSON, BINARY = 0, 1


def recorded(name: str) -> list[bytes]:
    with gzip.open(VECTORS / f"{name}_frames.jsonl.gz", "rt") as lines:
        return [bytes.fromhex(json.loads(line)["hex"]) for line in lines]


def json_frame(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def header_of(text: str | bytes) -> tuple[object, ...]:
    header = text.encode() if isinstance(text, str) else text
    frames, _ = native.decode_frames(json_frame(header))
    return frames[0]


@pytest.mark.parametrize("name", ["broker", "namesrv"])
def test_every_recorded_frame_is_written_again_byte_for_byte(name: str) -> None:
    frames = recorded(name)
    assert len(frames) > 100
    for frame in frames:
        (decoded,), used = native.decode_frames(frame)
        assert used == len(frame)
        assert native.encode_command(*decoded) == frame
        as_binary = (BINARY, *decoded[1:])
        (again,), _ = native.decode_frames(native.encode_command(*as_binary))
        # The binary form has no empty values and no empty map.
        ext = {k: v for k, v in (decoded[7] or {}).items() if v} or None
        assert again == (BINARY, *decoded[1:6], decoded[6] or None, ext, decoded[8])


def test_any_split_gives_the_same_frames() -> None:
    stream = b"".join(recorded("namesrv")[:12])
    whole, used = native.decode_frames(stream)
    assert used == len(stream)
    for cut in range(len(stream)):
        first, used = native.decode_frames(stream[:cut])
        rest, more = native.decode_frames(memoryview(stream)[used:])
        assert first + rest == whole
        assert used + more == len(stream)


def test_binary_vector_of_the_spec() -> None:
    frame = native.encode_command(BINARY, 105, 0, "PYTHON", 479, 1, None, {"topic": "TestT"}, b"")
    assert frame.hex() == (
        "000000290100002500690301df000000010000000000000000000000100005746f706963000000055465737454"
    )
    (decoded,), _ = native.decode_frames(frame)
    assert decoded == (BINARY, 105, 0, "PYTHON", 479, 1, None, {"topic": "TestT"}, b"")


@pytest.mark.parametrize(
    ("code", "version", "encoding"),
    [
        (32_767, 32_767, BINARY),
        (-32_768, 0, BINARY),
        (32_768, 513, JSON),
        (-32_769, 513, JSON),
        (200_050, 513, JSON),
        (65_536 + 310, 513, JSON),
        (310, 32_768, JSON),
    ],
)
def test_header_that_16_bits_cannot_hold_is_written_as_json(
    code: int, version: int, encoding: int
) -> None:
    asked = (code, 0, "PYTHON", version, 1, "why", {"a": "b"}, b"body")
    (((*found,), _),) = [native.decode_frames(native.encode_command(BINARY, *asked))]
    assert found == [(encoding, *asked)]


def test_java_s_key_set() -> None:
    def written(ext: dict[str, str] | None, remark: str | None) -> bytes:
        return native.encode_command(JSON, 1, 1, "JAVA", 513, -7, remark, ext, b"")[8:]

    assert written(None, None) == (
        b'{"code":1,"flag":1,"language":"JAVA","opaque":-7,'
        b'"serializeTypeCurrentRPC":"JSON","version":513}'
    )
    assert written({}, "") == (
        b'{"code":1,"extFields":{},"flag":1,"language":"JAVA","opaque":-7,"remark":"",'
        b'"serializeTypeCurrentRPC":"JSON","version":513}'
    )
    assert b'"remark":"a\\"b\\\\c\\n\\u0001\\u001f\xc3\xa9"' in written(None, 'a"b\\c\n\x01\x1fé')


def test_json_header_is_read_as_java_reads_it() -> None:
    assert header_of("{}") == (JSON, 0, 0, "JAVA", 0, 0, None, None, b"")
    assert header_of('{"code":1,"extFields":{}}')[7] == {}
    assert header_of('{"extFields":null,"remark":null,"code":null}')[6:8] == (None, None)
    given = '{"extFields":{"a":1,"b":true,"c":null,"d":-9223372036854775808,"e":1.5,"a":"2"}}'
    assert header_of(given)[7] == {"a": "2", "b": "true", "d": "-9223372036854775808", "e": "1.5"}
    assert header_of('{"Code":5,"code":"310","language":"KLINGON"}')[1:4] == (310, 0, "OTHER")
    assert header_of('{"x":{"y":[1,{}]},"opaque":-5,"remark":7}')[5:7] == (-5, "7")
    assert header_of('  {"code" : 3 , "extFields":{"k":"\\u4e2d\\u0001"}} ')[7] == {"k": "中\x01"}


@pytest.mark.parametrize(
    "header",
    [
        "null",
        "[]",
        "7",
        '"x"',
        "{",
        "{} x",
        "{}{}",
        "{code:1}",
        "{'code':1}",
        '{"code":1,}',
        '{"code":2147483648}',
        '{"code":1.5}',
        '{"code":"x"}',
        '{"code":true}',
        '{"extFields":[]}',
        '{"extFields":{"a":{}}}',
        '{"extFields":{"a":[1]}}',
        '{"remark":{}}',
        b'{"remark":"\xff"}',
        '{"extFields":{"' + "k" * 1025 + '":"v"}}',
        "[" * 100_000,
        '{"x":' + "[" * 100_000,
    ],
)
def test_bad_json_header(header: str | bytes) -> None:
    with pytest.raises(ValueError, match="JSON"):
        header_of(header)


def test_ext_fields_are_bounded_in_both_encodings() -> None:
    def frame(encoding: int, count: int) -> bytes:
        ext = {f"k{n}": "v" for n in range(count)}
        return native.encode_command(encoding, 1, 0, "JAVA", 0, 0, None, ext, b"")

    for encoding in (JSON, BINARY):
        (good,), _ = native.decode_frames(frame(encoding, 512))
        assert good[7] is not None
        assert len(good[7]) == 512
        with pytest.raises(ValueError, match=r"JSON|number of extFields"):
            native.decode_frames(frame(encoding, 513))


def test_pop_codes_come_back_from_16_bits() -> None:
    for code in (200050, 200056, 200070, 200079, 200151):
        frame = native.encode_command(BINARY, code, 0, "GO", 479, 1, None, None, b"")
        assert native.decode_frames(frame)[0][0][1] == code
    answer = native.encode_command(BINARY, 3442, 1, "GO", 479, 1, None, None, b"")
    assert native.decode_frames(answer)[0][0][1] == 3442


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("7fffffff", "frame length is 2147483647, at most 16777212 fits"),
        ("80000000", "frame length is -2147483648"),
        ("ffffffff", "frame length is -1"),
        ("00000000", "frame length is 0"),
        ("00000003", "frame length is 3"),
        ("00fffffd", "frame length is 16777213"),
        ("0000000802", "serialize type cannot be 2"),
        ("0000000800000000", "header length is 0"),
        ("0000000800000005", "header length is 5, at most 4 fits"),
        ("00fffffc00ffffff", "header length is 16777215"),
        ("0000010001000014", "header length is 20"),
        ("16030100", "frame length is 369295616"),  # A TLS greeting.
        ("47455420", "frame length is 1195725856"),  # "GET ".
    ],
)
def test_bad_frames_are_refused_by_their_first_bytes(start: str, words: str) -> None:
    prefix = bytes.fromhex(start)
    with pytest.raises(ValueError, match=words):
        native.decode_frames(prefix)
    assert native.decode_frames(prefix[:3]) == ([], 0)


def test_the_longest_frame_is_served() -> None:
    header = b'{"code":1}'
    body = bytes(16_777_212 - 4 - len(header))
    (frame,), used = native.decode_frames(json_frame(header, body))
    assert used == 16_777_216
    assert len(frame[8]) == len(body)
    with pytest.raises(ValueError, match="frame length"):
        native.decode_frames(json_frame(header, body), 16_777_215)


def test_every_length_of_a_binary_header_is_checked() -> None:
    good = native.encode_command(
        BINARY, 10, 0, "JAVA", 479, 1, "remark", {"name": "value", "n2": "v2"}, b"body"
    )
    (decoded,), _ = native.decode_frames(good)
    assert decoded[6:] == ("remark", {"name": "value", "n2": "v2"}, b"body")
    lengths = {"remark": (21, 4), "ext": (31, 4), "name": (35, 2), "value": (41, 4)}
    for at, width in lengths.values():
        for value in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x01\x00"):
            bad = bytearray(good)
            bad[at : at + width] = value[-width:]
            with pytest.raises(ValueError, match="length"):
                native.decode_frames(bad)


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(ValueError, match="encoding 2"):
        native.encode_command(2, 1, 0, "JAVA", 0, 0, None, None, b"")
    with pytest.raises(ValueError, match="language KLINGON"):
        native.encode_command(JSON, 1, 0, "KLINGON", 0, 0, None, None, b"")
    with pytest.raises(ValueError, match="header length"):
        native.encode_command(JSON, 1, 0, "JAVA", 0, 0, "x" * (1 << 24), None, b"")
    with pytest.raises(TypeError):
        native.encode_command(JSON, 1, 0, "JAVA", 0, 0, None, {"a": 1}, b"")  # type: ignore[dict-item]


@pytest.mark.parametrize("body", [b"", b"x", b"x" * 100_000])
def test_a_frame_in_two_pieces_is_the_frame(body: bytes) -> None:
    """What is written without copying the body is the same on the wire."""
    for encoding in (JSON, BINARY):
        fields = (encoding, 0, 1, "JAVA", 513, 7, "FOUND", {"nextBeginOffset": "3"})
        start = native.encode_command(*fields, body, body_apart=True)
        assert start + body == native.encode_command(*fields, body)
