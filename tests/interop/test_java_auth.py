"""Access control 2.0 beside RocketMQ 5.5.0: its tool and the answers of both brokers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import json
import random
import re
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from auth_harness import PROVIDERS
from cli_shell import Shell
from interop_world import our_broker, our_name_server, registered, until
from roquet.acl.credentials import Credentials
from roquet.auth.keeping.store import NAME, AuthFile
from roquet.base.clock import SystemClock
from roquet.cli.app import run
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.testing.java import BrokerPlan, Driver, fetch_jars, free_port, java_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Credentials("root", "password-of-root")
ANN = Credentials("ann", "password-of-ann")
SWITCHES = {
    **PROVIDERS,
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": ROOT.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": "inner", "secretKey": "password-of-inner"}
    ),
    # On a busy machine Java would refuse what waited for 200 ms, which is not asked here.
    "brokerFastFailureEnable": "false",
}


@dataclasses.dataclass
class Both:
    """Our open name server, our broker and the Java one, both with users."""

    namesrv: str
    ours: BrokerPlan
    java: BrokerPlan
    driver: Driver

    def mqadmin(self, command: str, *arguments: str) -> str:
        return self.driver.mqadmin(command, "-n", self.namesrv, *arguments)

    async def ask(
        self, broker: BrokerPlan, command: Command, who: Credentials | None = ROOT
    ) -> tuple[int, str, Any]:
        client = Client(clock=SystemClock())
        await client.start()
        try:
            sent = command if who is None else who.sign(command)
            answer = await client.call(broker.address, sent, 30.0)
        finally:
            await client.stop()
        # Java says "not set any response code" with what has gone well.
        remark = (answer.remark or "") if answer.code else ""
        return answer.code, remark, json.loads(answer.body) if answer.body else None

    def answers(self, command: Command, who: Credentials | None = ROOT) -> list[tuple[Any, ...]]:
        """Return what both brokers answer."""
        return [asyncio.run(self.ask(broker, command, who)) for broker in (self.ours, self.java)]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("auth")
    jars = fetch_jars()
    chance = random.Random()
    ports = [free_port(chance) for _ in range(3)]
    namesrv = f"127.0.0.1:{ports[0]}"
    ours = BrokerPlan("auth-ours", ports[1], namesrv, folder / "our-store", SWITCHES)
    java = BrokerPlan("auth-java", ports[2], namesrv, folder / "java-store", SWITCHES)
    home = folder / "tools"
    (home / "conf").mkdir(parents=True)
    keys = f"accessKey: {ROOT.access_key}\nsecretKey: {ROOT.secret_key}\n"
    (home / "conf" / "tools.yml").write_text(keys)
    processes = [
        our_name_server(folder / "namesrv", ports[0]),
        our_broker(folder / "our-broker", ours),
        java_broker(jars, folder / "java-broker", java),
    ]
    driver = Driver(jars, folder / "driver", [f"-Drocketmq.home.dir={home}"])
    try:
        for process in processes:
            process.start()
        until("registration", partial(registered, namesrv, ours.name, java.name), 120)
        yield Both(namesrv, ours, java, driver)
    finally:
        driver.close()
        for process in reversed(processes):
            process.kill()


def user(code: int, name: str | None, body: Any = None) -> Command:
    ext = {} if name is None else {"username": name}
    return Command(code, ext, b"" if body is None else json.dumps(body).encode())


def acl(code: int, name: str, *entries: dict[str, Any], kind: str | None = "Custom") -> Command:
    body = {"policies": [{"policyType": kind, "entries": list(entries)}]}
    return Command(code, {"subject": f"User:{name}"}, json.dumps(body).encode())


def entry(resource: str, *actions: str, decision: str = "Allow", **more: Any) -> dict[str, Any]:
    return {"resource": resource, "actions": list(actions), "decision": decision, **more}


GOOD = entry("Topic:a", "Pub")


def test_requests_about_users_and_policies_are_answered_alike(both: Both) -> None:
    """Code, text and body, in an order in which each builds on those before it."""
    story: list[Command] = [
        user(3001, "", {"password": "p"}),
        user(3001, None, {"password": "p"}),
        user(3001, "tale", {}),
        user(3001, "tale", {"password": " "}),
        user(3001, "tale", {"password": "p", "userType": "what", "userStatus": "what"}),
        user(3001, "tale", {"password": "p"}),
        user(3004, "tale"),
        user(3004, "nobody"),
        user(3004, ""),
        user(3004, " "),
        user(3002, "nobody", {"password": "p"}),
        user(3002, "tale", {"userStatus": "DISABLE"}),
        user(3002, "tale", {"userType": "super", "userStatus": "enable"}),
        user(3002, "tale", {"userType": "NORMAL", "password": "q"}),
        user(3004, "tale"),
        Command(3005, {"filter": "tal"}),
        Command(3005, {"filter": "not there"}),
        Command(3009, {"subject": "User:tale"}),
        Command(3009, {"subject": "User:nobody"}),
        Command(3009, {"subject": "Role:tale"}),
        Command(3008, {"subject": "User:tale"}),
        acl(3006, "nobody", GOOD),
        acl(3006, "tale"),
        acl(3006, "tale", {**GOOD, "resource": "Queue:a"}),
        acl(3006, "tale", {**GOOD, "resource": ""}),
        acl(3006, "tale", {**GOOD, "actions": []}),
        acl(3006, "tale", {**GOOD, "actions": ["what"]}),
        acl(3006, "tale", {**GOOD, "actions": ["Any"]}),
        acl(3006, "tale", {**GOOD, "sourceIps": [" "]}),
        acl(3006, "tale", {**GOOD, "sourceIps": ["10.0.0.0/33"]}),
        acl(3006, "tale", {**GOOD, "sourceIps": ["10.0.0.0/x"]}),
        acl(3006, "tale", {**GOOD, "sourceIps": ["::1/129"]}),
        acl(3006, "tale", {**GOOD, "decision": "what"}),
        acl(3006, "tale", {**GOOD, "decision": None}),
        acl(3006, "tale", GOOD, entry("topic:b*", "SUB", "get"), kind=None),
        acl(3007, "tale", entry("Topic:a", "Sub", decision="deny", sourceIps=["10.0.0.0/8"])),
        acl(3006, "tale", entry("*", "All"), entry("Group:*", "Sub"), kind="default"),
        Command(3009, {"subject": "User:tale"}),
        Command(3010, {"subjectFilter": "tale"}),
        Command(3010, {"subjectFilter": "tale", "resourceFilter": "Topic:b"}),
        Command(3010, {"resourceFilter": "not there"}),
        Command(3008, {"subject": "User:tale", "resource": "Topic:b*"}),
        Command(3009, {"subject": "User:tale"}),
        Command(3008, {"subject": "User:tale", "resource": "Group:*", "policyType": "Default"}),
        Command(3009, {"subject": "User:tale"}),
        Command(3008, {"subject": "User:tale"}),
        Command(3009, {"subject": "User:tale"}),
        user(3003, "tale"),
        user(3003, "tale"),
        user(3003, ""),
    ]
    told = [(command, both.answers(command)) for command in story]
    differing = [(it.code, it.ext, it.body, two) for it, two in told if two[0] != two[1]]
    assert differing == []


def test_drawn_policies_decide_alike(both: Both) -> None:
    """Java's own answers for policies and requests that are drawn."""
    rng = random.Random(21)
    assert [it[0] for it in both.answers(user(3001, "ann", {"password": ANN.secret_key}))] == [0, 0]
    for turn in range(12):
        for kind in ("Custom", "Default"):
            entries = [
                entry(
                    rng.choice(("*", "Topic:*", "Topic:a*", "Topic:ab*", "Topic:ab", "Topic:abc")),
                    *rng.sample(("Pub", "Sub", "Get", "All", "Create"), rng.randint(1, 2)),
                    decision=rng.choice(("Allow", "Deny")),
                    sourceIps=rng.choice(
                        ([], [], ["127.0.0.1"], ["127.0.0.0/8", "9.9.9.9"], ["10.0.0.0/8"])
                    ),
                )
                for _ in range(rng.randint(1, 4))
            ]
            # An entry about a resource that is there twice is replaced by the later one here.
            named = {it["resource"]: it for it in entries}
            given = both.answers(acl(3006, "ann", *named.values(), kind=kind))
            assert [it[0] for it in given] == [0, 0]
        for name in ("ab", "abc", "abd", "a", "x"):
            for code in (10, 12, 351):
                ext = {"topic": name, "producerGroup": "p", "queueId": "0"}
                ours, java = both.answers(Command(code, ext), ANN)
                said = "has no permission to access"
                refused = [said in it[1] for it in (ours, java)]
                assert refused[0] == refused[1], (turn, name, code, ours, java)
                if all(refused):
                    assert ours[:2] == java[:2]
        assert [it[0] for it in both.answers(Command(3008, {"subject": "User:ann"}))] == [0, 0]


def test_java_tool_copies_users_and_policies_from_java_to_us_and_back(both: Both) -> None:
    at = {"java": ("-b", both.java.address), "ours": ("-b", both.ours.address)}
    for here, there, name in (("java", "ours", "eve"), ("ours", "java", "fay")):
        brokers = {"java": both.java.address, "ours": both.ours.address}
        way = ("-f", brokers[here], "-t", brokers[there])
        made = both.mqadmin("createUser", *at[here], "-u", name, "-p", "pw-of-it", "-t", "Normal")
        assert f"create user to {brokers[here]} success." in made
        given = ("-s", f"User:{name}", "-r", "Topic:orders,Group:g*", "-a", "Pub,Sub")
        made = both.mqadmin("createAcl", *at[here], *given, "-d", "Allow", "-i", "127.0.0.1")
        assert f"create acl to {brokers[here]} success." in made
        assert "success" in both.mqadmin("copyUser", *way, "-u", name)
        assert "success" in both.mqadmin("copyAcl", *way, "-s", f"User:{name}")
        shown = [
            (
                both.mqadmin("getUser", *where, "-u", name),
                both.mqadmin("getAcl", *where, "-s", f"User:{name}"),
            )
            for where in at.values()
        ]
        assert shown[0] == shown[1]
        assert "pw-of-it" in shown[0][0]
        assert "Group:g*" in shown[0][1]
        changed = both.mqadmin("updateUser", *at[there], "-u", name, "-s", "disable")
        assert "success" in changed
        assert "disable" in both.mqadmin("listUser", *at[there], "-f", name)
        assert "success" in both.mqadmin("deleteAcl", *at[there], "-s", f"User:{name}")
        assert "success" in both.mqadmin("deleteUser", *at[there], "-u", name)
        assert name not in both.mqadmin("listUser", *at[there])


def test_commands_of_the_guide_are_carried_out(both: Both) -> None:
    """docs/guide/users-and-policies.md, in its order."""
    guide = Path(__file__).parents[2] / "docs/guide/users-and-policies.md"
    fence = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
    blocks = [text for kind, text in fence.findall(guide.read_text()) if not kind]
    (block,) = [text for text in blocks if text.startswith("mqadmin")]
    *changes, last = block.splitlines()
    assert len(changes) == 2
    # Stories before this one may have left a user of that name.
    both.mqadmin("deleteAcl", "-b", both.ours.address, "-s", "User:ann")
    both.mqadmin("deleteUser", "-b", both.ours.address, "-u", "ann")
    said = [
        both.mqadmin(*shlex.split(line.replace("127.0.0.1:10911", both.ours.address))[1:])
        for line in (*changes, last, "mqadmin deleteUser -b 127.0.0.1:10911 -u ann")
    ]
    for it in (*said[:2], said[3]):
        assert f"to {both.ours.address} success." in it
    rows = [line.split()[:4] for line in said[2].splitlines() if line.startswith("User:ann")]
    assert rows == [
        ["User:ann", "Custom", "Topic:orders", "[Pub,"],
        ["User:ann", "Custom", "Group:billing", "[Pub,"],
    ]


def ours(*words: str) -> tuple[int, str]:
    """Run our tool; the account is that of the context in use."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run(["mqadmin", *words])
    return code, out.getvalue()


ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
STORY = (
    "createUser {at} -u tale -p pw-of-tale -t Normal",
    "createUser {at} -u plain -p pw-of-plain",
    "getUser {at} -u tale",
    "getUser {at} -u nobody",
    "updateUser {at} -u tale -s disable",
    "updateUser {at} -u tale -t Super",
    "updateUser {at} -u tale -p another-one",
    "listUser {at} -f ta",
    "listUser {at} -f nobody",
    "createAcl {at} -s User:tale -r Topic:a,Group:g* -a Pub,Sub -d Allow -i 127.0.0.1,10.0.0.0/8",
    "createAcl {at} -s User:plain -r * -a All -d Deny",
    "updateAcl {at} -s User:tale -r Topic:a -a Get -d Deny",
    "getAcl {at} -s User:tale",
    "getAcl {at} -s User:nobody",
    "listAcl {at} -s tale",
    "listAcl {at} -s tale -r Topic",
    "listAcl {at} -r nothing-of-it",
    "deleteAcl {at} -s User:tale -r Topic:a",
    "getAcl {at} -s User:tale",
    "copyUser {way} -u tale,nobody,plain",
    "copyAcl {way} -s User:tale,User:plain",
    "listUser -c DefaultCluster -f tale",
    "listAcl -c DefaultCluster -s User:plain",
    "deleteAcl -c DefaultCluster -s User:tale",
    "getAcl {at} -s User:tale",
    "deleteUser -c DefaultCluster -u tale",
    "deleteUser -c DefaultCluster -u plain",
    "listUser {at} -f tale",
)


def test_our_tool_does_and_prints_what_javas_does(
    both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One story, told by each tool to the broker of each make."""
    keys = {"access_key": ROOT.access_key, "secret_key": ROOT.secret_key}
    contexts = tmp_path / "contexts.json"
    cluster = {"namesrv": both.namesrv, **keys}
    contexts.write_text(json.dumps({"in_use": "here", "contexts": {"here": cluster}}))
    contexts.chmod(0o600)
    monkeypatch.setenv("ROQUET_CONTEXTS", str(contexts))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    for at, other in ((both.ours, both.java), (both.java, both.ours)):
        facts = {"at": f"-b {at.address}", "way": f"-f {at.address} -t {other.address}"}
        told = [line.format(**facts) for line in STORY]
        java = [both.mqadmin(*line.split()) for line in told]
        refused = [line for line, it in zip(told, java, strict=True) if "Exception" in it]
        mine = [ours(*line.split()) for line in told]
        assert [line for line, (code, _) in zip(told, mine, strict=True) if code] == refused
        assert [line.split()[0] for line in refused] == ["getAcl"], java
        for line, (_, out), theirs in zip(told, mine, java, strict=True):
            # Which of a cluster's brokers comes first, a hash table says in Java.
            mine_shown, java_shown = (
                ADDRESS.sub("BROKER", text) if " -c " in line else text for text in (out, theirs)
            )
            shown = [] if line in refused else sorted(java_shown.splitlines())
            assert sorted(mine_shown.splitlines()) == shown, line
        assert sum(bool(out) for _, out in mine) > len(told) - 8


def test_refusals_end_our_tool_with_one_line(
    both: Both, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an account: `-n` names a cluster that no account goes with."""
    there = ("-n", both.namesrv, "-b", both.ours.address)
    assert ours("createUser", *there, "-u", "x", "-p", "canary-of-x") == (1, "")
    err = capsys.readouterr().err
    assert "username cannot be null" in err
    assert err.count("\n") == 1
    assert "canary-of-x" not in err


def test_users_in_the_store_of_a_java_broker_are_known_to_be_unread(both: Both) -> None:
    unread = AuthFile(both.java.store / "config" / NAME).unread
    assert unread == both.java.store / "config" / "users"
    assert AuthFile(both.ours.store / "config" / NAME).unread is None


def test_users_and_policies_of_a_java_broker_are_imported(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROQUET_ACCESS_KEY", ROOT.access_key)
    monkeypatch.setenv("ROQUET_SECRET_KEY", ROOT.secret_key)
    made = (
        user(3001, "carl", {"password": "carls-password", "userType": "Normal"}),
        acl(
            3006,
            "carl",
            entry("Topic:orders", "Pub", "Sub", sourceIps=["10.0.0.0/8"]),
            entry("Group:*", "Sub", decision="Deny"),
        ),
        acl(3006, "carl", entry("*", "All"), kind="Default"),
    )
    for command in made:
        assert asyncio.run(both.ask(both.java, command))[0] == 0
    shell = Shell(both.namesrv)
    shown = shell("auth", "import", both.java.address, "-y")
    assert "carl" not in shown, shown
    # Root and the inner user are the same on both.
    assert "2 there already, 0 things not had" in shown, shown
    assert shell.code == 0
    subject = Command(3009, {"subject": "User:carl"})
    ours, java = both.answers(subject)
    assert ours[0] == 0
    assert sorted_entries(ours[2]) == sorted_entries(java[2])
    # The password came as well: carl can sign.
    carl = Credentials("carl", "carls-password")
    assert asyncio.run(both.ask(both.ours, user(3004, "carl"), carl))[0] == 0


def sorted_entries(policies: Any) -> list[Any]:
    return sorted(
        json.dumps({**it, "kind": of["policyType"].lower(), "sourceIps": it.get("sourceIps")})
        for of in policies["policies"]
        for it in of["entries"]
    )
