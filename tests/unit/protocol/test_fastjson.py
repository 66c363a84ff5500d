"""The reader takes what fastjson takes and no more; the writers write what it writes."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from roquet.protocol import fastjson
from roquet.protocol.fastjson import JsonError, ObjectKey

QUEUE = ObjectKey.of({"brokerName": "b", "queueId": 0, "topic": "t"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":1,"b":[true,null,"x"]}', {"a": 1, "b": [True, None, "x"]}),
        ('{0:"10.0.0.1:10911",1:"b"}', {"0": "10.0.0.1:10911", "1": "b"}),
        ('{"t":{-1:5 , 2 : 6}}', {"t": {"-1": 5, "2": 6}}),
        ('{"a":"{1:2}","b":"\\",3:"}', {"a": "{1:2}", "b": '",3:'}),
        ('{"o":{{"brokerName":"b","queueId":0,"topic":"t"}:5}}', {"o": {QUEUE: 5}}),
        ("{a:'it\\'s',b_$:1}", {"a": "it's", "b_$": 1}),
        ("/* c */{// x\n'a':1,}", {"a": 1}),
        ("[1,2,]", [1, 2]),
        ("[-1.5e3, 0.25]", [-1500.0, 0.25]),
        ("{'a':'\\u4e2d\\ud83d\\ude00'}", {"a": "中😀"}),
        ("\ufeff{'a':1}", {"a": 1}),
    ],
)
def test_reads(text: str, value: object) -> None:
    assert fastjson.read(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{'a':1",
        "{'a' 1}",
        "{'a':1 'b':2}",
        "[1 2]",
        "{a:NaN}",
        '{"a":NaN}',
        "[Infinity]",
        "{'a':1}x",
        "{'a':'\\ud800'}",
        "{'a':'x",
        "/* never ends",
        "{1.5:2}",
        "{'a':" + "9" * 5000 + "}",
        "['" + "a" * 10,
        "{'a':1e999}",
        "'" + '"' * 1000,
    ],
)
def test_refuses(text: str) -> None:
    with pytest.raises(JsonError):
        fastjson.read(text.encode())


@pytest.mark.parametrize("text", ["[" * 100_000, "{'a':" * 100_000, "{{" * 70 + "}", "[" * 65])
def test_refuses_depth(text: str) -> None:
    with pytest.raises(JsonError):
        fastjson.read(text.encode())


def test_refuses_bytes_that_are_no_text_and_slow_input_that_is_long() -> None:
    with pytest.raises(JsonError, match="UTF-8"):
        fastjson.read(b"{'a':'\xff'}")
    with pytest.raises(JsonError, match="longer"):
        fastjson.read(b"{'a':'" + b"x" * fastjson.TOLERANT_SIZE_MAX + b"'}")
    assert fastjson.read(b"{'a':'xyz'}", tolerant_size_max=11) == {"a": "xyz"}


def test_an_object_is_asked_for() -> None:
    with pytest.raises(JsonError, match="object"):
        fastjson.read_object(b"[1]")


def test_repair_of_bare_keys_takes_linear_time() -> None:
    hostile = b'{"' + b'\\"' * 400_000
    with pytest.raises(JsonError):
        fastjson.read(hostile, tolerant_size_max=10)


def test_java_form() -> None:
    value = {"b": None, "a": {1: "x", 0: "y"}, "q": {QUEUE: 7}, "f": 0.0, "l": (1, True)}
    assert fastjson.java(value) == (
        b'{"a":{0:"y",1:"x"},"f":0.0,"l":[1,true],'
        b'"q":{{"brokerName":"b","queueId":0,"topic":"t"}:7}}'
    )


def test_java_form_of_plain_values_is_strict_json_with_sorted_keys() -> None:
    assert fastjson.java({"b": [1], "a": "é"}) == '{"a":"é","b":[1]}'.encode()
    assert fastjson.java({"a": float("nan")}) == b'{"a":null}'


def test_standard_form() -> None:
    written = fastjson.standard({"t": {10: "中", 2: "😀", 3: None}})
    assert written == b'{"t":{"10":"\\u4E2D","2":"\\uD83D\\uDE00"}}'
    assert json.loads(written) == {"t": {"10": "中", "2": "😀"}}


def test_pretty_form() -> None:
    value = {"t": {"x@g": {0: 12, 1: 34}}, "e": {}, "l": ["a", "b"], "n": []}
    assert fastjson.pretty(value).decode() == (
        '{\n\t"e":{},\n\t"l":[\n\t\t"a",\n\t\t"b"\n\t],\n\t"n":[],\n'
        '\t"t":{\n\t\t"x@g":{\n\t\t\t0:12,\n\t\t\t1:34\n\t\t}\n\t}\n}'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({10: 1, 9: -2}, "{\n\t9:-2,\n\t10:1\n}"),
        ({7: 1}, "{\n\t7:1\n}"),
        ({"b": 1, 'a"': 2}, '{\n\t"a\\"":2,\n\t"b":1\n}'),
        ({"a": True}, '{\n\t"a":true\n}'),
        ({7: True}, "{\n\t7:true\n}"),
        ({"b": 1, 2: 3}, '{\n\t2:3,\n\t"b":1\n}'),
        ({"a": 1, "b": None}, '{\n\t"a":1\n}'),
        (["x", 'y"'], '[\n\t"x",\n\t"y\\""\n]'),
        (["x", 1], '[\n\t"x",\n\t1\n]'),
        ([], "[]"),
        ({}, "{}"),
    ],
)
def test_tables_of_numbers_and_texts_are_written_like_any_other(value: Any, text: str) -> None:
    assert fastjson.pretty(value).decode() == text
    assert fastjson.pretty({"row": fastjson.Made({"k": value}, lambda it: it)}).decode() == (
        '{\n\t"row":{\n\t\t"k":' + text.replace("\n", "\n\t\t") + "\n\t}\n}"
    )


def test_writers_refuse_what_they_cannot_write() -> None:
    deep: list[object] = []
    for _ in range(80):
        deep = [deep]
    for write in (fastjson.java, fastjson.standard, fastjson.pretty):
        with pytest.raises(JsonError):
            write(deep)
    with pytest.raises(JsonError):
        fastjson.pretty({"a": object()})


def _random_leaf(draw: random.Random) -> object:
    text = "".join(draw.choice('aé中😀"\\\n\x01{}:,1') for _ in range(draw.randrange(6)))
    return draw.choice([draw.randrange(-(2**63), 2**63), text, True, False, draw.random()])


def _random_value(draw: random.Random, depth: int) -> object:
    kind = draw.randrange(4) if depth else 0
    if kind == 0:
        return _random_leaf(draw)
    if kind == 1:
        return [_random_value(draw, depth - 1) for _ in range(draw.randrange(4))]
    if kind == 2:
        return {QUEUE: _random_value(draw, depth - 1), "k": 1}
    return {str(draw.randrange(99)): _random_value(draw, depth - 1) for _ in range(4)}


@pytest.mark.parametrize("seed", range(200))
def test_what_is_written_is_read_back(seed: int) -> None:
    value = _random_value(random.Random(seed), 5)
    assert fastjson.read(fastjson.java(value)) == value
    assert fastjson.read(fastjson.pretty(value)) == value
