"""Pushes metrics to an OpenTelemetry collector by OTLP over gRPC.

The packages of the extra `otel` are imported at the start and by nobody who does not push. Numbers
are gathered on the loop in slices; making messages of them and sending them happens in a thread. A
push that fails is logged, rarely, and its counters are in the next one.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import logging
from typing import TYPE_CHECKING, Any

from roquet.base.errors import UsageError
from roquet.service.exporting.config import OTLP, pairs
from roquet.service.exporting.deltas import Deltas
from roquet.service.lifecycle import Timer
from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roquet.base.clock import Clock
    from roquet.service.exporting.config import ExporterConfig
    from roquet.service.families import Family, Row
    from roquet.service.metrics import Metrics

log = logging.getLogger(__name__)

SCOPE = "broker-meter"
"""What RocketMQ calls the source of a broker's metrics."""
UNITS = ("milliseconds", "seconds", "bytes")
"""Units that names of RocketMQ's end with on a Prometheus page, and that OTLP keeps apart."""


def instrument(family: Family) -> tuple[str, str]:
    """Return the name and the unit of a family as RocketMQ's OTLP exporter has them."""
    name = f"{family.name}_total" if family.kind == "counter" else family.name
    stem, _, unit = name.rpartition("_")
    is_split = name.startswith("rocketmq_") and unit in UNITS
    return (stem, unit) if is_split else (name, "")


class OtlpPusher:
    """Pushes from `start` to `stop`, the last time as it stops. A service."""

    def __init__(self, metrics: Metrics, rules: ExporterConfig, service: str, clock: Clock) -> None:
        """`service` is the name that the collector knows the process by."""
        self._metrics = metrics
        self._rules = rules
        self._service = service
        self._clock = clock
        self._deltas = Deltas()
        self._rated = RateLog(log, clock, every_s=60.0)
        self._pushing = asyncio.Lock()
        self._begun_ns = 0
        self._exporter: Any = None
        self._sdk: Any = None

    @property
    def timers(self) -> tuple[Timer, ...]:
        """Pushing."""
        every_s = self._rules.push_every_ms / 1000
        return (Timer("push metrics", self.push, every_s, every_s),)

    async def start(self) -> None:
        """Import what pushing needs. Raises UsageError when that or the collector is missing."""
        self._rules.check(OTLP)
        self._begun_ns = self._clock.now_ms() * 1_000_000
        try:
            self._exporter = await asyncio.to_thread(self._made)
        except ImportError as error:
            raise UsageError(
                "metricsExporterType = 'OTLP_GRPC' needs packages that are not installed:"
                f" pip install 'roquet-VERSION.whl[otel]' ({error})"
            ) from error

    async def stop(self) -> None:
        """Push what was counted since the last time, then close the connection."""
        if self._exporter is None:
            return
        try:
            async with asyncio.timeout(self._rules.timeout_ms / 1000):
                await self.push()
        except TimeoutError:
            log.warning("the last metrics did not reach the collector in time")
        exporter, self._exporter = self._exporter, None
        await asyncio.to_thread(exporter.shutdown)

    async def push(self) -> None:
        """Push all numbers once."""
        async with self._pushing:
            if self._exporter is None:
                return
            families = await self._metrics.gather()
            failed = await asyncio.to_thread(self._push, families)
            if failed:
                self._rated.warning(
                    "push",
                    f"{failed} calls to the collector {self._rules.target} failed: metrics are"
                    " pushed again later",
                )

    # --- in a thread ----------------------------------------------------------------------------

    def _made(self) -> Any:
        """Return the exporter of OpenTelemetry. Raises ImportError."""
        self._sdk = importlib.import_module("opentelemetry.sdk.metrics.export")
        grpc = importlib.import_module("grpc")
        module = importlib.import_module("opentelemetry.exporter.otlp.proto.grpc.metric_exporter")
        target = self._rules.target
        return module.OTLPMetricExporter(
            endpoint=target if "://" in target else f"http://{target}",
            insecure=not target.startswith("https://"),
            headers=tuple(
                (name.lower(), value) for name, value in pairs(self._rules.headers).items()
            ),
            timeout=self._rules.timeout_ms / 1000,
            compression=grpc.Compression.Gzip,
        )

    def _push(self, families: Sequence[Family]) -> int:
        """Push in calls of at most so many data points; return how many calls failed."""
        success = self._sdk.MetricExportResult.SUCCESS
        points = ((family, row) for family in families for row in family.rows)
        now_ns, failed = self._clock.now_ms() * 1_000_000, 0
        while batch := list(itertools.islice(points, self._rules.batch_max)):
            if self._exporter.export(self._data(batch, now_ns)) is success:
                for family, row in batch:
                    self._deltas.take(family, row)
            else:
                failed += 1
        if self._rules.in_delta:
            self._deltas.keep(families)
        return failed

    def _data(self, batch: Sequence[tuple[Family, Row]], now_ns: int) -> Any:
        resources = importlib.import_module("opentelemetry.sdk.resources")
        scopes = importlib.import_module("opentelemetry.sdk.util.instrumentation")
        sdk = self._sdk
        found = sdk.ScopeMetrics(
            scope=scopes.InstrumentationScope(SCOPE),
            metrics=list(self._of_families(batch, now_ns)),
            schema_url="",
        )
        of_process = sdk.ResourceMetrics(
            resource=resources.Resource({"service.name": self._service}),
            scope_metrics=[found],
            schema_url="",
        )
        return sdk.MetricsData(resource_metrics=[of_process])

    def _of_families(self, batch: Sequence[tuple[Family, Row]], now_ns: int) -> Iterator[Any]:
        sdk = self._sdk
        delta = sdk.AggregationTemporality.DELTA
        temporality = delta if self._rules.in_delta else sdk.AggregationTemporality.CUMULATIVE
        for family, rows in itertools.groupby(batch, lambda pair: pair[0]):
            points = [self._point(family, row, now_ns) for _, row in rows]
            if family.kind == "histogram":
                data = sdk.Histogram(points, temporality)
            elif family.kind == "counter":
                data = sdk.Sum(points, temporality, is_monotonic=True)
            else:
                data = sdk.Gauge(points)
            name, unit = instrument(family)
            yield sdk.Metric(name=name, description=family.text, unit=unit, data=data)

    def _point(self, family: Family, row: Row, now_ns: int) -> Any:
        if self._rules.in_delta:
            row = self._deltas.since(family, row)
        attributes = dict(zip(family.labels, row.values, strict=True))
        if family.kind == "histogram":
            counts = [int(count) for count in row.counts]
            return self._sdk.HistogramDataPoint(
                attributes=attributes,
                start_time_unix_nano=self._begun_ns,
                time_unix_nano=now_ns,
                count=sum(counts),
                sum=row.total,
                bucket_counts=counts,
                explicit_bounds=list(family.bounds),
                # Nobody has kept them.
                min=None,
                max=None,
            )
        return self._sdk.NumberDataPoint(
            attributes=attributes,
            start_time_unix_nano=self._begun_ns,
            time_unix_nano=now_ns,
            value=float(row.counts[0]),
        )
