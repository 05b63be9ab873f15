"""What an engine says about itself, read from its own answers. Pure.

SGLang's `/server_info` (with its `kv_events` block), vLLM's `/kv_event_sources`, and `/v1/models` of both come in
as JSON; `WorkerFacts` comes out. Unknown keys are ignored, odd values are absent, and nothing here raises but for
a contradiction with the configuration.
Source: reference/sglang.md 1.9, reference/vllm.md 14.
"""

from typing import Any
from urllib.parse import urlsplit

import msgspec

from router.errors import DovecoteError

_ANY_HOST = frozenset({"", "*", "0.0.0.0", "::", "[::]"})  # noqa: S104  (what engines say, nothing is bound to it)
_MAX_RANKS = 1_024
_MAX_MODELS = 256
_MAX_TEXT = 4_096
#: libzmq walks a subscription one byte a stack frame: one of megabytes would end the process.
_MAX_TOPIC_CHARS = 1_024
#: Engines that key their cache by pairs of tokens, which is not modelled.
_BIGRAM_ALGORITHMS = frozenset({"EAGLE", "EAGLE3", "FROZEN_KV_MTP"})
#: Keys of `/server_info` that differ from one start of a process to the next.
_START_KEYS = ("start_time_s", "start_time", "server_start_time", "instance_id", "incarnation")


class ContradictionError(DovecoteError):
    """The configuration says one thing of a worker and the worker another."""

    code = "config_contradiction"


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


class WorkerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One engine process as it describes itself."""

    #: Base model first, then adapters.
    models: tuple[str, ...]
    #: Adapters by name, with the base model they sit on.
    adapters: dict[str, str] = {}
    dp_size: int = 1
    block_tokens: int | None = None
    capacity_tokens: int | None = None
    tokenizer_path: str | None = None
    #: Ports of all ranks, or the sockets of each.
    events: EventPorts | tuple[RankEvents, ...] | None = None
    #: Why there are no events, in words; None where there are.
    events_absent: str | None = None
    #: Differs after a restart, where the engine says anything of the kind.
    start_mark: str | None = None
    version: str | None = None


def read_facts(server_info: Any, models: Any, event_sources: Any, *, url: str) -> WorkerFacts:
    """Facts from whatever of the three answers there was; absent ones are None.

    Args:
        server_info: SGLang's `/server_info`.
        models: `/v1/models`.
        event_sources: vLLM's `/kv_event_sources`.
        url: Base URL of the worker, whose host stands in for wildcard addresses.
    """
    info = server_info if isinstance(server_info, dict) else {}
    names, adapters = _read_models(models, info)
    events, absent, dp_size, block_tokens = _read_events(info, event_sources, url)
    return WorkerFacts(
        models=names,
        adapters=adapters,
        dp_size=_count(info.get("dp_size"), _MAX_RANKS) or dp_size or 1,
        block_tokens=block_tokens or _count(info.get("page_size"), 1 << 20),
        capacity_tokens=_count(info.get("max_total_num_tokens"), 1 << 40),
        tokenizer_path=_text(info.get("tokenizer_path")),
        events=events,
        events_absent=absent,
        start_mark=_start_mark(info),
        version=_text(info.get("version")),
    )


def check_dp_size(facts: WorkerFacts, configured: int | None, worker: str) -> None:
    """Raise where configuration and worker disagree on the number of ranks.

    Raises:
        ContradictionError: Names both values.
    """
    if configured is not None and configured != facts.dp_size:
        raise ContradictionError(
            f"worker {worker}: dp_size is {configured} in the configuration and {facts.dp_size} by its own account"
        )


def find_rank_events(facts: WorkerFacts, dp_rank: int) -> RankEvents | None:
    """Event sockets of one rank; None where the worker has none."""
    events = facts.events
    if isinstance(events, EventPorts):
        replay_base, host = events.replay_port_base, events.replay_host or events.host
        replay = None if replay_base is None else _tcp(host, replay_base + dp_rank)
        return RankEvents(_tcp(events.host, events.port_base + dp_rank), replay, events.topic)
    return events[dp_rank] if events is not None and dp_rank < len(events) else None


def shift_port(address: str, dp_rank: int) -> str:
    """Address of rank r, given that of rank 0: r ports above, `_dp{r}` where there is no port."""
    head, colon, port = address.rpartition(":")
    if address.startswith("tcp://") and colon and port.isdecimal():
        return f"{head}:{int(port) + dp_rank}"
    return address if dp_rank == 0 else f"{address}_dp{dp_rank}"


def _read_models(models: Any, info: dict[str, Any]) -> tuple[tuple[str, ...], dict[str, str]]:
    listed = models.get("data") if isinstance(models, dict) else None
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    named = [(name, entry) for entry in entries[:_MAX_MODELS] if (name := _text(entry.get("id"))) is not None]
    names = [name for name, _ in named]
    if not names and (served := _text(info.get("served_model_name"))) is not None:
        names = [served]
    adapters = {name: parent for name, entry in named if (parent := _text(entry.get("parent"))) in names and parent}
    base_first = sorted(dict.fromkeys(names), key=lambda name: name in adapters)
    return tuple(base_first), adapters


def _read_events(
    info: dict[str, Any], sources: Any, url: str
) -> tuple[EventPorts | tuple[RankEvents, ...] | None, str | None, int | None, int | None]:
    """Sockets, or why there are none; ranks and block size as their description says."""
    algorithm = info.get("speculative_algorithm")
    if isinstance(algorithm, str) and algorithm.upper() in _BIGRAM_ALGORITHMS:
        return None, f"its cache is keyed by token pairs ({algorithm.upper()}), which is not modelled", None, None
    block = info.get("kv_events")
    if isinstance(block, dict):
        return _read_sglang_events(block, url)
    if sources is not None:
        return _read_vllm_events(sources, url)
    return None, "it publishes no cache events", None, None


def _read_sglang_events(
    block: dict[str, Any], url: str
) -> tuple[EventPorts | None, str | None, int | None, int | None]:
    port_base = _count(block.get("endpoint_port_base"), 65_535)
    if port_base is None:
        return None, "its kv_events block names no endpoint_port_base", None, None
    replay_base = _count(block.get("replay_endpoint_port_base"), 65_535)
    events = EventPorts(
        host=_host(block.get("endpoint_host"), url),
        port_base=port_base,
        topic=_topic(block.get("topic")),
        replay_host=None if replay_base is None else _host(block.get("replay_endpoint_host"), url),
        replay_port_base=replay_base,
    )
    return events, None, _count(block.get("dp_size"), _MAX_RANKS), _count(block.get("block_size"), 1 << 20)


def _read_vllm_events(
    sources: Any, url: str
) -> tuple[tuple[RankEvents, ...] | None, str | None, int | None, int | None]:
    """One entry a rank, under the rank's number."""
    ranks: list[RankEvents] = []
    while isinstance(sources, dict) and isinstance(entry := sources.get(str(len(ranks))), dict):
        endpoint, replay = _text(entry.get("endpoint")), _text(entry.get("replay_endpoint"))
        if endpoint is None or len(ranks) >= _MAX_RANKS:
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


def _start_mark(info: dict[str, Any]) -> str | None:
    marks = [f"{key}={info[key]}" for key in _START_KEYS if isinstance(info.get(key), str | int | float)]
    return " ".join(marks)[:_MAX_TEXT] or None


def _count(value: Any, limit: int) -> int | None:
    return value if type(value) is int and 1 <= value <= limit else None


def _topic(value: Any) -> str:
    """What to subscribe to; everything where the engine names nothing usable."""
    return value if isinstance(value, str) and len(value) <= _MAX_TOPIC_CHARS else ""


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= _MAX_TEXT else None
