"""Constants that the core has as well are those of Python's protocol, whatever file has them."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from roquet.acl import signature
from roquet.acl.accounts import Perm
from roquet.base import limits
from roquet.broker.messages.put_hooks import KNOWN_TO_CORE
from roquet.broker.pop.receive.acks import ACK_FAILED, CHANGE_FAILED
from roquet.broker.remoting.pop import NOT_SET
from roquet.broker.remoting.receive import OBEYED, PROJECTION
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.light import light_queues
from roquet.protocol.messages import sys_flag
from roquet.protocol.pop.records import (
    ACK_INTERVAL_MS,
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECKPOINT_TAG,
)

CORE = Path(__file__).parents[3] / "crates" / "core" / "src"
CONST = re.compile(
    r"^\s*(?:pub(?:\([a-z]+\))? )?const ([A-Z_0-9]+): ([^=]+?) = ([^;]+);", re.MULTILINE
)
TEXT = re.compile(r'b?"([^"\\]*)"')

EQUAL: dict[str, object] = {
    # Requests.
    "SEND": RequestCode.SEND_MESSAGE,
    "SEND_SHORT": RequestCode.SEND_MESSAGE_V2,
    "SEND_BATCH": RequestCode.SEND_BATCH_MESSAGE,
    "PULL": RequestCode.PULL_MESSAGE,
    "LITE_PULL": RequestCode.LITE_PULL_MESSAGE,
    "POP": RequestCode.POP_MESSAGE,
    "ACK": RequestCode.ACK_MESSAGE,
    "BATCH_ACK": RequestCode.BATCH_ACK_MESSAGE,
    # Answers.
    "SYSTEM_ERROR": ResponseCode.SYSTEM_ERROR,
    "SYSTEM_BUSY": ResponseCode.SYSTEM_BUSY,
    "FLUSH_DISK_TIMEOUT": ResponseCode.FLUSH_DISK_TIMEOUT,
    "SLAVE_NOT_AVAILABLE": ResponseCode.SLAVE_NOT_AVAILABLE,
    "FLUSH_SLAVE_TIMEOUT": ResponseCode.FLUSH_SLAVE_TIMEOUT,
    "NOT_FOUND": ResponseCode.PULL_NOT_FOUND,
    "RETRY_IMMEDIATELY": ResponseCode.PULL_RETRY_IMMEDIATELY,
    "OFFSET_MOVED": ResponseCode.PULL_OFFSET_MOVED,
    # Flags of pulls and of records.
    "COMMIT_OFFSET": sys_flag.PULL_COMMIT_OFFSET,
    "SUSPEND": sys_flag.PULL_SUSPEND,
    "SUBSCRIPTION": sys_flag.PULL_SUBSCRIPTION,
    "SYS_COMPRESSED": sys_flag.COMPRESSED,
    "SYS_TRANSACTION": sys_flag.TRANSACTION_MASK,
    "SYS_PREPARED": sys_flag.TRANSACTION_PREPARED,
    "SYS_COMMIT": sys_flag.TRANSACTION_COMMIT,
    "SYS_ROLLBACK": sys_flag.TRANSACTION_ROLLBACK,
    "SYS_BORN_HOST_V6": sys_flag.BORN_HOST_V6,
    "SYS_STORE_HOST_V6": sys_flag.STORE_HOST_V6,
    "SYS_MULTI_TAGS": sys_flag.MULTI_TAGS,
    "SYS_COMPRESSION": sys_flag.COMPRESSION_MASK,
    "SYS_UNPLAIN": sys_flag.TRANSACTION_MASK | sys_flag.NEED_UNWRAP | sys_flag.INNER_BATCH,
    # What pulls say of projections.
    "FIELD": PROJECTION,
    "OBEYED": OBEYED,
    # Limits.
    "FRAME_SIZE_MAX": limits.FRAME_SIZE_MAX,
    "PROPERTIES_SIZE_MAX": props.SIZE_MAX,
    "PROPERTIES_MAX": props.SIZE_MAX,
    "BYTES_MAX": limits.ANSWER_SIZE_MAX,
    "TOPIC_SIZE_MAX": names.RETRY_TOPIC_LENGTH_MAX,
    "TOPIC_V1_SIZE_MAX": names.TOPIC_LENGTH_MAX,
    # Texts.
    "KEYS": props.KEYS,
    "TAGS": props.TAGS,
    "UNIQ_KEY": props.UNIQ_KEY,
    "DELAY": props.DELAY,
    "WAIT": props.WAIT,
    "RETRY_TOPIC": props.RETRY_TOPIC,
    "INNER_NUM": props.INNER_NUM,
    "HALF": props.TRANSACTION_PREPARED,
    "TRANSACTION_ID": props.TRANSACTION_ID,
    "NAMED_QUEUES": props.INNER_MULTI_DISPATCH,
    "GIVEN_OFFSETS": props.INNER_MULTI_QUEUE_OFFSET,
    "LIGHT_PREFIX": names.LMQ_PREFIX,
    "NAMED_MAX": light_queues.NAMES_MAX,
    "OUT_MS": props.TIMER_OUT_MS,
    "DELIVER_MS": props.TIMER_DELIVER_MS,
    "CHECKPOINT_TAG": CHECKPOINT_TAG,
    "ACK_TAG": ACK_TAG,
    "BATCH_ACK_TAG": BATCH_ACK_TAG,
    "ACK_INTERVAL_MS": ACK_INTERVAL_MS,
    "FIRST_POP_TIME": props.FIRST_POP_TIME,
    "ORIGIN_GROUP": props.ORIGIN_GROUP,
    "CANCEL_KEY": props.TIMER_DEL_UNIQKEY,
    "REAL_TOPIC": props.REAL_TOPIC,
    "REAL_QUEUE": props.REAL_QUEUE_ID,
    "ENQUEUED_MS": props.TIMER_ENQUEUE_MS,
    "DEQUEUED_MS": props.TIMER_DEQUEUE_MS,
    "ROLLS": props.TIMER_ROLL_TIMES,
    "SCHEDULE_TOPIC": names.SCHEDULE_TOPIC,
    "TIMER_TOPIC": names.TIMER_TOPIC,
    "RETRY_PREFIX": names.RETRY_PREFIX,
    "ACCESS_KEY": signature.ACCESS_KEY,
    "SIGNATURE": signature.SIGNATURE,
    "PUBLISH": Perm.PUB,
    "SUBSCRIBE": Perm.SUB,
}
"""Name in the core -> what Python has."""

LISTS: dict[str, frozenset[str]] = {
    "REAL": frozenset({props.REAL_TOPIC, props.REAL_QUEUE_ID}),
    "SPECIAL": props.TIMER_DELAYS
    | {
        props.TIMER_DEL_UNIQKEY,
        props.PRIORITY,
        props.POP_CK,
        props.INNER_NUM,
        props.INNER_MULTI_DISPATCH,
        props.LITE_TOPIC,
        props.CRC32,
        props.SEQUENCE,
    },
    "SPECIAL_IN_A_BATCH": (props.TIMER_DELAYS - {props.TIMER_DELAY_LEVEL})
    | {
        props.DELAY,
        props.TRANSACTION_PREPARED,
        props.INNER_NUM,
        props.INNER_MULTI_DISPATCH,
        props.LITE_TOPIC,
        props.SEQUENCE,
    },
    "RULED": frozenset(
        {props.INNER_MULTI_DISPATCH, props.INNER_MULTI_QUEUE_OFFSET, props.LMQ_ORIGIN_TOPIC}
    ),
    "SPECIAL_IN_A_HALF": frozenset(
        {props.TRANSACTION_CHECK_TIMES, props.TRANSACTION_PREPARED_QUEUE_OFFSET}
    ),
}
"""Lists of properties, in any order."""

ELSEWHERE = {("commit_log/next_file.rs", "WAIT"), ("grpc/balancer.rs", "SIGNATURE")}
"""Constants of the same name that mean something else: a time to wait, how HAProxy begins."""


def constants() -> list[tuple[str, str, str]]:
    """Return file, name and value of the core's constants, those of its tests left out."""
    found: list[tuple[str, str, str]] = []
    for path in sorted(CORE.rglob("*.rs")):
        text = path.read_text().partition("#[cfg(test)]")[0]
        where = str(path.relative_to(CORE))
        found += [(where, name, value.strip()) for name, _, value in CONST.findall(text)]
    return found


def number(text: str, known: dict[str, int]) -> int:
    """Return the value of an expression of numbers. Raises ValueError for anything else."""
    tree = ast.parse(text.strip(), mode="eval")
    allowed = (ast.Expression, ast.BinOp, ast.Constant, ast.Name, ast.operator, ast.expr_context)
    for node in ast.walk(tree):
        if not isinstance(node, allowed):
            raise ValueError(f"{text!r} is no expression of numbers")  # noqa: TRY004
    return _value(tree.body, known)


def _value(node: ast.expr, known: dict[str, int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return known[node.id]
    assert isinstance(node, ast.BinOp), node
    left, right = _value(node.left, known), _value(node.right, known)
    by: dict[type[ast.operator], Any] = {
        ast.LShift: lambda a, b: a << b,
        ast.BitOr: lambda a, b: a | b,
        ast.Add: lambda a, b: a + b,
        ast.Sub: lambda a, b: a - b,
        ast.Mult: lambda a, b: a * b,
    }
    result: int = by[type(node.op)](left, right)
    return result


def test_core_leaves_to_put_hooks_what_they_act_on_or_delays_it_itself() -> None:
    assert KNOWN_TO_CORE - LISTS["SPECIAL"] == {props.DELAY}


@pytest.mark.parametrize("name", EQUAL)
def test_constant_of_the_core_is_that_of_the_protocol(name: str) -> None:
    wanted = EQUAL[name]
    found = [it for it in constants() if it[1] == name and it[:2] not in ELSEWHERE]
    assert found, "the core has no such constant any more: drop the row"
    known = {"SYS_TRANSACTION": sys_flag.TRANSACTION_MASK}
    for where, _, value in found:
        if isinstance(wanted, str):
            assert TEXT.findall(value) == [wanted], where
        else:
            assert number(value, known) == int(wanted), where  # type: ignore[call-overload]


@pytest.mark.parametrize("name", LISTS)
def test_list_of_properties_of_the_core_is_that_of_the_protocol(name: str) -> None:
    ((where, _, value),) = [it for it in constants() if it[1] == name]
    listed = TEXT.findall(value)
    assert len(listed) == len(set(listed)), where
    assert set(listed) == LISTS[name], where


def test_fast_path_names_no_text_that_the_protocol_lacks() -> None:
    known = {value for value in vars(props).values() if isinstance(value, str)}
    known |= {value for value in vars(names).values() if isinstance(value, str)}
    known |= {signature.ACCESS_KEY, signature.SIGNATURE}
    known |= {ACK_FAILED, CHANGE_FAILED, NOT_SET}
    named = {
        text
        for where, _, value in constants()
        if where.startswith("ingest/")
        for text in TEXT.findall(value)
    }
    assert named
    assert named - known == set()
