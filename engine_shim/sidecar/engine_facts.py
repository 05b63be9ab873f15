"""What the engine says of itself, from its own answers. Pure.

SGLang's `/server_info`; vLLM's `/kv_event_sources`, `/v1/models` and the `cache_config_info` of its `/metrics`.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from wire.event_sources import (
    MAX_RANKS,
    RankEvents,
    find_dp_problem,
    find_sockets,
    is_bigram,
    read_count,
    read_event_sources,
    read_text,
)
from wire.load import LoadReport

_MAX_MODELS = 256
#: Keys of an engine's `/server_info` that are passed on. It may hold secrets, so that nothing else is.
_PASSED_ON = (
    "version",
    "served_model_name",
    "model_path",
    "tokenizer_path",
    "page_size",
    "dp_size",
    "max_total_num_tokens",
    "max_running_requests",
    "context_length",
    "chunked_prefill_size",
    "disaggregation_mode",
    "disaggregation_bootstrap_port",
    "speculative_algorithm",
)
_SAMPLE = re.compile(r"^vllm:(\w+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_LOADS = {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "gpu_cache_usage_perc"}


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One engine, as far as a sidecar needs to know it."""

    #: `sglang` (ours speaks it too) or `vllm`: whose way of telling about events it has.
    dialect: str
    #: Base model first.
    models: tuple[str, ...]
    dp_size: int
    #: Event sockets by rank.
    sources: tuple[RankEvents, ...]
    block_tokens: int | None
    capacity_tokens: int | None
    #: Its cache is keyed by pairs of tokens.
    is_bigram: bool = False
    #: Facts in SGLang's names, as they are passed on.
    info: dict[str, Any]


def read_engine(info: Any, models: Any, sources: Any, metrics: str | None, *, url: str) -> EngineFacts | str:
    """Facts from whatever of the answers there was, absent ones being None; in words why they do not do.

    Args:
        info: `/server_info`.
        models: `/v1/models`.
        sources: `/kv_event_sources`.
        metrics: `/metrics`, of vLLM.
        url: Base URL of the engine.
    """
    known = info if isinstance(info, dict) else {}
    events, absent, dp_size, block_tokens = read_event_sources(known, sources, url)
    if events is None:
        return f"{url}: {absent}"
    names = _read_models(models) or tuple(name for name in [read_text(known.get("served_model_name"))] if name)
    if not names:
        return f"{url}: it names no model"
    if (problem := find_dp_problem(known)) is not None:
        return f"{url}: {problem}"
    dp_size = read_count(known.get("dp_size"), MAX_RANKS) or dp_size or 1
    found = tuple(find_sockets(events, rank) for rank in range(dp_size))
    usable = tuple(each for each in found if each is not None)
    if len(usable) != dp_size:
        return f"{url}: {dp_size} ranks by its own account, and event sockets of {len(usable)}"
    config = _read_cache_config(metrics or "")
    block_tokens = block_tokens or read_count(known.get("page_size"), 1 << 20) or config.get("block_size")
    capacity_tokens = read_count(known.get("max_total_num_tokens"), 1 << 40)
    if capacity_tokens is None and "num_gpu_blocks" in config and "block_size" in config:
        capacity_tokens = config["num_gpu_blocks"] * config["block_size"]
    return EngineFacts(
        dialect="sglang" if isinstance(known.get("kv_events"), dict) else "vllm",
        models=names,
        dp_size=dp_size,
        sources=usable,
        block_tokens=block_tokens,
        capacity_tokens=capacity_tokens,
        is_bigram=is_bigram(known),
        info=_read_model_card(models) | _read_own(known),
    )


def read_vllm_loads(metrics: str, facts: EngineFacts) -> tuple[LoadReport, ...]:
    """Load of each rank out of vLLM's `/metrics`; ranks that it does not name are idle."""
    ranks: dict[int, dict[str, float]] = {rank: {} for rank in range(facts.dp_size)}
    for name, labels, value in _read_samples(metrics):
        engine = labels.get("engine", "0")
        if name in _LOADS and engine.isdecimal() and int(engine) in ranks:
            ranks[int(engine)][name] = max(0.0, value)
    return tuple(_to_report(rank, values, facts.capacity_tokens) for rank, values in ranks.items())


def _to_report(rank: int, values: dict[str, float], capacity_tokens: int | None) -> LoadReport:
    used_ratio = values.get("kv_cache_usage_perc", values.get("gpu_cache_usage_perc", 0.0))
    return LoadReport(
        dp_rank=rank,
        running_requests=int(values.get("num_requests_running", 0)),
        waiting_requests=int(values.get("num_requests_waiting", 0)),
        used_tokens=int(min(1.0, used_ratio) * (capacity_tokens or 0)),
        capacity_tokens=capacity_tokens,
    )


def _read_models(models: Any) -> tuple[str, ...]:
    listed = models.get("data") if isinstance(models, dict) else None
    entries = [entry for entry in listed[:_MAX_MODELS] if isinstance(entry, dict)] if isinstance(listed, list) else []
    named = [(name, entry) for entry in entries if (name := read_text(entry.get("id"))) is not None]
    names = {name for name, _ in named}
    return tuple(name for name, entry in sorted(named, key=lambda each: each[1].get("parent") in names))


def _read_own(known: dict[str, Any]) -> dict[str, Any]:
    """What an engine says of itself in SGLang's names, as far as it is passed on."""
    told = {key: known.get(key) for key in _PASSED_ON}
    return {key: value for key, value in told.items() if isinstance(value, str | int | float)}


def _read_model_card(models: Any) -> dict[str, Any]:
    """What a vLLM says beside its model's name; nothing of an engine whose `root` is no folder of its own."""
    listed = models.get("data") if isinstance(models, dict) else None
    first = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    root, length = read_text(first.get("root")), read_count(first.get("max_model_len"), 1 << 40)
    told = {"model_path": root, "tokenizer_path": root, "context_length": length}
    return {key: value for key, value in told.items() if value is not None}


def _read_cache_config(metrics: str) -> dict[str, int]:
    """Numbers of vLLM's `cache_config_info`, of the first rank."""
    for name, labels, _ in _read_samples(metrics):
        if name == "cache_config_info":
            numbers = {key: labels[key] for key in ("block_size", "num_gpu_blocks") if key in labels}
            return {key: int(value) for key, value in numbers.items() if value.isdecimal() and 0 < len(value) < 12}
    return {}


def _read_samples(metrics: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Samples of vLLM out of a Prometheus text: name without prefix, labels, value."""
    for line in metrics.splitlines():
        found = _SAMPLE.match(line)
        if found is None:
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        if value == value and abs(value) != float("inf"):  # noqa: PLR0124  (not NaN)
            yield found[1], dict(_LABEL.findall(found[2] or "")), value
