"""A refusal is a reason and a text; the remoting front has one table from reason to code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import roquet.broker
from roquet.acl.accounts import Perm
from roquet.acl.needs import Need
from roquet.acl.rights import EVERYBODY, Asking
from roquet.base.errors import Refused
from roquet.broker.api.caller import Caller
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.replies import ReplyResult
from roquet.broker.api.send import SendResult, SendStatus
from roquet.broker.remoting.callers import Callers
from roquet.broker.remoting.refusals import CODES, OutcomeCodes, refused, translated
from roquet.broker.services.access import Access
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.router import Request, Route, Router
from roquet.service.lanes import LaneConfig, Lanes
from roquet.testing.clock import FakeClock
from roquet.testing.peer import FakePeer


def test_codes_table_has_a_code_for_each_reason_and_success_for_none() -> None:
    assert set(CODES) == set(Reason)
    assert ResponseCode.SUCCESS not in CODES.values()


def test_codes_table_reasons_of_different_meaning_have_different_codes() -> None:
    codes = [code for reason, code in CODES.items() if reason is not Reason.ACCOUNT_REFUSED]
    assert len(codes) == len(set(codes))


READS_ANSWERS_OF_OTHERS = {"slave_sync.py", "topic_queues.py", "user_copies.py"}
"""What asks other brokers and name servers compares the codes of their answers."""
STATUSES_OF_ITS_OWN = {"pop.py", "waiting_pops.py"}
"""Pops end in statuses that no refusal has: their adapters answer them themselves."""


def test_response_codes_are_made_in_one_module_of_the_broker() -> None:
    folder = Path(roquet.broker.__file__).parent
    makers = {
        path.name
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "ResponseCode"
        and node.attr != "SUCCESS"
    }
    assert makers == {"refusals.py"} | READS_ANSWERS_OF_OTHERS | STATUSES_OF_ITS_OWN


def test_plugin_s_own_code_is_answered_and_other_fronts_get_its_reason() -> None:
    codes = OutcomeCodes()
    for code, reason in ((16, Reason.FORBIDDEN), (1, Reason.FAILED), (999, Reason.FAILED)):
        found = codes.refusal(Refused(code, "no"))
        assert (found.reason, found.text, codes.of(None, found)) == (reason, "no", code)
        assert refused(found).code == code


def test_outcome_codes_of_results_and_failures_are_those_of_answers() -> None:
    codes = OutcomeCodes()
    stored = SendResult(
        status=SendStatus.NO_REPLICA, message_ids=("1",), queue_id=0, queue_offset=0
    )
    assert codes.of(stored, None) == ResponseCode.SLAVE_NOT_AVAILABLE
    assert codes.of(ReplyResult(fault=None, queue_id=0), None) == ResponseCode.SUCCESS
    assert codes.of(ReplyResult(fault="gone", queue_id=0), None) == ResponseCode.SYSTEM_ERROR
    assert codes.of(7, None) == ResponseCode.SUCCESS
    assert codes.of(None, ValueError("broken")) == ResponseCode.SYSTEM_ERROR


def test_refused_keeps_the_text_of_the_refusal() -> None:
    found = refused(Refusal(Reason.UNKNOWN_TOPIC, "topic[t] not exist"))
    assert (found.code, found.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[t] not exist")


def test_translated_leaves_other_errors_alone() -> None:
    error = ValueError("not ours")
    assert translated(error) is error


@pytest.mark.parametrize("reason", Reason)
def test_router_answers_a_refusal_by_the_table(reason: Reason) -> None:
    clock = FakeClock()

    def refuse(_: Request) -> Command:
        raise Refusal(reason, "said so")

    route = Route((RequestCode.GET_MAX_OFFSET,), refuse, "work")
    lanes = Lanes([LaneConfig("work", 1, 1)], clock)
    router = Router([route], None, lanes, clock, translate=translated)
    answers: list[Command] = []
    command = Command(RequestCode.GET_MAX_OFFSET)
    router.dispatch(Request(command, FakePeer(), 0, answers.append))
    assert [(it.code, it.remark, it.ext) for it in answers] == [(CODES[reason], "said so", None)]


def test_callers_of_a_request_gives_address_language_version_and_time() -> None:
    command = Command(RequestCode.PULL_MESSAGE, language="GO", version=317)
    peer = FakePeer()
    caller = Callers(EVERYBODY).of(Request(command, peer, 12, lambda _: None))
    assert caller == Caller(address=peer.address, language="GO", version=317, received_ms=12)


class _Nobody:
    """Grants nothing."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[Need]]] = []

    def caller(self, command: Command, address: str) -> Asking:
        raise NotImplementedError

    def require(self, caller: Asking, needs: list[Need]) -> None:
        self.asked.append((caller.access_key, list(needs)))
        raise Refused(ResponseCode.SYSTEM_ERROR, "No default permission for topic:t")


def test_access_of_an_account_without_the_right_is_refused_in_the_words_of_the_rights() -> None:
    rights = _Nobody()
    access = Access(rights)  # type: ignore[arg-type]
    caller = Caller(address="127.0.0.1:1", access_key="key")
    for require, perm in (
        (access.require_read, Perm.SUB | Perm.GET),
        (access.require_write, Perm.PUB),
    ):
        with pytest.raises(Refusal, match="No default permission for topic:t") as caught:
            require(caller, "t")
        assert caught.value.reason is Reason.ACCOUNT_REFUSED
        assert rights.asked[-1] == ("key", [Need(is_group=False, name="t", perm=perm)])
