"""The metrics: names and types that dashboards of RocketMQ 5 know, a page that has each of them."""

from __future__ import annotations

import asyncio
import json
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker_harness import dispatched, play
from dashboards import boards, unanswered
from roquet.base.clock import SystemClock
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.namesrv.app import build
from roquet.namesrv.config import NamesrvConfig, Settings
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.service.http.server import HttpRequest
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.samples import Sample

    from roquet.testing.cluster import Cluster

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = REPOSITORY / "docs/reference/metrics.md"
DASHBOARDS = REPOSITORY / "deploy/grafana"
NODE = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \|([^|]*)\| (\S[^|]*) \|$", re.MULTILINE)


async def scrape(port: int) -> dict[str, Metric]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b" 200 " in head.split(b"\r\n")[0]
    return parsed(body)


def parsed(body: bytes) -> dict[str, Metric]:
    found = text_string_to_metric_families(body.decode())
    # When a distribution was made is beside it, and of no interest.
    return {one.name: one for one in found if not one.name.endswith("_created")}


def only(metric: Metric, **labels: str) -> Sample:
    (found,) = [s for s in metric.samples if labels.items() <= s.labels.items()]
    return found


def rows(section: str) -> dict[str, tuple[str, set[str]]]:
    """Return name -> (type, labels) of the page's table of one kind of process."""
    text = PAGE.read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    return {
        name: (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels, _ in _ROW.findall(text)
    }


def full_name(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


async def some_traffic(it: Cluster) -> None:
    it.broker.metadata.topics.put(
        TopicConfig(name="orders", read_queues=1, write_queues=1),
        TopicConfig(name="later", attributes={"message.type": "DELAY"}),
    )
    it.broker.metadata.groups.put(SubscriptionGroupConfig(name="readers"))
    for number in range(5):
        assert (await it.send("orders", b"m%d" % number)).code == 0
    assert (await it.send("later")).code == 0
    await dispatched(it)
    assert (await it.pull("orders", maxMsgNums="3")).code == 0
    where = {"consumerGroup": "readers", "topic": "orders", "queueId": "0", "commitOffset": "1"}
    assert (await it.call(Command(RequestCode.UPDATE_CONSUMER_OFFSET, where))).code == 0
    assert (await it.pull("orders", 3, maxMsgNums="1")).code == 0


def test_traffic_and_progress_are_counted_under_rocketmqs_names(tmp_path: Path) -> None:
    port = free_port(random.Random())

    async def tell(it: Cluster) -> None:
        await some_traffic(it)
        group = {**NODE, "topic": "orders", "consumer_group": "readers", "is_retry": "false"}
        # Reads of the fast path are noted a moment later.
        async with asyncio.timeout(20):
            while True:
                found = await scrape(port)
                if only(found["rocketmq_consumer_inflight_messages"], **group).value == 2:
                    break
        assert only(found["rocketmq_messages_out"], **group).value == 4
        orders = {**NODE, "topic": "orders", "is_system": "false"}
        into = only(found["rocketmq_messages_in"], **orders)
        assert (into.name, into.value) == ("rocketmq_messages_in_total", 5)
        assert into.labels["message_type"] == "normal"
        assert only(found["rocketmq_messages_in"], topic="later").labels["message_type"] == "delay"
        assert only(found["rocketmq_throughput_in"], **orders).value > 5 * 90
        assert only(found["rocketmq_throughput_out"], **group).value > 4 * 90
        for name, value in (
            ("rocketmq_consumer_lag_messages", 4),
            ("rocketmq_consumer_ready_messages", 2),
            ("rocketmq_topic_number", len(it.broker.metadata.topics.all())),
            ("rocketmq_consumer_group_number", len(it.broker.metadata.groups.all())),
            ("rocketmq_broker_permission", 6),
            ("rocketmq_storage_size_bytes", it.broker.store.native.max_physical_offset()),
            ("rocketmq_storage_dispatch_behind_bytes", 0),
        ):
            labels = group if "consumer_" in name and "number" not in name else NODE
            assert only(found[name], **labels).value == value, name
        late = only(found["rocketmq_consumer_lag_latency_milliseconds"], **group).value
        assert 0 <= late < 600_000
        assert only(found["rocketmq_processor_watermark"], processor="send").value == 0

    play(tmp_path, tell, metricsExporterType="PROM", metricsPromExporterPort=str(port))


def test_distributions_have_rocketmqs_names_labels_and_classes(tmp_path: Path) -> None:
    port = free_port(random.Random())

    async def tell(it: Cluster) -> None:
        made = {"topic": "made", "defaultTopic": "TBW102", "perm": "6", "topicSysFlag": "0"}
        made |= {"readQueueNums": "1", "writeQueueNums": "1", "order": "false"}
        made |= {"topicFilterType": "SINGLE_TAG"}
        create = RequestCode.UPDATE_AND_CREATE_TOPIC
        assert (await it.call(Command(create, made))).code == 0
        assert (await it.call(Command(create, {**made, "topic": "bad name"}))).code != 0
        group = b'{"groupName":"readers","consumeEnable":true}'
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert (await it.call(Command(code, {}, group))).code == 0
        for size in (10, 2_000):
            assert (await it.send("made", b"x" * size)).code == 0
        await dispatched(it)
        waits = asyncio.ensure_future(it.pull("made", 2, sysFlag="6", suspendTimeoutMillis="20000"))
        async with asyncio.timeout(60):
            while only((await scrape(port))["roquet_held_pulls"]).value != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await it.send("made")).code == 0
        assert (await waits).code == 0
        assert (await it.call(Command(9999))).code == 3
        distributed(await scrape(port))

    play(
        tmp_path,
        tell,
        metricsExporterType="PROM",
        metricsPromExporterPort=str(port),
        fastPathEnable="false",
    )


def test_answers_of_the_fast_path_are_counted_one_by_one(tmp_path: Path) -> None:
    port = free_port(random.Random())
    sent, pulled = 23, 7

    async def tell(it: Cluster) -> None:
        await some_traffic(it)
        before = it.broker.path.native.counters()
        waits = asyncio.ensure_future(
            it.pull("orders", 5, sysFlag="6", suspendTimeoutMillis="20000")
        )
        async with asyncio.timeout(60):
            while not it.broker.path.held_pulls:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        for number in range(sent):
            key = f"UNIQ_KEY\x01U{number}\x02"
            assert (await it.send("orders", properties=key)).code == 0
        assert (await waits).code == 0
        for _ in range(pulled):
            assert (await it.pull("orders", 5)).code == 0
        after = it.broker.path.native.counters()
        # The log may have been busy: such a send is a processor's, and counted by it.
        assert after["sends"] > before["sends"]
        assert after["pulls"] - before["pulls"] == pulled + 1
        plain = {"protocol_type": "remoting", "result": "success", "response_code": "success"}
        at_once = {**plain, "is_long_polling": "false"}
        held = {**plain, "is_long_polling": "true", "request_code": "pull_message"}
        async with asyncio.timeout(60):
            while True:
                rpc = (await scrape(port))["rocketmq_rpc_latency_milliseconds"]
                pulls = counted_so_far(rpc, request_code="pull_message", **at_once)
                # Two of the traffic before.
                if (pulls, counted_so_far(rpc, **held)) == (pulled + 2, 1):
                    break
        assert counted(rpc, request_code="send_message_v2", **at_once) == sent + 6
        asked = {"statsName": "TOPIC_PUT_LATENCY", "statsKey": "0@orders"}
        answer = await it.call(Command(RequestCode.VIEW_BROKER_STATS_DATA, asked))
        assert (answer.code, answer.remark) == (0, None)

    play(tmp_path, tell, metricsExporterType="PROM", metricsPromExporterPort=str(port))


def counted_so_far(metric: Metric, **labels: str) -> float:
    """Return the count under these labels, 0 as long as there is none."""
    known = any(labels.items() <= sample.labels.items() for sample in metric.samples)
    return counted(metric, **labels) if known else 0


def distributed(found: dict[str, Metric]) -> None:
    size = found["rocketmq_message_size"]
    of_size = {**NODE, "topic": "made", "message_type": "normal", "is_system": "false"}
    counts = {s.labels["le"]: s.value for s in size.samples if "le" in s.labels}
    assert counts["1024.0"] == 2
    assert counts["4096.0"] == counts["4194304.0"] == counts["+Inf"] == 3
    (total,) = [s for s in size.samples if s.name.endswith("_sum")]
    assert total.labels == of_size
    assert total.value > 2_000 + 3 * 90
    for name in ("topic", "consumer_group"):
        created = found[f"rocketmq_{name}_create_execution_time_milliseconds"]
        assert counted(created, invocation_status="success") == 1, name
    topics = found["rocketmq_topic_create_execution_time_milliseconds"]
    assert counted(topics, invocation_status="failure") == 1
    assert {s.labels["le"] for s in topics.samples if "le" in s.labels} == {
        *("10.0", "100.0", "1000.0", "3000.0", "5000.0", "+Inf")
    }
    rpc = found["rocketmq_rpc_latency_milliseconds"]
    plain = {"protocol_type": "remoting", "result": "success", "is_long_polling": "false"}
    said = {**plain, "response_code": "success"}
    assert counted(rpc, request_code="send_message_v2", **said) == 3
    said["is_long_polling"] = "true"
    assert counted(rpc, request_code="pull_message", **said) == 1
    # Whatever number a peer makes up: one row.
    said = {**plain, "response_code": "request_code_not_supported"}
    assert counted(rpc, request_code="other", **said) == 1


def counted(metric: Metric, **labels: str) -> float:
    (found,) = [
        s.value
        for s in metric.samples
        if s.name.endswith("_count") and labels.items() <= s.labels.items()
    ]
    return found


WITH_USERS = {"roquet_users_copy_age_seconds"}
"""What only brokers show that ask for users."""


def test_the_page_has_what_the_broker_shows_with_type_and_labels(tmp_path: Path) -> None:
    port = free_port(random.Random())
    documented = rows("Broker")

    async def tell(it: Cluster) -> None:
        await some_traffic(it)
        shown = await scrape(port)
        assert {full_name(it): it.type for it in shown.values()} == {
            name: kind for name, (kind, _) in documented.items() if name not in WITH_USERS
        }
        for metric in shown.values():
            for sample in metric.samples:
                labels = set(sample.labels) - set(NODE) - {"le"}
                assert labels == documented[full_name(metric)][1], metric.name

    play(tmp_path, tell, metricsExporterType="PROM", metricsPromExporterPort=str(port))


def test_the_page_has_what_the_name_server_shows() -> None:
    endpoint = build(Settings(NamesrvConfig(metrics="PROM")), SystemClock()).health
    assert endpoint is not None
    answer = asyncio.run(endpoint.answer(HttpRequest("GET", "/metrics")))
    assert (answer.status, answer.kind.startswith("text/plain")) == (200, True)
    shown = {full_name(it): it.type for it in parsed(bytes(answer.body)).values()}
    assert shown == {name: kind for name, (kind, _) in rows("Name server").items()}


@pytest.mark.parametrize("board", sorted(boards()))
def test_every_query_of_a_dashboard_asks_for_metrics_and_labels_of_the_page(board: str) -> None:
    known = {name: labels | set(NODE) for name, (_, labels) in rows("Broker").items()}
    known = {name: labels for name, (_, labels) in rows("Name server").items()} | known
    queries = boards()[board]
    assert len(queries) >= 15
    assert {query: found for query in queries if (found := unanswered(query, known))} == {}
    panels = json.loads((DASHBOARDS / board).read_text())["panels"]
    titles = [panel["title"] for panel in panels]
    assert len(titles) == len(set(titles))


def test_queries_for_what_no_page_has_are_found() -> None:
    known = {"rocketmq_messages_in_total": {"topic"}}
    query = 'sum by (topic, group) (rate(rocketmq_messages_in_total{nobody="x"}[1m]))'
    assert unanswered(query, known) == [
        "rocketmq_messages_in_total{group}",
        "rocketmq_messages_in_total{nobody}",
    ]
    assert unanswered("rocketmq_no_such", known) == ["rocketmq_no_such"]
    assert unanswered("1 + 1", known) == ["no metric"]
