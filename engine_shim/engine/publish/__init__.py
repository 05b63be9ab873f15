"""Cache events out: takes the events of each step from the engine, gives numbered batches to subscribers."""

from engine_shim.engine.publish.config import Endpoint, EventSockets, KvEventsConfigError, parse_kv_events_config
from engine_shim.engine.publish.dialect import EventDialect
from engine_shim.engine.publish.publisher import EventPublisher

__all__ = [
    "Endpoint",
    "EventDialect",
    "EventPublisher",
    "EventSockets",
    "KvEventsConfigError",
    "parse_kv_events_config",
]
