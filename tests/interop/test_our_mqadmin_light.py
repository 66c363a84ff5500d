"""Our mqadmin and Java's about light topics of a broker of ours: outputs compared."""

from __future__ import annotations

import contextlib
import io
import re
from typing import TYPE_CHECKING

import pytest

from interop_world import has_route, until
from light_harness import CLIENT, GROUP, ON, PARENT, ctl_command, light_properties, topic_fields
from roquet.cli.app import run
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.testing.cluster import send_command
from timer_harness import TimerBroker, TimerWorld

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from roquet.testing.java import Driver

COMMANDS = (
    ("getBrokerLiteInfo", "-b {addr}"),
    ("getBrokerLiteInfo", "-b {addr} -d"),
    ("getBrokerLiteInfo", "-c DefaultCluster"),
    ("getParentTopicInfo", f"-p {PARENT}"),
    ("getLiteTopicInfo", f"-p {PARENT} -l a"),
    ("getLiteTopicInfo", f"-p {PARENT} -l a -s"),
    ("getLiteTopicInfo", f"-p {PARENT} -l none"),
    ("getLiteClientInfo", f"-p {PARENT} -g {GROUP} -c {CLIENT}"),
    ("getLiteClientInfo", f"-p {PARENT} -g {GROUP} -c {CLIENT} -s"),
    ("getLiteClientInfo", f"-p {PARENT} -g {GROUP} -c nobody"),
    ("getLiteClientInfo", f"-p {PARENT} -g unknown -c {CLIENT}"),
    ("getLiteGroupInfo", f"-p {PARENT} -g {GROUP}"),
    ("getLiteGroupInfo", f"-p {PARENT} -g {GROUP} -k 1"),
    ("getLiteGroupInfo", f"-p {PARENT} -g {GROUP} -l a"),
    ("getLiteGroupInfo", f"-p {PARENT} -g {GROUP} -l none"),
    ("getLiteGroupInfo", f"-p {PARENT} -g unknown"),
    ("triggerLiteDispatch", f"-p {PARENT} -g {GROUP}"),
    ("triggerLiteDispatch", f"-p {PARENT} -g {GROUP} -c {CLIENT}"),
    ("triggerLiteDispatch", f"-p {PARENT} -g unknown"),
)


@pytest.fixture(scope="module")
def broker(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TimerBroker]:
    servers = TimerWorld(jars, tmp_path_factory.mktemp("light")).__enter__()
    built = servers.broker("light", ON)
    try:
        built.open("ours")
        furnish(built)
        yield built
        built.close("stop")
    finally:
        servers.__exit__(None, None, None)


def furnish(broker: TimerBroker) -> None:
    """Make a parent, a group, messages, and a subscription, and consume some."""
    fields = topic_fields(PARENT, **{"message.type": "LITE", "lite.topic.expiration": "60"})
    done(broker, Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=fields))
    body = b'{"groupName":"%s","attributes":{"+lite.bind.topic":"%s"}}'
    made = body % (GROUP.encode(), PARENT.encode())
    done(broker, Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=made))
    for name, count in (("a", 3), ("b", 2)):
        for _ in range(count):
            done(broker, send_command(PARENT, b"m", 0, light_properties(name)))
    done(broker, ctl_command("PARTIAL_ADD", ["a", "b"]))
    for name, offset in (("a", 1), ("b", 0)):
        commit = {
            "consumerGroup": GROUP,
            "topic": f"%LMQ%${PARENT}${name}",
            "queueId": "0",
            "commitOffset": str(offset),
        }
        done(broker, Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=commit))
    plan = broker.plan
    until("the route", lambda: has_route(plan.namesrv, PARENT, plan.name))


def done(broker: TimerBroker, command: Command) -> None:
    """Ask something that the broker does."""
    answer = broker.ask(command)
    assert answer.code == 0, answer.remark


def shown(text: str) -> list[str]:
    """Return lines without what grows from one moment to the next."""
    # Without a backlog it is the time of the command itself.
    text = re.sub(r"(Min Unconsumed Timestamp:) \d+ \(\d+ s ago\)", r"\1", text)
    # When a client was last seen; it goes on telling of itself between the two commands.
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", "DATE", text)
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.parametrize(("name", "words"), COMMANDS, ids=lambda it: it or "-")
def test_light_command_prints_what_javas_prints(
    broker: TimerBroker, driver: Driver, name: str, words: str
) -> None:
    plan = broker.plan
    given = words.format(addr=plan.address).split()
    java = driver.mqadmin(name, "-n", plan.namesrv, *given)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run(["mqadmin", name, "-n", plan.namesrv, *given]) == 0
    assert shown(out.getvalue()) == shown(java)
