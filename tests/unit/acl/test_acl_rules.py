"""Accounts, white lists, signatures and permissions, without sockets."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from roquet.acl import accounts
from roquet.acl.accounts import Account, Perm, Table, build, read_account
from roquet.acl.addresses import compile_pattern, peer_parts
from roquet.acl.credentials import Credentials, from_environment, from_file, variables
from roquet.acl.documents import read_document, write_document
from roquet.acl.guard import JAVA, Guard
from roquet.acl.needs import (
    TOPICS_AT_ONCE,
    Need,
    batch_ack_needs,
    broker_needs,
    check_needs,
    group,
    heartbeat_needs,
    lock_needs,
    name_server_needs,
    producer,
    topic,
)
from roquet.acl.signature import ACCESS_KEY, content, is_signed, sign
from roquet.base.errors import Refused, UsageError
from roquet.model.queue import MessageQueue
from roquet.model.subscription import SubscriptionData
from roquet.protocol.bodies.clients import CheckClient, ConsumerData, HeartbeatData
from roquet.protocol.bodies.locks import LockRequest
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.names import WAITING_ROOMS
from roquet.protocol.pop.batch_ack import BatchAckBody

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

USER = {"accessKey": "RocketMQ", "secretKey": "12345678"}
CANARY = "canary-secret-key"


# --- white lists -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("*", ["1.2.3.4:5", "[fe80::1]:5"], []),
        ("*.*.*.*", ["1.2.3.4:5"], []),
        ("10.0.0.1", ["10.0.0.1:9"], ["10.0.0.11:9", "10.0.0.2:9", "[::a00:1]:9"]),
        ("10.0.0.1", ["[::ffff:10.0.0.1]:9", "::ffff:10.0.0.1:9"], []),
        ("192.168.*.*", ["192.168.0.9:1"], ["192.169.0.9:1"]),
        ("192.168.3-7.*", ["192.168.3.0:1", "192.168.7.255:1"], ["192.168.8.0:1"]),
        ("10.1.1.{1,2,30}", ["10.1.1.30:1"], ["10.1.1.3:1"]),
        ("10.1.1.1, 10.2.2.2", ["10.2.2.2:1"], ["10.2.2.1:1"]),
        ("fd00::1:*", ["[fd00::1:abcd]:1"], ["[fd00::2:abcd]:1", "10.0.0.1:1"]),
        ("1050:0:0:0:5:600:300c:1-a4", ["[1050::5:600:300c:a4]:1"], ["[1050::5:600:300c:a5]:1"]),
        ("1050::5:600:300c:{1,b}", ["[1050::5:600:300c:b]:1"], ["[1050::5:600:300c:c]:1"]),
        ("*:*:*:*:*:*:*:*", ["[fe80::1]:5"], []),
        ("", [], ["1.2.3.4:5"]),
        ("null", [], ["1.2.3.4:5"]),
        ("10.0.0.1", [], ["here", "", "10.0.0.1"]),
    ],
)
def test_white_lists(pattern: str, inside: list[str], outside: list[str]) -> None:
    compiled = compile_pattern(pattern)
    assert all(compiled.matches(peer_parts(address)) for address in inside)
    assert not any(compiled.matches(peer_parts(address)) for address in outside)


@pytest.mark.parametrize(
    "pattern",
    [
        "0.0.0.0/0",
        "1.2.3",
        "1.2.3.4.5",
        "1.2.3.256",
        "1.2.3.a",
        "1.2.3.٣",
        "10.0.0.9-3",
        "10.0.0.-3",
        "fd00::1::2",
        "fd00:1:2",
        "fd00::12345",
        "10.0.0{1,2}",
        "{1,2}",
        "x" * 5000,
    ],
)
def test_b12_a_white_list_that_means_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="Exception"):
        compile_pattern(pattern)


# --- files -------------------------------------------------------------------------------------

JAVA_FILE = b"""
globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress: null
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  groupPerms: [groupA=DENY]
- {accessKey: rocketmq2, secretKey: '87654321', whiteRemoteAddress: 192.168.1.*, admin: true}
dataVersion:
- counter: 2
  timestamp: 1795261000759
"""


def test_a_java_file_is_read_and_written_again() -> None:
    document = read_document(JAVA_FILE)
    table = build({"plain": document})
    user, admin = table.accounts["RocketMQ"], table.accounts["rocketmq2"]
    assert (user.secret, user.admin, user.default_group) == (b"12345678", False, Perm.SUB)
    assert user.topics == {"topicA": Perm.DENY, "topicB": Perm.BOTH}
    assert not user.white.alternatives
    assert admin.is_unlimited
    assert table.versions["plain"].counter == 2
    assert build({"plain": read_document(write_document(document))}) == table
    assert b"admin: false\n" in write_document(document)
    assert b"counter: 2\n" in write_document(document)


def test_the_first_of_equal_keys_counts_and_wide_white_lists_are_named() -> None:
    one = {"accounts": [{**USER, "whiteRemoteAddress": "*"}]}
    two = {"accounts": [{**USER, "secretKey": CANARY}], "globalWhiteRemoteAddresses": ["*"]}
    table = build({"one": one, "two": two})
    assert table.accounts["RocketMQ"].secret == b"12345678"
    assert table.homes == {"RocketMQ": "one"}
    assert len(table.notes) == 3
    assert CANARY not in repr(table) + str(table.notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("accounts: [1, 2]", "list of accounts"),
        ("- a", "a mapping is expected"),
        ("a: [", "no YAML, line 1"),
        ("accounts:\n- {accessKey: short, secretKey: canary-secret-key}", "longer than 6"),
        ("accounts:\n- {accessKey: long-enough, secretKey: canary}", "longer than 6"),
        ("accounts:\n- {accessKey: [a], secretKey: canary-secret-key}", "accessKey has to be"),
        (
            "accounts:\n- {accessKey: longenough, secretKey: canary-secret-key, topicPerms: [a]}",
            "Parse resource permission failed for topic:a",
        ),
        (
            "accounts:\n- {accessKey: longenough, secretKey: canary-secret-key, topicPerms: a=PUB}",
            "list of texts",
        ),
        ("globalWhiteRemoteAddresses: [0.0.0.0/0]", "Netaddress examine Exception"),
        ("a: &x [1]\nb: *x", "anchors"),
        ("a: " + "[" * 5000, "nested deeper"),
        ("!!python/object/apply:os.system [echo]", "a mapping is expected"),
        ("dataVersion: [{counter: x}]", "numbers"),
        ("accounts:\n- {accessKey: longenough, secretKey: " + "canary" * 200 + "}", "at most 1024"),
    ],
)
def test_b12_a_file_that_cannot_be_used_is_refused_without_its_secrets(
    text: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        build({"plain": read_document(text.encode())})
    assert "canary" not in str(caught.value)


def test_billions_of_entries_in_a_few_lines_are_refused_at_once() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(UsageError, match="anchors"):
        read_document("\n".join(lines).encode())


# --- signatures --------------------------------------------------------------------------------


def test_the_signature_is_javas() -> None:
    signed = sign(Command(10, {"topic": "TestT", "a": "g1"}, b"hello"), "ak", b"sk")
    ext = signed.ext or {}
    assert content(ext, b"hello") == b"akg1TestThello"
    assert ext["Signature"] == "xfptfwOmb2LvKj2cs2kwGSW4fcE="
    assert is_signed(signed, b"sk")


def test_names_are_sorted_as_java_sorts() -> None:
    # U+1F600 is two code units that begin with D83D, which comes before U+FF5E.
    assert content({"\uff5e": "2", "\U0001f600": "1", "a": "0"}, b"") == b"012"


def test_the_mark_of_a_query_may_be_signed_or_not() -> None:
    query = Command(12, {"topic": "t"})
    old = sign(query, "ak", b"sk")
    old = dataclasses.replace(old, ext={**(old.ext or {}), "_UNIQUE_KEY_QUERY": "true"})
    marked = {"topic": "t", "_UNIQUE_KEY_QUERY": "true"}
    assert is_signed(old, b"sk")
    assert is_signed(sign(dataclasses.replace(query, ext=marked), "ak", b"sk"), b"sk")
    assert not is_signed(old, b"other")


def test_b12_any_change_breaks_a_signature() -> None:
    signed = sign(Command(310, {"b": "orders"}, b"body"), "RocketMQ", b"12345678")
    ext = signed.ext or {}
    changed = [
        dataclasses.replace(signed, body=b"bodY"),
        dataclasses.replace(signed, ext={**ext, "b": "orderz"}),
        dataclasses.replace(signed, ext={**ext, "more": "x"}),
        dataclasses.replace(signed, ext={**ext, "Signature": ""}),
        dataclasses.replace(signed, ext={**ext, "Signature": "\ud800"}),
        dataclasses.replace(signed, ext={**ext, "Signature": ext["Signature"] + "="}),
        dataclasses.replace(signed, ext=None),
    ]
    assert not any(is_signed(command, b"12345678") for command in changed)


# --- what requests need ------------------------------------------------------------------------


def subscription(topic_name: str) -> SubscriptionData:
    return SubscriptionData(topic=topic_name, expression="*", version=1)


SUBSCRIPTION, RETRY_SUBSCRIPTION = subscription("t"), subscription("%RETRY%g")
QUEUES = frozenset({MessageQueue("t1", "b", 0), MessageQueue("t2", "b", 1)})
CHECK = CheckClient(
    client_id="c", group="g", subscription=SubscriptionData(topic="t", expression="*", version=1)
)
PUB_T, SUB_T = topic("t", Perm.PUB), topic("t", Perm.SUB)
READ_T, ANY_T = topic("t", Perm.SUB | Perm.GET), topic("t", Perm.BOTH | Perm.GET)
PULL = {"topic": "t", "consumerGroup": "g"}


@pytest.mark.parametrize(
    ("code", "ext", "body", "needs"),
    [
        (10, {"topic": "t", "b": "x"}, b"", [PUB_T]),
        (310, {"b": "t", "topic": "x"}, b"", [PUB_T]),
        (320, {"b": "t"}, b"", [PUB_T]),
        (310, {"b": "%RETRY%g", "a": "x"}, b"", [group("g")]),
        (324, {"topic": "C_REPLY_TOPIC"}, b"", []),
        (325, {"b": "t"}, b"", [PUB_T]),
        (36, {"group": "g", "originTopic": "t"}, b"", [group("g")]),
        (37, {"producerGroup": "p"}, b"", [producer("p")]),
        (37, {"topic": "t", "producerGroup": "p"}, b"", [PUB_T, producer("p")]),
        (37, {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, b"", [producer("")]),
        (11, PULL, b"", [SUB_T, group("g")]),
        (361, PULL, b"", [SUB_T, group("g")]),
        (11, {"topic": "%RETRY%g", "consumerGroup": "g"}, b"", [group("g"), group("g")]),
        *((code, PULL, b"", [SUB_T, group("g")]) for code in (*range(200_050, 200_056),)),
        # Redelivered messages are those of the topic that they came from.
        (200_051, {"topic": "%RETRY%g_t", "consumerGroup": "g"}, b"", [SUB_T, group("g")]),
        (200_053, {"topic": "%RETRY%g+t", "consumerGroup": "g"}, b"", [SUB_T, group("g")]),
        (200_051, {"topic": "%RETRY%h+t", "consumerGroup": "g"}, b"", [group("h+t"), group("g")]),
        (200_151, {}, b"not read here", []),
        (200_056, {}, b"", None),
        (12, PULL, b"", [READ_T]),
        (321, PULL, b"", [READ_T]),
        (14, PULL, b"", [SUB_T, group("g")]),
        (15, PULL, b"", [SUB_T, group("g")]),
        (29, PULL, b"", [ANY_T]),
        (30, PULL, b"", [ANY_T]),
        (31, PULL, b"", [ANY_T]),
        (32, PULL, b"", [ANY_T]),
        (34, {}, b"not read here", []),
        (46, {}, b"not read here", []),
        (41, {}, b"not read here", []),
        (42, {}, b"not read here", []),
        (35, {"consumerGroup": "g"}, b"", [group("g")]),
        (35, {"producerGroup": "g"}, b"", []),
        (38, {"consumerGroup": "g"}, b"", [group("g")]),
        (26, {}, b"", []),
        (202, PULL, b"", [ANY_T]),
        (33, {}, b"", []),
        (50, {}, b"", None),
        (54, {}, b"", None),
        (17, {}, b"", None),
        (25, {}, b"", None),
        (999_999, {}, b"", None),
    ],
)
def test_what_a_request_needs(
    code: int, ext: dict[str, str], body: bytes, needs: list[Need] | None
) -> None:
    found = broker_needs(Command(code, ext, body))
    assert (None if found is None else list(found)) == needs


def test_batch_of_acknowledgements_needs_each_topic_and_group_once() -> None:
    rows = [{"t": name, "c": "g"} for name in ("t", "%RETRY%g+t", "t", "%RETRY%h+t")]
    body = BatchAckBody.decode(json.dumps({"acks": rows}).encode())
    needed = [[SUB_T, group("g")], [SUB_T, group("g")], [group("h+t"), group("g")]]
    assert list(batch_ack_needs(body)) == needed


def test_body_that_the_processor_reads_says_what_it_needs() -> None:
    many = [f"t{number}" for number in range(2 * TOPICS_AT_ONCE)]
    data = HeartbeatData(
        client_id="c",
        producers=("p",),
        consumers=(
            ConsumerData(group="g", subscriptions=(SUBSCRIPTION, RETRY_SUBSCRIPTION)),
            ConsumerData(group="h", subscriptions=tuple(subscription(name) for name in many)),
        ),
    )
    parts = list(heartbeat_needs(data))
    assert max(map(len, parts)) == TOPICS_AT_ONCE
    assert list(itertools.chain(*parts)) == [
        producer("p"),
        *(group("g"), SUB_T, group("g")),
        *(group("h"), *(topic(name, Perm.SUB) for name in many)),
    ]
    assert check_needs(CHECK) == [group("g"), SUB_T]
    locks = LockRequest(client_id="c", group="g", queues=QUEUES)
    topics = [topic("t1", Perm.SUB), topic("t2", Perm.SUB)]
    assert list(lock_needs(locks)) == [[group("g")], topics]


def test_every_code_that_changes_something_needs_an_administrator() -> None:
    words = ("UPDATE", "DELETE", "CREATE", "RESET", "CLEAN", "CLONE", "ACL", "USER", "SUSPEND")
    free = {RequestCode.UPDATE_CONSUMER_OFFSET}
    for code in RequestCode:
        if any(word in code.name for word in words) and code not in free:
            assert broker_needs(Command(code, {})) is None, code.name
    asked = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert name_server_needs(asked) == ()
    for changing in (RequestCode.REGISTER_BROKER, RequestCode.PUT_KV_CONFIG, 318, 205):
        assert name_server_needs(Command(changing)) is None


# --- the guard ---------------------------------------------------------------------------------


class Fixed:
    def __init__(self, *entries: dict[str, Any], white: tuple[str, ...] = ()) -> None:
        found = {entry["accessKey"]: read_account(entry) for entry in entries}
        self.table = Table(accounts=found, white=tuple(compile_pattern(it) for it in white))


def ask(guard: Guard, command: Command, address: str = "9.9.9.9:1") -> str:
    """Return how it was refused, in Java's words; nothing when it was not."""
    try:
        guard.check(command, address)
    except Refused as refusal:
        found = refusal
    else:
        return ""
    assert found.code == 1
    assert found.remark.startswith(JAVA)
    return found.remark.removeprefix(JAVA)


def signed(command: Command, key: str = "RocketMQ", secret: str = "12345678") -> Command:
    return sign(command, key, secret.encode())


SEND: Callable[[str], Command] = lambda name: Command(310, {"b": name}, b"body")  # noqa: E731


def test_refusals_have_the_words_of_a_java_broker() -> None:
    guard = Guard(Fixed({**USER, "topicPerms": ["ok=PUB", "no=DENY", "sub=SUB"]}), broker_needs)
    assert ask(guard, SEND("ok")) == "No accessKey is configured"
    assert ask(guard, Command(28)) == "No accessKey is configured"
    assert ask(guard, Command(28, {"AccessKey": ""})) == "No accessKey is configured"
    assert ask(guard, signed(SEND("ok"))) == ""
    for name in ("no", "sub", "other"):
        expected = f"No default permission for topic:{name}"
        assert ask(guard, signed(SEND(name))) == expected
    pull = Command(11, {"topic": "sub", "consumerGroup": "g"})
    assert ask(guard, signed(pull)) == "No default permission for group:g"
    assert ask(guard, signed(Command(17, {"topic": "z"}))) == (
        "Need admin permission for request code=17, but accessKey=RocketMQ is not"
    )
    assert ask(guard, signed(SEND("RMQ_SYS_TRACE_TOPIC"))) == ""


def test_b12_an_unknown_key_is_answered_as_a_wrong_signature_is() -> None:
    guard = Guard(Fixed(USER), broker_needs)
    wrong = ask(guard, signed(SEND("t"), secret="87654321"))
    unknown = ask(guard, signed(SEND("t"), key="nobody00"))
    assert wrong == "Check signature failed for accessKey=RocketMQ"
    assert unknown == wrong.replace("RocketMQ", "nobody00")
    # The right key with another's signature, and letters that only look alike.
    assert ask(guard, signed(SEND("t"), key="R\u043e\u0441ketMQ")).startswith(
        "Check signature failed"
    )


def test_b12_b20_a_key_of_a_megabyte_or_with_line_ends_is_answered_in_one_short_line() -> None:
    guard = Guard(Fixed(USER), broker_needs)
    for key in ("k" * 1_048_576, "a\r\nb\x1b[31m%n{}", "\x00" * 100):
        text = ask(guard, signed(SEND("t"), key=key))
        assert len(text) < 500
        assert text.isprintable()
    limited = Guard(Fixed({**USER, "defaultTopicPerm": "DENY"}), broker_needs)
    assert ask(limited, signed(SEND("a\nb" * 200))).isprintable()


def test_an_administrator_is_unlimited_unless_it_has_permissions_of_its_own() -> None:
    entry = {**USER, "admin": "true"}
    assert ask(Guard(Fixed(entry), broker_needs), signed(SEND("any"))) == ""
    own = Guard(Fixed({**entry, "topicPerms": ["a=PUB"]}), broker_needs)
    assert ask(own, signed(SEND("any"))) == "No default permission for topic:any"
    assert ask(own, signed(Command(17))) == ""


def test_white_addresses_come_before_keys() -> None:
    guard = Guard(
        Fixed({**USER, "whiteRemoteAddress": "10.0.0.*"}, white=("127.0.0.1",)), broker_needs
    )
    assert ask(guard, SEND("t"), "127.0.0.1:9") == ""
    assert ask(guard, SEND("t"), "10.0.0.1:9") == "No accessKey is configured"
    key_only = Command(310, {"b": "t", "AccessKey": "RocketMQ"})
    assert ask(guard, key_only, "10.0.0.1:9") == ""
    assert ask(guard, key_only, "10.0.1.1:9").startswith("Check signature failed")


# --- the calling side --------------------------------------------------------------------------


def test_credentials_show_no_secret_and_come_from_environment_or_a_private_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "tools.yml"
    file.write_text(f"accessKey: RocketMQ\nsecretKey: '{CANARY}'\n")
    file.chmod(0o600)
    found = from_file(file)
    assert found == Credentials("RocketMQ", CANARY)
    assert CANARY not in repr(found) + str(found)
    assert from_environment({}) is None
    assert from_environment({"ROQUET_CREDENTIALS_FILE": str(file)}) == found
    given = {"ROQUET_ACCESS_KEY": "RocketMQ", "ROQUET_SECRET_KEY": CANARY}
    assert from_environment(given) == found
    assert is_signed(found.sign(Command(28)), CANARY.encode())
    token = Credentials("RocketMQ", CANARY, "token")
    assert (token.sign(Command(28)).ext or {})["SecurityToken"] == "token"
    for mode in (0o640, 0o604, 0o644):
        file.chmod(mode)
        with pytest.raises(UsageError, match="chmod 600"):
            from_file(file)


def test_credentials_of_a_name_are_those_of_its_variables_alone(tmp_path: Path) -> None:
    file = tmp_path / "far"
    file.touch(0o600)
    file.write_text(f"accessKey=far\nsecretKey={CANARY}\n")
    env = {
        "ROQUET_ACCESS_KEY": "plain",
        "ROQUET_SECRET_KEY": "s",
        "ROQUET_ACCESS_KEY_NEAR_1": "near",
        "ROQUET_SECRET_KEY_NEAR_1": CANARY,
        "ROQUET_SECURITY_TOKEN_NEAR_1": "t",
        "ROQUET_CREDENTIALS_FILE_FAR": str(file),
        "ROQUET_LISTEN_PORT": "1",
    }
    assert from_environment(env) == Credentials("plain", "s")
    assert from_environment(env, "near-1") == Credentials("near", CANARY, "t")
    assert from_environment(env, "far") == Credentials("far", CANARY)
    with pytest.raises(UsageError, match=r"no credentials 'other': set ROQUET_ACCESS_KEY_OTHER"):
        from_environment(env, "other")
    with pytest.raises(UsageError, match="ROQUET_SECRET_KEY_HALF have to be set together"):
        from_environment({"ROQUET_ACCESS_KEY_HALF": "k"}, "half")
    for wrong in ("", "1a", "a/b", "a" * 65, f"{CANARY}="):
        with pytest.raises(UsageError, match="a name has letters") as raised:
            from_environment(env, wrong)
        assert CANARY not in str(raised.value)
    # Servers in the same environment do not take them for settings that they do not know.
    assert variables(env) >= env.keys() - {"ROQUET_LISTEN_PORT"}
    assert "ROQUET_LISTEN_PORT" not in variables(env)


def test_half_of_the_credentials_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="together"):
        from_environment({"ROQUET_SECRET_KEY": CANARY})
    with pytest.raises(UsageError, match="No such file"):
        from_file(tmp_path / "nowhere")
    half = tmp_path / "half"
    half.touch(0o600)
    half.write_text("accessKey=RocketMQ\n")
    with pytest.raises(UsageError, match="has no secretKey"):
        from_file(half)
    for key in ("", "x" * 5000, "a\nb"):
        with pytest.raises(UsageError) as caught:
            Credentials(key, CANARY)
        assert CANARY not in str(caught.value)


def test_permissions_as_text() -> None:
    assert [accounts.perm_text(perm) for perm in (Perm.DENY, Perm.PUB, Perm.SUB, Perm.BOTH)] == [
        "DENY",
        "PUB",
        "SUB",
        "PUB|SUB",
    ]
    denied = Account(access_key="k", secret=b"s", default_topic=Perm.DENY | Perm.PUB)
    assert not denied.allows_topic("t", Perm.PUB)


def test_producer_group_that_is_named_for_an_account_is_closed_to_others() -> None:
    one = {**USER, "groupPerms": ["closed=PUB", "consumers=SUB", "no=DENY"]}
    two = {"accessKey": "second-one", "secretKey": "12345678", "defaultGroupPerm": "PUB|SUB"}
    table = build({"file": {"accounts": [one, two]}})
    assert table.producer_groups == {"closed"}
    source = Fixed(one)
    source.table = table
    guard = Guard(source, broker_needs)

    def beats(name: str, key: str) -> bool:
        """Ask as the processor of heartbeats does."""
        needs = heartbeat_needs(HeartbeatData(client_id="c", producers=(name,)))
        caller = guard.caller(Command(34, {ACCESS_KEY: key}), "10.1.1.1:5")
        return all(guard.has(caller, part) for part in needs)

    refused = "No default permission for group:closed"
    assert all(beats(name, "RocketMQ") for name in ("closed", "open", "consumers"))
    assert not beats("closed", "second-one")
    assert beats("open", "second-one")
    end = Command(37, {"producerGroup": "closed"})
    assert ask(guard, signed(end, "second-one")) == refused


@pytest.mark.parametrize("name", [*sorted(WAITING_ROOMS), "rmq_sys_REVIVE_LOG_any"])
def test_default_permission_does_not_mean_where_messages_of_others_wait(name: str) -> None:
    wide = read_account({**USER, "defaultTopicPerm": "PUB|SUB"})
    assert wide.allows_topic("any", Perm.SUB)
    assert not wide.allows_topic(name, Perm.SUB)
    assert read_account({**USER, "topicPerms": [f"{name}=SUB"]}).allows_topic(name, Perm.SUB)
