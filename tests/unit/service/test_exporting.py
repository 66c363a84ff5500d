"""Metrics that are pushed to a collector, or logged; labels and bounds of the settings."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from broker_harness import play
from otlp_collector import Collector, attributes, points
from roquet.base.clock import SystemClock
from roquet.base.errors import UsageError
from roquet.broker.config import load_config
from roquet.broker.wiring.base import make_base
from roquet.service.exporting import logged
from roquet.service.exporting.config import ExporterConfig, pairs
from roquet.service.exporting.logged import MetricsLog
from roquet.service.exporting.otlp import OtlpPusher
from roquet.service.metrics import Metrics
from roquet.testing.cluster import broker_config
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster


class Numbers:
    """Metrics of each kind, whose numbers a test sets."""

    def __init__(self, metrics: Metrics | None = None, rows: int = 1) -> None:
        self.count, self.level = 3.0, 7.0
        self.metrics = metrics or Metrics({"node_id": "a"})
        self.metrics.standard(
            "messages_in",
            "count",
            ("topic",),
            lambda: [((f"t{at}",), self.count) for at in range(rows)],
            counts=True,
        )
        self.metrics.standard("storage_size_bytes", "level", (), lambda: [((), self.level)])
        self.sizes = self.metrics.distribution(
            "rpc_latency_milliseconds", "classes", (), (1.0, 10.0)
        )
        self.sizes.observe((), 0.5)
        self.sizes.observe((), 99.0)


def run_pushes(numbers: Numbers, collector: Collector, pushes: int = 1, **more: object) -> None:
    """Start a pusher, push, stop it, which pushes once more."""
    rules = ExporterConfig(target=f"127.0.0.1:{collector.port}", **more)  # type: ignore[arg-type]

    async def story() -> None:
        pusher = OtlpPusher(numbers.metrics, rules, "tests", SystemClock())
        await pusher.start()
        for _ in range(pushes):
            await pusher.push()
            numbers.count += 2
            numbers.sizes.observe((), 5.0)
        await pusher.stop()

    asyncio.run(story())


def test_pushed_metrics_have_java_names_units_kinds_and_labels() -> None:
    numbers = Numbers(Metrics({"node_id": "a"}, pairs("zone:b")))
    with Collector() as collector:
        run_pushes(numbers, collector, headers="X-Key: secret, Other:1")
        (first, level, classes, *later) = list(collector.metrics())
    assert (first.name, first.unit, first.WhichOneof("data")) == (
        "rocketmq_messages_in_total",
        "",
        "sum",
    )
    assert (first.sum.is_monotonic, first.sum.aggregation_temporality) == (True, 2)
    assert [one.as_double for one in points(first)] == [3.0]
    assert attributes(points(first)[0]) == {"node_id": "a", "zone": "b", "topic": "t0"}
    assert (level.name, level.unit, level.WhichOneof("data")) == (
        "rocketmq_storage_size",
        "bytes",
        "gauge",
    )
    assert (classes.name, classes.unit) == ("rocketmq_rpc_latency", "milliseconds")
    (point,) = points(classes)
    assert (list(point.bucket_counts), list(point.explicit_bounds)) == ([1, 0, 1], [1.0, 10.0])
    assert (point.count, point.sum) == (2, 99.5)
    # The last push, of the stop, has what was counted meanwhile.
    assert [one.as_double for one in points(later[0])] == [5.0]
    assert collector.metadata[0].items() >= {"x-key": "secret", "other": "1"}.items()


def test_in_delta_pushes_bring_what_was_added_since_the_last_that_arrived() -> None:
    numbers = Numbers()
    with Collector() as collector:
        run_pushes(numbers, collector, pushes=2, in_delta=True)
        sums = [one for one in collector.metrics() if one.name == "rocketmq_messages_in_total"]
        classes = [one for one in collector.metrics() if one.name == "rocketmq_rpc_latency"]
        levels = [one for one in collector.metrics() if one.name == "rocketmq_storage_size"]
    assert [points(one)[0].as_double for one in sums] == [3.0, 2.0, 2.0]
    assert {one.sum.aggregation_temporality for one in sums} == {1}
    assert [list(points(one)[0].bucket_counts) for one in classes] == [
        [1, 0, 1],
        [0, 1, 0],
        [0, 1, 0],
    ]
    assert [points(one)[0].as_double for one in levels] == [7.0, 7.0, 7.0]


def test_in_delta_what_a_refused_push_had_is_in_the_next(caplog: pytest.LogCaptureFixture) -> None:
    numbers = Numbers()
    with Collector() as collector:
        rules = ExporterConfig(target=f"127.0.0.1:{collector.port}", in_delta=True)

        async def story() -> None:
            pusher = OtlpPusher(numbers.metrics, rules, "tests", SystemClock())
            await pusher.start()
            collector.refuse = True
            await pusher.push()
            assert (len(collector.metadata), collector.requests) == (1, [])
            collector.refuse = False
            numbers.count += 4
            await pusher.push()
            await pusher.stop()

        asyncio.run(story())
        first = next(collector.metrics())
    assert points(first)[0].as_double == 7.0
    assert "1 calls to the collector" in caplog.text


def test_one_call_has_at_most_so_many_data_points() -> None:
    numbers = Numbers(rows=23)
    with Collector() as collector:
        run_pushes(numbers, collector, pushes=0, batch_max=10)
        sizes = [
            sum(len(points(metric)) for metric in scope.metrics)
            for request in collector.requests
            for scope in request.resource_metrics[0].scope_metrics
        ]
    assert sizes == [10, 10, 5]


def test_calls_are_compressed_by_gzip() -> None:
    with Collector() as collector, socket.create_server(("127.0.0.1", 0)) as door:
        seen = bytearray()

        def relay() -> None:
            """Pass one connection on and keep what the pusher says."""
            near = door.accept()[0]
            with near, socket.create_connection(("127.0.0.1", collector.port)) as far:
                back = threading.Thread(target=pump, args=(far, near, bytearray()))
                back.start()
                pump(near, far, seen)
                back.join()

        thread = threading.Thread(target=relay)
        thread.start()
        rules = ExporterConfig(target=f"127.0.0.1:{door.getsockname()[1]}")

        async def story() -> None:
            pusher = OtlpPusher(Numbers().metrics, rules, "tests", SystemClock())
            await pusher.start()
            await pusher.stop()

        asyncio.run(story())
        thread.join()
    assert len(collector.requests) == 1
    # A message with the mark of compression, its length, and how gzip begins.
    assert re.search(rb"\x01\x00\x00..\x1f\x8b\x08", seen, re.DOTALL)


def pump(source: socket.socket, target: socket.socket, seen: bytearray) -> None:
    """Pass bytes on until one side closes."""
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            seen += data
            target.sendall(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def test_pusher_without_target_is_refused_at_start() -> None:
    pusher = OtlpPusher(Metrics(), ExporterConfig(), "tests", SystemClock())
    with pytest.raises(UsageError, match="needs metricsGrpcExporterTarget"):
        asyncio.run(pusher.start())


def test_pusher_without_its_packages_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics.export", None)
    pusher = OtlpPusher(Metrics(), ExporterConfig(target="c:1"), "tests", SystemClock())
    with pytest.raises(UsageError, match=r"pip install 'roquet-VERSION.whl\[otel\]'"):
        asyncio.run(pusher.start())


def test_packages_of_the_extra_are_not_imported_by_a_broker_that_does_not_push() -> None:
    code = (
        "import sys, roquet.broker.app;"
        "print([n for n in sys.modules if n.startswith(('opentelemetry', 'grpc'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_broker_pushes_its_metrics_to_the_collector(tmp_path: Path) -> None:
    with Collector() as collector:

        async def tell(it: Cluster) -> None:
            assert (await it.send("orders", b"x")).code == 0

            def arrived() -> None:
                def has_all() -> bool:
                    names = {one.name for one in collector.metrics() if points(one)}
                    return {"rocketmq_messages_in_total", "rocketmq_rpc_latency"} <= names

                with collector.came:
                    assert collector.came.wait_for(has_all, 60)

            await asyncio.to_thread(arrived)

        play(
            tmp_path,
            tell,
            metricsExporterType="OTLP_GRPC",
            metricsGrpcExporterTarget=f"127.0.0.1:{collector.port}",
            metricGrpcExporterIntervalInMills="200",
            metricsInDelta="true",
        )
        shown = [one for one in collector.metrics() if one.name == "rocketmq_broker_permission"]
    assert attributes(points(shown[0])[0])["aggregation"] == "delta"


def test_push_to_a_collector_that_never_answers_ends_in_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        rules = ExporterConfig(target=target, timeout_ms=300, push_every_ms=500)
        pusher = OtlpPusher(Numbers().metrics, rules, "tests", SystemClock())
        assert [one.every_s for one in pusher.timers] == [0.5]

        async def story() -> None:
            await pusher.start()
            async with asyncio.timeout(60):
                await pusher.push()
                await pusher.stop()

        asyncio.run(story())
    assert f"calls to the collector {target} failed" in caplog.text


def test_push_may_take_as_long_as_the_settings_say() -> None:
    given = {"metricGrpcExporterTimeOutInMills": "600000"}
    timeout_ms = load_config(None, {}, given)[0].exporter.timeout_ms
    with Collector() as collector:
        run_pushes(Numbers(), collector, timeout_ms=timeout_ms)
    assert [left > 60 for left in collector.left_s] == [True, True]


def test_page_is_served_where_the_settings_say(tmp_path: Path) -> None:
    port = free_port(random.Random())

    async def tell(it: Cluster) -> None:
        assert it.broker.identity.port
        with pytest.raises(OSError, match="Errno 111"):
            await asyncio.open_connection("127.0.0.1", port)
        _, writer = await asyncio.open_connection("127.0.0.2", port)
        writer.close()

    play(
        tmp_path,
        tell,
        metricsExporterType="PROM",
        metricsPromExporterPort=str(port),
        metricsPromExporterHost="127.0.0.2",
    )


def test_log_has_a_line_a_number_in_delta_since_the_last(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="roquet.metrics")
    numbers = Numbers()
    written = MetricsLog(numbers.metrics, ExporterConfig(in_delta=True, log_every_ms=500))
    assert [one.every_s for one in written.timers] == [0.5]
    asyncio.run(written.write())
    assert caplog.messages == [
        "rocketmq_messages_in{node_id=a,topic=t0} 3",
        "rocketmq_storage_size_bytes{node_id=a} 7",
        "rocketmq_rpc_latency_milliseconds{node_id=a} count=2 sum=99.5",
    ]
    caplog.clear()
    numbers.count += 4
    monkeypatch.setattr(logged, "LINES_MAX", 2)
    asyncio.run(written.write())
    assert caplog.messages == [
        "rocketmq_messages_in{node_id=a,topic=t0} 4",
        "rocketmq_storage_size_bytes{node_id=a} 7",
        "1 lines of metrics are left out: at most 2",
    ]


def metrics_of(folder: Path, **settings: str) -> Metrics:
    """Return the metrics that a broker with these settings makes."""
    return make_base(broker_config(folder, **settings), SystemClock(), random.Random(1)).metrics


def test_rows_beyond_the_limit_are_left_out_and_counted(tmp_path: Path) -> None:
    settings = {"metricsOtelCardinalityLimit": "20", "metricsLabel": "zone:b"}
    page = Numbers(metrics_of(tmp_path / "23", **settings), rows=23).metrics.render().decode()
    assert page.count("rocketmq_messages_in_total{") == 20
    assert 'roquet_metrics_left_out{metric="rocketmq_messages_in",zone="b"} 3.0' in page
    all_fit = Numbers(metrics_of(tmp_path / "20", **settings), rows=20).metrics.render().decode()
    assert all_fit.count("rocketmq_messages_in_total{") == 20
    assert "roquet_metrics_left_out" not in all_fit


def test_page_in_slices_is_the_page_at_once_and_lets_others_have_their_turn() -> None:
    numbers = Numbers(Metrics({}, rows_max=50_000), rows=60_000)

    async def story() -> None:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        task = asyncio.create_task(others())
        page = await numbers.metrics.page()
        task.cancel()
        assert page == numbers.metrics.render()
        assert turns > 3

    asyncio.run(story())


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("metricsLabel", "zone", "name:value"),
        ("metricsLabel", "a b:c", "no name of a label"),
        ("metricsLabel", "zone:a,zone:b", "zone is there twice"),
        ("metricsLabel", "zone:a, le:1", "le is a label that the format gives"),
        ("metricsGrpcExporterHeader", "k", "name:value"),
        ("metricsGrpcExporterTarget", "nowhere", "host:port"),
        ("metricsOtelCardinalityLimit", "0", "1"),
        ("metricsExporterType", "STATSD", "DISABLE"),
        ("metricsExporterType", "OTLP_GRPC", "needs metricsGrpcExporterTarget"),
    ],
)
def test_bad_settings_of_exporters_are_refused(name: str, value: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        load_config(None, {}, {name: value})
