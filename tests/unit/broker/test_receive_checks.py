"""Which reads are admitted, for which messages, and with which words the others are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from receive_world import World
from roquet.broker.api.receive import Filter, Forbids
from roquet.broker.api.refusal import Reason
from roquet.broker.clients.expressions import Choice
from roquet.broker.pull_rules import PullConfig
from roquet.broker.services.topic_checks import FAQ
from roquet.model.subscription import SubscriptionData
from roquet.model.topic import Perm, TopicConfig
from roquet.store.tables.filters import compiled
from roquet.store.tables.groups import FORBIDDEN_SUBSCRIPTION

if TYPE_CHECKING:
    from pathlib import Path

SQL = PullConfig(property_filter=True)
ABSENT = f"the consumer's group info not exist, group: readers{FAQ}"


# --- may the group read at all ------------------------------------------------------------------


def test_read_of_a_slave_is_for_those_that_may_read_there(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.state.is_slave = True
    text = "[REJECTREQUEST]system busy, start flow control for a while"
    assert it.refusal() == (Reason.BUSY, text)
    it.checks.follow(PullConfig(slave_read=True))
    assert it.admit().topic.name == "orders"


def test_read_that_the_broker_does_not_serve_is_forbidden(tmp_path: Path) -> None:
    it = World(tmp_path, PullConfig(lite_pull=False))
    assert it.admit().group.name == "readers"
    text = "the broker does not serve lite pulls"
    assert it.refusal(is_lite=True) == (Forbids.BROKER, text)
    it.state.permission = int(Perm.WRITE)
    assert it.refusal() == (Forbids.BROKER, "the broker does not serve reads")


def test_read_needs_a_group_a_topic_and_a_queue_that_may_be_read(tmp_path: Path) -> None:
    it = World(tmp_path)
    assert it.refusal(topic="nobody") == (
        Reason.UNKNOWN_TOPIC,
        f"topic[nobody] not exist, apply first please!{FAQ}",
    )
    for queue in (-1, 2):
        assert it.refusal(queue_id=queue) == (
            Reason.INVALID_ARGUMENT,
            f"queueId[{queue}] is illegal, topic:[orders] topicConfig.readQueueNums:[2]",
        )
    assert it.admit(queue_id=1).request.queue_id == 1
    it.topics.put(TopicConfig(name="orders", read_queues=2, write_queues=4, perm=int(Perm.WRITE)))
    text = "the topic[orders] pulling message is forbidden"
    assert it.refusal() == (Forbids.TOPIC, text)
    it.group(consume_enable=False)
    text = "subscription group no permission, readers"
    assert it.refusal() == (Forbids.GROUP, text)


# --- which messages: as the members have subscribed ---------------------------------------------


def test_read_without_an_expression_is_for_what_the_members_subscribed_to(tmp_path: Path) -> None:
    it = World(tmp_path)
    found = it.admit(version=5)
    assert found.subscription is it.members.subscriptions["orders"]
    assert found.codes == sorted(map(ord, "ab"))
    assert (found.is_filtered, found.filter_by) == (True, None)
    it.subscribe("orders", "*")
    assert (it.admit().codes, it.admit().is_filtered) == (None, False)
    # What everybody knows already is no news.
    assert it.expressions.news == []


def test_read_of_a_group_without_that_subscription_is_refused(tmp_path: Path) -> None:
    it = World(tmp_path)
    text = "the consumer's subscription not latest"
    assert it.refusal(version=6) == (Reason.SUBSCRIPTION_OUTDATED, text)
    it.members.subscriptions.clear()
    text = f"the consumer's subscription not exist{FAQ}"
    assert it.refusal() == (Reason.NOT_SUBSCRIBED, text)
    it.members.group = None
    assert it.refusal() == (Reason.NOT_SUBSCRIBED, ABSENT)


def test_read_of_a_group_that_is_forbidden_the_topic_is_forbidden(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.groups.set_forbidden("readers", "orders", FORBIDDEN_SUBSCRIPTION << 1)
    assert it.admit().topic.name == "orders"
    it.groups.set_forbidden(
        "readers", "orders", FORBIDDEN_SUBSCRIPTION | FORBIDDEN_SUBSCRIPTION << 1
    )
    text = "the consumer group[readers] is forbidden for topic[orders]"
    assert it.refusal() == (Forbids.SUBSCRIPTION, text)


@pytest.mark.parametrize(
    ("is_broadcasting", "may", "admitted"),
    [(False, False, True), (True, True, True), (False, True, True), (True, False, False)],
)
def test_read_of_a_broadcasting_group_needs_its_permission(
    tmp_path: Path, *, is_broadcasting: bool, may: bool, admitted: bool
) -> None:
    it = World(tmp_path)
    it.members.group.is_broadcasting = is_broadcasting
    it.group(consume_broadcast_enable=may)
    if admitted:
        assert it.admit().topic.name == "orders"
    else:
        text = "the consumer group[readers] can not consume by broadcast way"
        assert it.refusal() == (Forbids.BROADCAST, text)


def test_read_of_a_group_that_chooses_by_sql_needs_its_filter(tmp_path: Path) -> None:
    it = World(tmp_path, SQL)
    it.subscribe("orders", "a = 1", "SQL92")
    text = "The broker's consumer filter data is not exist!Your expression may be wrong!"
    assert it.refusal() == (Reason.UNKNOWN_FILTER, text)
    it.keep_filter("a = 0", 4)
    text = "the consumer's consumer filter data not latest"
    assert it.refusal() == (Reason.FILTER_OUTDATED, text)
    it.keep_filter("a = 1", 5)
    found = it.admit()
    assert (found.filter_by, found.codes, found.is_filtered) == (compiled("a = 1"), None, True)
    # A newer filter than the subscription is the one that is used.
    it.keep_filter("a = 2", 6)
    assert it.admit().filter_by is compiled("a = 2")


@pytest.mark.parametrize("kind", ["SQL92", "OTHER"])
def test_read_that_chooses_in_a_way_that_is_not_served_is_refused(
    tmp_path: Path, kind: str
) -> None:
    it = World(tmp_path, PullConfig() if kind == "SQL92" else SQL)
    it.keep_filter("a = 1", 5)
    it.members.subscriptions["orders"] = SubscriptionData(
        topic="orders", expression="a = 1", expression_type=kind, version=5
    )
    text = f"The broker does not support consumer to filter message by {kind}"
    assert it.refusal() == (Reason.FAILED, text)


# --- which messages: as the read itself says ----------------------------------------------------


def test_read_with_an_expression_needs_no_members_and_what_it_means_is_news(
    tmp_path: Path,
) -> None:
    it = World(tmp_path, SQL)
    it.members.group = None
    # The table's filter is another group's matter: the read says its own.
    it.keep_filter("a = 0", 9)
    tags = it.admit(filter=Filter(expression="b"))
    assert (tags.codes, tags.filter_by) == ([ord("b")], None)
    every = it.admit(filter=Filter(expression=None, kind="TAG"))
    assert (every.codes, every.is_filtered) == (None, False)
    sql = it.admit(filter=Filter(expression="a = 1", kind="SQL92"))
    assert (sql.codes, sql.filter_by) == (None, compiled("a = 1"))
    assert it.expressions.news == [
        ("TAG", "b", Choice([ord("b")], None)),
        ("TAG", "", Choice()),
        ("SQL92", "a = 1", Choice(None, compiled("a = 1"))),
    ]


@pytest.mark.parametrize(
    ("text", "kind"), [("a ||", "SQL92"), ("a = ", "SQL92"), ("|| ||", "TAG"), ("a", "OTHER")]
)
def test_read_with_an_expression_that_means_nothing_is_refused(
    tmp_path: Path, text: str, kind: str
) -> None:
    it = World(tmp_path, SQL)
    reason, why = it.refusal(filter=Filter(expression=text, kind=kind))
    if kind == "OTHER":
        assert (reason, why.rpartition(" ")[2]) == (Reason.FAILED, kind)
    else:
        assert reason is Reason.UNPARSABLE_FILTER
        assert why.startswith("parse the consumer's subscription failed: ")
    assert it.expressions.news == []


def test_read_with_an_expression_is_refused_to_absent_groups_where_the_settings_say_so(
    tmp_path: Path,
) -> None:
    it = World(tmp_path, PullConfig(reject_pull_consumers=True))
    assert it.admit(filter=Filter(expression="b")).codes == [ord("b")]
    it.members.group = None
    assert it.refusal(filter=Filter(expression="b")) == (Reason.NOT_SUBSCRIBED, ABSENT)


# --- retried messages ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "filters", "has_filter"),
    [("%RETRY%readers", True, True), ("%RETRY%readers", False, False), ("orders", True, False)],
)
def test_retried_messages_are_filtered_by_their_origin_where_the_settings_say_so(
    tmp_path: Path, topic: str, *, filters: bool, has_filter: bool
) -> None:
    it = World(tmp_path, PullConfig(filter_retries=filters))
    it.subscribe(topic, "*")
    assert it.admit(topic=topic).filter_by is None
    it.keep_filter("a = 1", 5, topic="orders")
    found = it.admit(topic=topic)
    assert found.filter_by is (it.filters.for_retries("readers") if has_filter else None)
    assert found.is_filtered is has_filter


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (Choice(), True),
        (Choice(codes=[]), False),
        (Choice(filter_by=compiled("a = 1")), False),
        (Choice([1], compiled("a = 1")), False),
    ],
)
def test_choice_without_codes_and_filter_is_everything(choice: Choice, *, expected: bool) -> None:
    assert choice.is_everything is expected
