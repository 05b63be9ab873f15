"""Spans of requests, where tracing is on: what the data plane needs of it, and its OpenTelemetry form.

Each request is one server span, with an event for each thing that becomes of it, and goes on to the engine as the
parent of what that makes (`traceparent`, W3C Trace Context). OpenTelemetry is imported when tracing is switched on, not
before: it is an extra. No span holds a prompt, an answer or a key.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from router.config.watching import TracingConfig
from router.errors import ConfigError

TRACEPARENT = b"traceparent"
#: A collector that is away must cost memory within bounds: spans beyond these are dropped.
MAX_QUEUED_SPANS = 8_192
_CLOSE_LIMIT_MS = 2_000
Attributes = Mapping[str, str | int | float | bool]


class CallTrace(Protocol):
    """The span of one call."""

    #: Line for the engine; None where the call is not traced, and a client's own passes.
    traceparent: bytes | None

    def mark(self, event: str, attributes: Attributes) -> None:
        """Something became of the call now."""

    def end(self, outcome: str, attributes: Attributes, *, is_error: bool) -> None:
        """The call is over; called once."""


class Tracing(Protocol):
    """Makes spans."""

    def begin(self, name: str, headers: Sequence[tuple[bytes, bytes]], attributes: Attributes) -> CallTrace:
        """A call came."""

    def close(self) -> None:
        """Send what is left, within a moment."""


def make_tracing(config: TracingConfig) -> Tracing | None:
    """What the configuration asks for; None where tracing is off.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """
    if config.endpoint is None:
        return None
    try:
        return _OtelTracing(config)
    except ModuleNotFoundError as error:
        problem = f"needs {error.name!r}; install it with: pip install 'dovecote[otel]'"
        raise ConfigError(
            file_name="configuration", key_path="tracing.endpoint", value=config.endpoint, problem=problem
        ) from error


class _OtelTracing:
    def __init__(self, config: TracingConfig) -> None:
        # Its own imports, so that a router without tracing needs none of it.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415
        from opentelemetry.trace import SpanKind, Status, StatusCode  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        self._provider = TracerProvider(
            resource=Resource.create({"service.name": config.service_name}),
            sampler=ParentBased(TraceIdRatioBased(config.sample_ratio)),
            shutdown_on_exit=False,
        )
        exporter = OTLPSpanExporter(endpoint=f"{config.endpoint}/v1/traces")
        self._provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=MAX_QUEUED_SPANS))
        self._tracer = self._provider.get_tracer("dovecote.router")
        self._propagator = TraceContextTextMapPropagator()
        self._kind = SpanKind.SERVER
        self._error = Status(StatusCode.ERROR)

    def begin(self, name: str, headers: Sequence[tuple[bytes, bytes]], attributes: Attributes) -> CallTrace:
        """See `Tracing`."""
        carrier = {key.decode("latin-1"): value.decode("latin-1") for key, value in headers if key in _CARRIERS}
        parent = self._propagator.extract(carrier)
        span = self._tracer.start_span(name, context=parent, kind=self._kind, attributes=dict(attributes))
        return _OtelCallTrace(span, self._error)

    def close(self) -> None:
        """See `Tracing`."""
        self._provider.force_flush(_CLOSE_LIMIT_MS)
        self._provider.shutdown()


_CARRIERS = frozenset({TRACEPARENT, b"tracestate"})


class _OtelCallTrace:
    def __init__(self, span: Any, error: Any) -> None:
        self._span = span
        self._error = error
        context = span.get_span_context()
        self.traceparent: bytes | None = (
            f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}".encode()
        )

    def mark(self, event: str, attributes: Attributes) -> None:
        """See `CallTrace`."""
        self._span.add_event(event, dict(attributes))

    def end(self, outcome: str, attributes: Attributes, *, is_error: bool) -> None:
        """See `CallTrace`."""
        self._span.set_attribute("dovecote.outcome", outcome)
        self._span.set_attributes(dict(attributes))
        if is_error:
            self._span.set_status(self._error)
        self._span.end()
