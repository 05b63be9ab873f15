"""How the event sockets are set up: endpoints, topic, buffer; `--kv-events-config` in SGLang's and vLLM's form.

Declares and parses only; nothing here opens a socket.
"""

import msgspec

#: A PUB socket whose endpoint names one of these binds; any other host is connected to, as SGLang does.
WILDCARD_HOSTS = ("*", "0.0.0.0", "::", "[::]")  # noqa: S104  (compared with, not bound by default)
MAX_BUFFER_STEPS = 1_000_000


class Endpoint(msgspec.Struct, frozen=True):
    """A TCP address whose port counts up with the rank."""

    host: str
    #: Port of rank 0; 0 asks for any run of free ports.
    port_base: int

    def address(self, offset: int = 0) -> str:
        """ZeroMQ's form of the address of rank `offset`."""
        return f"tcp://{bracketed(self.host)}:{self.port_base + offset}"


class EventSockets(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the publisher needs to know of its sockets."""

    live: Endpoint
    #: The PUB sockets connect to a subscriber that binds, instead of binding themselves.
    live_connects: bool = False
    #: None: no replay is offered.
    replay: Endpoint | None = None
    topic: str = ""
    #: Batches kept for replay, per rank.
    buffer_steps: int = 10_000
    #: Messages queued for one slow subscriber before ZeroMQ drops; raised to the buffer size where lower.
    hwm_messages: int = 100_000


class KvEventsConfigError(ValueError):
    """`--kv-events-config` cannot be used; the text names the key and what would be valid."""


class _KvEventsConfig(msgspec.Struct, forbid_unknown_fields=True):
    publisher: str = "null"
    endpoint: str = "tcp://*:5557"
    replay_endpoint: str | None = None
    buffer_steps: int = 10_000
    hwm: int = 100_000
    max_queue_size: int = 100_000
    topic: str = ""
    enable_kv_cache_events: bool = True


def parse_kv_events_config(text: str) -> EventSockets | None:
    """Read the JSON of `--kv-events-config`; None when it turns publishing off.

    Raises:
        KvEventsConfigError: Not JSON, an unknown key or a value out of range.
    """
    try:
        config = msgspec.json.decode(text, type=_KvEventsConfig)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise KvEventsConfigError(f"--kv-events-config: {error}") from error
    if config.publisher not in ("null", "zmq"):
        raise KvEventsConfigError(f"--kv-events-config: publisher {config.publisher!r} is unknown; use 'zmq' or 'null'")
    if not 1 <= config.buffer_steps <= MAX_BUFFER_STEPS:
        raise KvEventsConfigError(f"--kv-events-config: buffer_steps must be 1 to {MAX_BUFFER_STEPS}")
    if config.hwm < 0:
        raise KvEventsConfigError("--kv-events-config: hwm must be 0 (no limit) or more")
    if config.publisher == "null" or not config.enable_kv_cache_events:
        return None
    live, replay = _parse_endpoint("endpoint", config.endpoint), config.replay_endpoint
    return EventSockets(
        live=live,
        live_connects=live.host not in WILDCARD_HOSTS,
        replay=None if replay is None else _parse_endpoint("replay_endpoint", replay),
        topic=config.topic,
        buffer_steps=config.buffer_steps,
        hwm_messages=config.hwm,
    )


def bracketed(host: str) -> str:
    """A host as it stands in an address: IPv6 literals in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _parse_endpoint(key: str, text: str) -> Endpoint:
    scheme, _, rest = text.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme != "tcp" or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise KvEventsConfigError(f"--kv-events-config: {key} {text!r} is not usable; write tcp://HOST:PORT")
    return Endpoint(host.removeprefix("[").removesuffix("]"), int(port))
