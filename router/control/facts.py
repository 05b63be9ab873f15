"""What an engine says about itself, read from its own answers. Pure.

SGLang's `/server_info` (with its `kv_events` block), vLLM's `/kv_event_sources`, and `/v1/models` of both come in
as JSON; `WorkerFacts` comes out. Unknown keys are ignored, odd values are absent, and nothing here raises but for
a contradiction with the configuration.
Source: `kv_events` in the `/server_info` of SGLang; `/kv_event_sources` of vLLM.
"""

from typing import Any

import msgspec

from prefix_index.components import STANDARD
from prefix_index.layout import GroupLayout, Layout
from router.config.workers import WorkerConfig
from router.errors import DovecoteError
from router.fleet.role import Engine, Role
from wire.event_sources import (
    MAX_RANKS,
    EventPorts,
    RankEvents,
    find_dp_problem,
    find_sockets,
    is_bigram,
    read_count,
    read_event_sources,
    read_load_ports,
    read_text,
)

_MAX_MODELS = 256
_MAX_GROUPS = 64
_MAX_TEXT = 4_096
_ABSENT = object()
#: Keys of `/server_info` that differ from one start of a process to the next.
_START_KEYS = ("start_time_s", "start_time", "server_start_time", "instance_id", "incarnation")


class ContradictionError(DovecoteError):
    """The configuration says one thing of a worker and the worker another."""

    code = "config_contradiction"


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
    #: Its cache is keyed by pairs of tokens.
    is_bigram: bool = False
    #: What it does of a request, and whose engine it is; None where it does not say.
    role: Role | None = None
    engine: Engine | None = None
    #: Port of an SGLang prefill worker's bootstrap server; None where it says none.
    bootstrap_port: int | None = None
    #: Cache groups as its sidecar declares them; None where it does not.
    layout: Layout | None = None
    #: Name of its sidecar's Redis streams, without the rank; None where it publishes to none.
    redis_name: str | None = None
    #: Ports of all ranks, or the sockets of each.
    events: EventPorts | tuple[RankEvents, ...] | None = None
    #: Sockets to which it pushes its load; None where it does not.
    load_ports: EventPorts | None = None
    #: Why there are no events, in words; None where there are.
    events_absent: str | None = None
    #: Differs after a restart, where the engine says anything of the kind.
    start_mark: str | None = None
    version: str | None = None
    #: Base URL of the sidecar that told this, whose streams tell of restarts themselves; None without one.
    sidecar_url: str | None = None
    #: What in its account cannot be meant, in words, so that it gets no requests; None where nothing.
    problem: str | None = None


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
    events, absent, dp_size, block_tokens = read_event_sources(info, event_sources, url)
    return WorkerFacts(
        models=names,
        adapters=adapters,
        dp_size=read_count(info.get("dp_size"), MAX_RANKS) or dp_size or 1,
        block_tokens=block_tokens or read_count(info.get("page_size"), 1 << 20),
        capacity_tokens=read_count(info.get("max_total_num_tokens"), 1 << 40),
        tokenizer_path=read_text(info.get("tokenizer_path")),
        is_bigram=is_bigram(info),
        role=_read_role(info),
        engine=_read_engine(info, models, event_sources),
        bootstrap_port=read_count(info.get("disaggregation_bootstrap_port"), 65_535),
        events=events,
        events_absent=absent,
        load_ports=read_load_ports(info, url),
        start_mark=_start_mark(info),
        version=read_text(info.get("version")),
        problem=find_dp_problem(info),
    )


def read_sidecar_facts(server_info: Any, models: Any, *, url: str) -> WorkerFacts:
    """Facts of a worker as its sidecar tells them.

    Args:
        server_info: The sidecar's `/server_info`; None where it does not answer, so that there are no events.
        models: The worker's own `/v1/models`.
        url: Base URL of the sidecar. Snapshots come from there and nowhere else, whatever it says.
    """
    facts = read_facts(server_info, models, None, url=url)
    block = server_info.get("sidecar") if isinstance(server_info, dict) else None
    if isinstance(block, dict) and facts.events is not None:
        model = read_text(block.get("model"))
        names = facts.models if model is None else tuple(dict.fromkeys((model, *facts.models)))
        return msgspec.structs.replace(
            facts,
            models=names,
            sidecar_url=url,
            layout=_read_layout(block.get("layout")),
            redis_name=read_text(block.get("redis_name")),
        )
    reason = "its sidecar does not answer" if server_info is None else facts.events_absent or "that is no sidecar"
    return msgspec.structs.replace(facts, events=None, events_absent=reason)


def check_facts(facts: WorkerFacts, config: WorkerConfig) -> None:
    """Raise where configuration and worker disagree on what it is. What either leaves open is no disagreement.

    Raises:
        ContradictionError: Names both values.
    """
    layout = config.cache.to_layout()
    for key, configured, told in (
        ("dp_size", config.dp_size, facts.dp_size),
        ("role", config.role, facts.role),
        ("engine", config.engine, facts.engine),
        ("bootstrap_port", config.bootstrap_port, facts.bootstrap_port),
        ("cache.layout", _say_layout(layout), _say_layout(facts.layout)),
    ):
        if configured is not None and told is not None and configured != told:
            raise ContradictionError(
                f"worker {config.worker_id}: {key} is {configured} in the configuration and {told} by its own account"
            )


def _say_layout(layout: Layout | None) -> str | None:
    """Groups in words; None where nothing is declared."""
    if layout is None:
        return None
    groups = (msgspec.structs.asdict(group).items() for group in layout.groups)
    return "; ".join(", ".join(f"{name} {value}" for name, value in group if value) for group in groups)


def find_leg_problem(role: Role, engine: Engine | None) -> str | None:
    """Why a worker cannot serve one leg of a request, in words; None where it can."""
    if role is Role.AGGREGATED or engine is not None:
        return None
    return f"its role is {role}, and its engine is not known; set engine: sglang or engine: vllm"


def find_rank_events(facts: WorkerFacts, dp_rank: int) -> RankEvents | None:
    """Event sockets of one rank; None where the worker has none."""
    found = find_sockets(facts.events, dp_rank)
    if found is None or facts.sidecar_url is None:
        return found
    return msgspec.structs.replace(found, snapshot_url=f"{facts.sidecar_url}/snapshot/{dp_rank}")


def shift_port(address: str, dp_rank: int) -> str:
    """Address of rank r, given that of rank 0: r ports above, `_dp{r}` where there is no port."""
    head, colon, port = address.rpartition(":")
    if address.startswith("tcp://") and colon and port.isdecimal():
        return f"{head}:{int(port) + dp_rank}"
    return address if dp_rank == 0 else f"{address}_dp{dp_rank}"


def _read_models(models: Any, info: dict[str, Any]) -> tuple[tuple[str, ...], dict[str, str]]:
    listed = models.get("data") if isinstance(models, dict) else None
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    named = [(name, entry) for entry in entries[:_MAX_MODELS] if (name := read_text(entry.get("id"))) is not None]
    names = [name for name, _ in named]
    if not names and (served := read_text(info.get("served_model_name"))) is not None:
        names = [served]
    adapters = {name: parent for name, entry in named if (parent := read_text(entry.get("parent"))) in names and parent}
    base_first = sorted(dict.fromkeys(names), key=lambda name: name in adapters)
    return tuple(base_first), adapters


def _read_role(info: dict[str, Any]) -> Role | None:
    """SGLang says `null`, `prefill` or `decode`; others say nothing."""
    said = info.get("disaggregation_mode", _ABSENT)
    if said is None or said == "null":
        return Role.AGGREGATED
    return next((role for role in (Role.PREFILL, Role.DECODE) if said == role.value), None)


def _read_engine(info: dict[str, Any], models: Any, event_sources: Any) -> Engine | None:
    """By the owner that its models name, else by what only one engine has."""
    listed = models.get("data") if isinstance(models, dict) else None
    first = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    owner = next((engine for engine in Engine if first.get("owned_by") == engine.value), None)
    if owner is not None:
        return owner
    if "disaggregation_mode" in info:
        return Engine.SGLANG
    return Engine.VLLM if isinstance(event_sources, dict) or "vllm_config" in info else None


def _read_layout(value: Any) -> Layout | None:
    """Declared cache groups; None where there are none, or one of them makes no sense."""
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_GROUPS:
        return None
    try:
        groups = msgspec.convert(value, tuple[GroupLayout, ...])
    except msgspec.ValidationError:
        return None
    known = all(STANDARD.find(group.kind, 0, group.window_tokens) is not None for group in groups)
    numbers = (n for group in groups for n in (group.window_tokens, group.bytes_per_token, group.checkpoint_tokens))
    return Layout(groups) if known and all(number is None or 0 < number < 1 << 40 for number in numbers) else None


def _start_mark(info: dict[str, Any]) -> str | None:
    marks = [f"{key}={info[key]}" for key in _START_KEYS if isinstance(info.get(key), str | int | float)]
    return " ".join(marks)[:_MAX_TEXT] or None
