"""Where an engine says its cache events are: SGLang's `kv_events` block, vLLM's `/kv_event_sources`. Pure.

JSON values of another process come in, sockets of ranks come out. Unknown keys are ignored, odd values are absent,
and nothing here raises.
Source: `kv_events` in the `/server_info` of SGLang; `/kv_event_sources` of vLLM.
"""

from typing import Any
from urllib.parse import urlsplit

import msgspec

_ANY_HOST = frozenset({"", "*", "0.0.0.0", "::", "[::]"})  # noqa: S104  (what engines say, nothing is bound to it)
MAX_RANKS = 1_024
_MAX_TEXT = 4_096
#: libzmq walks a subscription one byte a stack frame: one of megabytes would end the process.
_MAX_TOPIC_CHARS = 1_024
#: Beginnings of the names of drafts under which SGLang keys its cache by pairs of tokens.
_BIGRAM_ALGORITHMS = ("EAGLE", "FROZEN_KV_MTP")


class EventPorts(msgspec.Struct, frozen=True):
    """Event sockets of all ranks: rank r lies r ports above the base."""

    host: str
    port_base: int
    topic: str = ""
    replay_host: str | None = None
    replay_port_base: int | None = None


class RankEvents(msgspec.Struct, frozen=True):
    """Event sockets of one rank."""

    endpoint: str
    #: Address of its replay socket; None where it has none.
    replay_endpoint: str | None = None
    topic: str = ""
    #: The engine connects to `endpoint`, so the router binds it.
    binds: bool = False
    #: Where its sidecar gives a snapshot of the rank; None without a sidecar.
    snapshot_url: str | None = None


def is_bigram(info: dict[str, Any]) -> bool:
    """Whether the engine of a `/server_info` keys its cache by pairs of tokens, by the drafts it runs."""
    algorithm = info.get("speculative_algorithm")
    return isinstance(algorithm, str) and algorithm.upper().startswith(_BIGRAM_ALGORITHMS)


def find_sockets(events: EventPorts | tuple[RankEvents, ...] | None, dp_rank: int) -> RankEvents | None:
    """Event sockets of one rank; None where the engine has none."""
    if isinstance(events, EventPorts):
        replay_base, host = events.replay_port_base, events.replay_host or events.host
        replay = None if replay_base is None else _tcp(host, replay_base + dp_rank)
        return RankEvents(_tcp(events.host, events.port_base + dp_rank), replay, events.topic)
    return events[dp_rank] if events is not None and dp_rank < len(events) else None


def read_event_sources(
    info: dict[str, Any], sources: Any, url: str
) -> tuple[EventPorts | tuple[RankEvents, ...] | None, str | None, int | None, int | None]:
    """Sockets, or why there are none in words; ranks and block size as their description says.

    Args:
        info: SGLang's `/server_info`.
        sources: vLLM's `/kv_event_sources`; None where it has none.
        url: Base URL of the engine, whose host stands in for wildcard addresses.
    """
    block = info.get("kv_events")
    if isinstance(block, dict):
        return _read_sglang_events(block, url)
    if sources is not None:
        return _read_vllm_events(sources, url)
    return None, "it publishes no cache events", None, None


def _read_sglang_events(
    block: dict[str, Any], url: str
) -> tuple[EventPorts | None, str | None, int | None, int | None]:
    port_base = read_count(block.get("endpoint_port_base"), 65_535)
    if port_base is None:
        return None, "its kv_events block names no endpoint_port_base", None, None
    # A buffer that keeps nothing would answer like an engine that published nothing.
    keeps = block.get("replay_buffer_steps") != 0
    replay_base = read_count(block.get("replay_endpoint_port_base"), 65_535) if keeps else None
    events = EventPorts(
        host=_host(block.get("endpoint_host"), url),
        port_base=port_base,
        topic=_topic(block.get("topic")),
        replay_host=None if replay_base is None else _host(block.get("replay_endpoint_host"), url),
        replay_port_base=replay_base,
    )
    return events, None, read_count(block.get("dp_size"), MAX_RANKS), read_count(block.get("block_size"), 1 << 20)


def read_load_ports(info: dict[str, Any], url: str) -> EventPorts | None:
    """Load sockets of a `/server_info`, rank r lies r ports above the base; None where the engine pushes no load."""
    block = info.get("kv_events")
    if not isinstance(block, dict):
        return None
    port_base = read_count(block.get("load_endpoint_port_base"), 65_535)
    host = _host(block.get("endpoint_host"), url)
    topic = block.get("load_topic")
    return None if port_base is None else EventPorts(host, port_base, _topic("load" if topic is None else topic))


def _read_vllm_events(
    sources: Any, url: str
) -> tuple[tuple[RankEvents, ...] | None, str | None, int | None, int | None]:
    """One entry a rank, under the rank's number."""
    ranks: list[RankEvents] = []
    while isinstance(sources, dict) and isinstance(entry := sources.get(str(len(ranks))), dict):
        endpoint, replay = read_text(entry.get("endpoint")), read_text(entry.get("replay_endpoint"))
        if endpoint is None or len(ranks) >= MAX_RANKS:
            return None, "a rank of its kv_event_sources has no endpoint", None, None
        # vLLM's publisher binds a wildcard address and connects to any other.
        reachable = _reachable(endpoint, url)
        ranks.append(
            RankEvents(
                reachable,
                None if replay is None else _reachable(replay, url),
                _topic(entry.get("topic")),
                binds=reachable == endpoint and endpoint.startswith("tcp://"),
            )
        )
    if not ranks:
        return None, "its kv_event_sources list no rank", None, None
    return tuple(ranks), None, len(ranks), None


def _reachable(address: str, url: str) -> str:
    """A bound address as others reach it."""
    head, _, port = address.rpartition(":")
    host = head.removeprefix("tcp://")
    if address.startswith("tcp://") and host in _ANY_HOST and port.isdecimal():
        return _tcp(_host(host, url), int(port))
    return address


def _host(said: Any, url: str) -> str:
    host = said if isinstance(said, str) else ""
    return (urlsplit(url).hostname or "127.0.0.1") if host in _ANY_HOST else host


def _tcp(host: str, port: int) -> str:
    return f"tcp://[{host}]:{port}" if ":" in host and not host.startswith("[") else f"tcp://{host}:{port}"


def find_dp_problem(info: dict[str, Any]) -> str | None:
    """Why a `/server_info` that says how many ranks there are cannot be meant, in words; None where it can.

    What it does not say is no problem. A count that is none must not be read as one rank: the others would earn
    nothing and the one be asked for what they hold.
    """
    block = info.get("kv_events")
    for told in (info, block if isinstance(block, dict) else {}):
        value = told.get("dp_size")
        if value is not None and read_count(value, MAX_RANKS) is None:
            return f"its dp_size is {str(value)[:64]!r}, not a number from 1 to {MAX_RANKS}"
    return None


def read_count(value: Any, limit: int) -> int | None:
    """A whole number from 1 to `limit`; None for anything else."""
    return value if type(value) is int and 1 <= value <= limit else None


def _topic(value: Any) -> str:
    """What to subscribe to; everything where the engine names nothing usable."""
    return value if isinstance(value, str) and len(value) <= _MAX_TOPIC_CHARS else ""


def read_text(value: Any) -> str | None:
    """A text of sensible length; None for anything else."""
    return value if isinstance(value, str) and 0 < len(value) <= _MAX_TEXT else None
