"""Settings of what shows and pushes metrics, with RocketMQ's names."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from roquet.base.config import setting
from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

DISABLE, PROM, OTLP, LOG = "DISABLE", "PROM", "OTLP_GRPC", "LOG"
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_FORMATS = frozenset({"le", "quantile", "__name__"})
_TARGET = re.compile(r"(https?://)?[^\s/:]+:\d{1,5}|(https?://)?\[[0-9a-fA-F:]+\]:\d{1,5}")


def pairs(text: str) -> Mapping[str, str]:
    """Return what `name:value,name:value` says; blanks around names and values are dropped."""
    parts = (part.partition(":") for part in text.split(",") if part.strip())
    return {name.strip(): value.strip() for name, _, value in parts}


def _pairs_fault(text: str) -> str | None:
    for part in filter(str.strip, text.split(",")):
        name, colon, value = part.partition(":")
        if not colon or not name.strip() or not value.strip():
            return "must be name:value pairs, separated by commas"
    return None


def _labels_fault(text: str) -> str | None:
    seen: set[str] = set()
    for name in (part.partition(":")[0].strip() for part in text.split(",") if part.strip()):
        if not _LABEL.fullmatch(name):
            return f"{name[:40]!r} is no name of a label: letters, digits and _"
        if name in _OF_FORMATS:
            # A line with a label twice makes Prometheus refuse the whole page.
            return f"{name} is a label that the format gives to histograms"
        if name in seen:
            return f"{name[:40]} is there twice"
        seen.add(name)
    return _pairs_fault(text)


def _target_fault(text: str) -> str | None:
    if text and not _TARGET.fullmatch(text):
        return "must be host:port, with http:// or https:// before it where wanted"
    return None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExporterConfig:
    """How metrics leave the process."""

    prom_host: str = setting(
        "metricsPromExporterHost",
        "",
        "Where the HTTP server listens; empty: where the broker does.",
    )
    labels: str = setting(
        "metricsLabel",
        "",
        "Labels that every metric carries, as name:value pairs separated by commas.",
        check=_labels_fault,
    )
    rows_max: int = setting(
        "metricsOtelCardinalityLimit",
        50_000,
        "Rows of one metric; those beyond are left out and counted in `roquet_metrics_left_out`.",
        low=1,
        high=1_000_000,
    )
    target: str = setting(
        "metricsGrpcExporterTarget",
        "",
        "With OTLP_GRPC: the collector, as host:port; https:// before it means TLS.",
        check=_target_fault,
    )
    headers: str = setting(
        "metricsGrpcExporterHeader",
        "",
        "Metadata for the collector, as name:value pairs separated by commas.",
        secret=True,
        check=_pairs_fault,
    )
    timeout_ms: int = setting(
        "metricGrpcExporterTimeOutInMills",
        3000,
        "Longest push to the collector.",
        unit="ms",
        low=1,
        high=600_000,
    )
    push_every_ms: int = setting(
        "metricGrpcExporterIntervalInMills",
        60_000,
        "Between two pushes.",
        unit="ms",
        low=100,
        high=86_400_000,
    )
    log_every_ms: int = setting(
        "metricLoggingExporterIntervalInMills",
        10_000,
        "With LOG: between two times that all metrics are logged.",
        unit="ms",
        low=100,
        high=86_400_000,
    )
    in_delta: bool = setting(
        "metricsInDelta",
        False,
        "With OTLP_GRPC and LOG: counters and histograms since the last time, not since the start.",
    )
    batch_max: int = setting(
        "metricsExportBatchMaxDataPoints",
        1000,
        "Data points of one call to the collector.",
        low=1,
        high=100_000,
    )

    def check(self, exporter: str) -> None:
        """Raise UsageError when the exporter (`metricsExporterType`) needs what is not set."""
        if exporter == OTLP and not self.target:
            raise UsageError("metricsExporterType = 'OTLP_GRPC' needs metricsGrpcExporterTarget")
