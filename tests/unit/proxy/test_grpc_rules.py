"""Rules that need no broker: times, queues of groups, signatures, metadata."""

from __future__ import annotations

import hmac

import pytest

from roquet.proxy.rules import checks
from roquet.proxy.rules.codes import Code, Rejected
from roquet.proxy.rules.context import timeout_of
from roquet.proxy.rules.limits import ProxyLimits
from roquet.proxy.rules.methods import Status, method_of, telemetry_status
from roquet.proxy.rules.polling import polling_ms, queue_of_group
from roquet.proxy.rules.signature import LENGTH_MAX, signed_of

RULES = ProxyLimits()
DAY_MS = 86_400_000
DATE = "20261123T090000Z"


@pytest.mark.parametrize(("after_ms", "taken"), [(-1, True), (0, True), (1, False)])
def test_delivery_may_be_a_day_away_to_the_millisecond(after_ms: int, taken: bool) -> None:
    now_ms = 1_700_000_000_000
    if taken:
        checks.check_delivery(now_ms + DAY_MS + after_ms, now_ms, RULES)
        return
    with pytest.raises(Rejected) as rejected:
        checks.check_delivery(now_ms + DAY_MS + after_ms, now_ms, RULES)
    assert rejected.value.code is Code.ILLEGAL_DELIVERY_TIME
    assert rejected.value.text == f"the max delay time of message is too large, max is {DAY_MS}"


@pytest.mark.parametrize(
    ("asked", "left", "request_ms", "wanted"),
    [
        (None, 30_000, 6_000, 20_000),
        (None, 13_000, 6_000, 10_000),
        (None, 8_000, 6_000, 5_000),
        (4_999, 60_000, 0, 5_000),
        (5_000, 60_000, 0, 5_000),
        (5_001, 60_000, 0, 5_001),
        (19_999, 60_000, 0, 19_999),
        (20_000, 60_000, 0, 20_000),
        (20_001, 60_000, 0, 20_000),
        (20_000, 5_001, 0, 5_001),
        (20_000, 5_000, 0, 5_000),
        (20_000, None, 3_000, 20_000),
    ],
)
def test_polling_time_is_that_of_the_request_within_bounds(
    asked: int | None, left: int | None, request_ms: int, wanted: int
) -> None:
    assert polling_ms(asked, left, request_ms, "5.1.2", RULES) == wanted


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("", Code.BAD_REQUEST),
        ("5.0.2", Code.BAD_REQUEST),
        ("5.0.3", Code.BAD_REQUEST),
        ("5.0.4", Code.ILLEGAL_POLLING_TIME),
    ],
)
def test_polling_without_enough_time_is_refused_by_version(version: str, code: Code) -> None:
    with pytest.raises(Rejected) as rejected:
        polling_ms(20_000, 4_999, 0, version, RULES)
    assert rejected.value.code is code


def test_queue_of_a_message_group_moves_only_to_a_queue_that_was_added() -> None:
    groups = [f"group-{number}" for number in range(500)]
    for queues in range(1, 12):
        before = [queue_of_group(group, queues) for group in groups]
        after = [queue_of_group(group, queues + 1) for group in groups]
        assert set(before) == set(range(queues))
        assert {new for old, new in zip(before, after, strict=True) if new != old} == {queues}


def test_signature_is_that_of_the_date_in_either_case() -> None:
    secret = b"secret"
    good = hmac.digest(secret, DATE.encode(), "sha1").hex()
    for text in (good, good.upper()):
        credential = "Credential=key/cn-hangzhou/RocketMQ"
        header = f"MQv2-HMAC-SHA1 {credential}, SignedHeaders=x-mq-date-time, Signature={text}"
        signed = signed_of(header, DATE)
        assert signed is not None
        assert (signed.access_key, signed.is_by(secret), signed.is_by(b"other")) == (
            "key",
            True,
            False,
        )
        assert not signed._replace(date_time=DATE + " ").is_by(secret)
    assert signed_of(None, DATE) is None


@pytest.mark.parametrize(
    "header",
    ["", "MQv2-HMAC-SHA1", "x Credential", "x Credential=a,,b=c", "x a=" + "b" * LENGTH_MAX],
)
def test_authorization_that_cannot_be_read_is_refused(header: str) -> None:
    with pytest.raises(Rejected) as rejected:
        signed_of(header, DATE)
    assert rejected.value.code is Code.UNAUTHORIZED


def test_authorization_without_a_date_is_refused() -> None:
    with pytest.raises(Rejected):
        signed_of("x Credential=a, Signature=b", None)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (None, None),
        ("", None),
        ("5", None),
        ("5s", None),
        ("123456789S", None),
        ("-1S", None),
        ("5S", 5000),
        ("1H", 3_600_000),
        ("2M", 120_000),
        ("250m", 250),
        ("5000u", 5),
        ("5000000n", 5),
        ("99999999H", 359_999_996_400_000),
    ],
)
def test_timeout_of_a_call_is_read_as_grpc_writes_it(text: str | None, wanted: int | None) -> None:
    assert timeout_of(text) == wanted


def test_paths_name_methods_of_one_service() -> None:
    assert method_of("/apache.rocketmq.v2.MessagingService/SendMessage") == "SendMessage"
    for path in ("", "/", "SendMessage", "/other.Service/SendMessage"):
        assert method_of(path) is None


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (39999, Status.INTERNAL),
        (40000, Status.INVALID_ARGUMENT),
        (49999, Status.INVALID_ARGUMENT),
        (50000, Status.INTERNAL),
    ],
)
def test_telemetry_ends_by_the_kind_of_its_code(code: int, status: Status) -> None:
    assert telemetry_status(code) is status
