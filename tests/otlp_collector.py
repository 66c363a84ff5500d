"""A collector that takes metrics by OTLP over gRPC and keeps what came. Needs the extra `otel`."""

from __future__ import annotations

import importlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

# Neither has types, and only the extra brings them.
grpc: Any = importlib.import_module("grpc")
messages: Any = importlib.import_module(
    "opentelemetry.proto.collector.metrics.v1.metrics_service_pb2"
)

_METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


class Collector:
    """Listens on a free port of loopback."""

    def __init__(self) -> None:
        """Take everything."""
        self.requests: list[Any] = []
        self.metadata: list[dict[str, str]] = []
        self.left_s: list[float] = []
        """Of each call, how long the caller was going to wait for the answer yet."""
        self.refuse = False
        """Whether calls fail, in a way that is not tried again at once."""
        self.came = threading.Condition()
        self._server = grpc.server(ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> Self:
        """Listen."""
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._server.stop(None).wait()

    def service(self, handler_call_details: Any) -> Any:
        """Return what answers a call."""
        assert handler_call_details.method == _METHOD
        return grpc.unary_unary_rpc_method_handler(
            self._export,
            request_deserializer=messages.ExportMetricsServiceRequest.FromString,
            response_serializer=messages.ExportMetricsServiceResponse.SerializeToString,
        )

    def _export(self, request: Any, context: Any) -> Any:
        with self.came:
            self.metadata.append(dict(context.invocation_metadata()))
            self.left_s.append(context.time_remaining())
            if not self.refuse:
                self.requests.append(request)
            self.came.notify_all()
        if self.refuse:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "refused")
        return messages.ExportMetricsServiceResponse()

    def metrics(self) -> Iterator[Any]:
        """Yield the metrics that came, in order."""
        for request in list(self.requests):
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    yield from scope.metrics


def points(metric: Any) -> list[Any]:
    """Return the data points of a metric."""
    return list(getattr(metric, metric.WhichOneof("data")).data_points)


def attributes(point: Any) -> dict[str, str]:
    """Return the attributes of a data point."""
    return {one.key: one.value.string_value for one in point.attributes}
