"""What became of hints, as a numbered topic with replay: answers to `POST /v1/kv_hints`, for those who listen.

This engine carries out no action yet, so every outcome is `rejected: not supported`.
"""

import time
from typing import cast

from engine_shim.engine.publish import Endpoint, EventPublisher, EventSockets
from wire.events import Event, EventBatch
from wire.hints import PROTOCOL_VERSION, HintOutcome, KvHints, encode_outcome, reject_all

TOPIC = "kv_hint_outcomes"
BUFFER_STEPS = 1_000
NOT_SUPPORTED = "not supported"


class HintOutcomes:
    """Answers envelopes and publishes the answers. Belongs to the event loop's thread."""

    def __init__(self, host: str) -> None:
        anywhere = Endpoint(host, 0)
        sockets = EventSockets(live=anywhere, replay=anywhere, topic=TOPIC, buffer_steps=BUFFER_STEPS)
        self._publisher = EventPublisher(sockets, dp_size=1, encode=_encode)

    def start(self) -> None:
        """Begin to answer replay requests."""
        self._publisher.start()

    def close(self) -> None:
        """Close the sockets."""
        self._publisher.close()

    def answer(self, hints: KvHints) -> tuple[HintOutcome, ...]:
        """Reject every action and publish each outcome."""
        outcomes = reject_all(hints, NOT_SUPPORTED)
        for outcome in outcomes:
            # The journal numbers whatever its encoder understands; here that is an outcome.
            self._publisher.topics[0].publish(cast("tuple[Event, ...]", (outcome,)), time.time())
        return outcomes

    def describe(self) -> dict[str, object]:
        """The `kv_hints` block of `/server_info`."""
        live, replay = self._publisher.sockets.live, self._publisher.sockets.replay
        assert replay is not None  # noqa: S101  (opened with one above)
        return {
            "protocol_version": PROTOCOL_VERSION,
            "topic": TOPIC,
            "endpoint_host": live.host,
            "endpoint_port": live.port_base,
            "replay_endpoint_host": replay.host,
            "replay_endpoint_port": replay.port_base,
            "replay_buffer_steps": BUFFER_STEPS,
        }


def _encode(batch: EventBatch) -> bytes:
    return encode_outcome(cast("HintOutcome", batch.events[0]))
