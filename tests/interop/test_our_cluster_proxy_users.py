"""Users of our broker and of Java's at our proxy before it, with the official Python client."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from auth_harness import (
    ANN,
    CLERK,
    INNER,
    PROVIDERS,
    ROOT,
    STRANGER,
    SWITCHES,
    acl_command,
    entry,
    user_command,
)
from grpc_harness import Accounts, Peer, ProxyWorld

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from roquet.protocol.command import Command

TOPIC, GROUP = "UsersTopic", "users-group"


@pytest.fixture(scope="module", params=["ours", "java"])
def world(
    jars: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[ProxyWorld]:
    make = str(request.param)
    folder = tmp_path_factory.mktemp(make)
    accounts = Accounts("", INNER, ROOT)
    settings = {**SWITCHES, **PROVIDERS}
    built = ProxyWorld.start_our_cluster(jars, folder, make, accounts=accounts, settings=settings)
    try:
        built.topic(TOPIC, "NORMAL")
        built.group(GROUP)
        for who in (ANN, CLERK):
            told(built, user_command(3001, who.access_key, {"password": who.secret_key}))
        own = entry(f"Topic:{TOPIC}", "Pub", "Sub"), entry(f"Group:{GROUP}", "Sub")
        told(built, acl_command(3006, "ann", own))
        yield built
    finally:
        built.stop()


def told(world: ProxyWorld, command: Command) -> None:
    """Tell the broker something as an administrator."""
    answer = world.ask(command)
    assert answer.code == 0, answer.remark


def send(peer: Peer, body: bytes = b"x") -> str:
    """Send one message; return why it was refused, nothing when it was not."""
    try:
        (answer,) = peer.send(TOPIC, [{"body": body}])
    except AssertionError as error:
        return str(error)
    return str(answer.get("error", ""))


def until_sent(peer: Peer, *, wanted: bool) -> None:
    end = time.monotonic() + 60
    while (not send(peer)) != wanted:
        assert time.monotonic() < end, "the users of the broker do not come to the proxy"
        time.sleep(0.2)


def test_user_with_rights_sends_and_receives_and_others_do_not(world: ProxyWorld) -> None:
    ann = world.peer("python", ANN)
    until_sent(ann, wanted=True)
    ann.ask("open", topic=TOPIC, group=GROUP)
    came: list[bytes] = []
    end = time.monotonic() + 60
    while not came and time.monotonic() < end:
        for message in ann.receive(GROUP):
            came.append(message["body"])
            ann.ask("ack", group=GROUP, message=message["id"])
    assert came[0] == b"x"
    # Whoever is not let in, or has no right on the topic, is shown no route; the client does not
    # pass on why.
    for who in (CLERK, STRANGER, None):
        refusal = send(world.peer("python", who))
        assert "failed to fetch topic" in refusal, refusal[-500:]
    told(world, user_command(3002, "ann", {"userStatus": "disable"}))
    until_sent(ann, wanted=False)
    told(world, user_command(3002, "ann", {"userStatus": "enable"}))
    until_sent(ann, wanted=True)
    told(world, acl_command(3007, "ann", [entry(f"Topic:{TOPIC}", "Sub")]))
    until_sent(ann, wanted=False)
