"""The `logs:` and `tracing:` of the configuration: what the router tells of itself."""

from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from router.config.model import ConfigModel, Ratio, Text


class LogFormat(StrEnum):
    """How lines of the log look."""

    #: `time level logger event key=value`.
    TEXT = "text"
    #: An object a line.
    JSON = "json"


class LogsConfig(ConfigModel):
    """The log on standard error; `--log-level` says how much."""

    #: `text` for eyes, `json` for machines: an object a line, with the same events and fields.
    format: LogFormat = LogFormat.TEXT


class TracingConfig(ConfigModel):
    """Spans of requests for OpenTelemetry; needs `pip install 'dovecote[otel]'`. Off by default."""

    #: Base URL of an OTLP collector that speaks HTTP, such as `http://localhost:4318`; without it no spans, and a
    #: client's `traceparent` goes on to the engine as it came.
    endpoint: Text | None = None
    #: Share of the requests without a `traceparent` that are traced; one with a `traceparent` is where that says so.
    sample_ratio: Ratio = 1.0
    #: Name of this service in the spans.
    service_name: Annotated[str, Field(strict=True, min_length=1, max_length=128)] = "dovecote-router"

    @field_validator("endpoint")
    @classmethod
    def _usable_endpoint(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname or not value.isprintable():
            problem = "an OTLP collector's base URL looks like http://localhost:4318"
            raise PydanticCustomError("bad_url", "{problem}", {"problem": problem})
        return value.rstrip("/")
