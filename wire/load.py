"""Load reports: how busy one rank says it is.

SGLang's `/v1/loads` (both ways) and the messages of its load socket, vLLM's `/metrics` and `/load` come in;
`LoadReport` values come out.
Source: `/v1/loads` and the load socket of SGLang; `/metrics` and `/load` of vLLM.
"""

import math
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from wire.malformed import Malformed

#: Largest body read, and most ranks in it.
MAX_BODY_BYTES = 4 << 20
MAX_RANKS = 4_096
#: Longest message of a load socket, and its frames.
MAX_STAT_BYTES = 1_024
_STAT_FRAMES = 3
#: A report that is older by its engine's own word was not understood.
MAX_AGE_S = 3_600.0
_MAX_TIME_S = 1e15

_Count = Annotated[int, Meta(ge=0)]


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's own view of its work at one moment. Counts are not negative."""

    dp_rank: int
    #: Requests in the running batch.
    running_requests: int
    #: Requests queued before it.
    waiting_requests: int
    #: Tokens that the queued requests must still compute, net of prefix hits; None where the engine does not say.
    waiting_uncached_tokens: int | None = None
    #: KV tokens in use by running requests.
    used_tokens: int = 0
    #: KV tokens that fit this rank's device; None where the engine does not say.
    capacity_tokens: int | None = None
    #: Most requests the rank runs at once; None where the engine does not say.
    max_running_requests: int | None = None
    #: Output speed, tokens per second; None where the engine does not say.
    generated_tokens_per_s: float | None = None
    #: How old it was when it was sent, where the engine says when it was taken.
    age_s: float = 0.0


class _SglangLoad(msgspec.Struct):
    """One entry of `loads`; foreign keys are ignored."""

    dp_rank: _Count = 0
    num_running_reqs: _Count = 0
    num_waiting_reqs: _Count = 0
    num_waiting_uncached_tokens: _Count | None = None
    num_used_tokens: _Count = 0
    max_total_num_tokens: _Count | None = None
    max_running_requests: _Count | None = None
    gen_throughput: float | None = None
    #: Seconds since the epoch, by the engine's clock.
    timestamp: Any = None


class _SglangLoads(msgspec.Struct):
    loads: Annotated[list[_SglangLoad], Meta(max_length=MAX_RANKS)]
    #: When the answer was made, by the same clock.
    timestamp: Any = None


_read_loads = msgspec.json.Decoder(_SglangLoads).decode


def decode_sglang_loads(body: bytes) -> tuple[LoadReport, ...] | Malformed:
    """Reports in a `/v1/loads` answer, one a rank, in its order; never raises."""
    if len(body) > MAX_BODY_BYTES:
        return Malformed("payload size")
    try:
        answer = _read_loads(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Malformed("loads")
    made_s = _read_time(answer.timestamp)
    return tuple(_from_sglang(entry, made_s) for entry in answer.loads)


def _read_time(value: Any) -> float | None:
    """Seconds since the epoch, of a number or an ISO text; None for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) < _MAX_TIME_S else None
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None


def _find_age_s(taken: Any, made_s: float | None) -> float:
    """Age of a report in an answer: both times are of one clock; 0 where they make no sense."""
    taken_s = _read_time(taken)
    age_s = 0.0 if taken_s is None or made_s is None else made_s - taken_s
    return age_s if 0.0 <= age_s <= MAX_AGE_S else 0.0


def encode_sglang_loads(reports: Sequence[LoadReport], *, timestamp: str, version: str) -> dict[str, object]:
    """Body of a `/v1/loads` answer; `timestamp` is ISO 8601."""
    return {
        "timestamp": timestamp,
        "version": version,
        "num_accelerators": 1,
        "loads": [_to_sglang(report) for report in reports],
    }


def _from_sglang(entry: _SglangLoad, made_s: float | None) -> LoadReport:
    return LoadReport(
        dp_rank=entry.dp_rank,
        running_requests=entry.num_running_reqs,
        waiting_requests=entry.num_waiting_reqs,
        waiting_uncached_tokens=entry.num_waiting_uncached_tokens,
        used_tokens=entry.num_used_tokens,
        capacity_tokens=entry.max_total_num_tokens,
        max_running_requests=entry.max_running_requests,
        generated_tokens_per_s=entry.gen_throughput,
        age_s=_find_age_s(entry.timestamp, made_s),
    )


class _LoadStat(msgspec.Struct, array_like=True, tag="LoadStat"):
    """A message of SGLang's load socket."""

    num_running_reqs: _Count
    num_waiting_reqs: _Count
    num_tokens: _Count
    max_total_num_tokens: _Count
    attn_dp_rank: _Count | None = None


_read_stat = msgspec.msgpack.Decoder(_LoadStat).decode


def decode_load_stat(frames: Sequence[bytes], *, dp_rank: int) -> LoadReport | Malformed:
    """A message of SGLang's load socket: topic, number, payload; never raises.

    Args:
        frames: As they came.
        dp_rank: Rank whose socket it came from, which counts where the message names none.
    """
    if len(frames) != _STAT_FRAMES or len(frames[2]) > MAX_STAT_BYTES:
        return Malformed("load frames")
    try:
        stat = _read_stat(frames[2])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Malformed("load stat")
    return LoadReport(
        dp_rank=dp_rank if stat.attn_dp_rank is None else stat.attn_dp_rank,
        running_requests=stat.num_running_reqs,
        waiting_requests=stat.num_waiting_reqs,
        used_tokens=stat.num_tokens,
        capacity_tokens=stat.max_total_num_tokens or None,
    )


def decode_vllm_count(body: bytes) -> tuple[LoadReport, ...] | Malformed:
    """VLLM's `/load`: requests of the whole server, so that it says something of rank 0 only where that is all."""
    try:
        answer = _read_count(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Malformed("load")
    return (LoadReport(dp_rank=0, running_requests=answer.server_load, waiting_requests=0),)


class _VllmCount(msgspec.Struct):
    server_load: _Count


_read_count = msgspec.json.Decoder(_VllmCount).decode


def decode_vllm_metrics(body: bytes) -> tuple[LoadReport, ...] | Malformed:
    """VLLM's Prometheus page: one report for each `engine`, in order of rank; never raises."""
    if len(body) > MAX_BODY_BYTES:
        return Malformed("payload size")
    values: dict[int, dict[str, float]] = {}
    for line in body.decode("utf-8", "replace").splitlines():
        found = _SAMPLE.fullmatch(line) if line.startswith("vllm:") else None
        if found is None or found["name"] not in _WANTED:
            continue
        labels = dict(_LABEL.findall(found["labels"] or ""))
        rank, value = labels.get("engine", "0"), _read_figure(found["name"], labels, found["value"])
        if value is not None and rank.isdecimal() and int(rank) < MAX_RANKS:
            values.setdefault(int(rank), {})[found["name"]] = value
    reports = tuple(_from_vllm(rank, values[rank]) for rank in sorted(values) if "num_requests_running" in values[rank])
    return reports or Malformed("metrics")


_WANTED = frozenset({"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "cache_config_info"})
_SAMPLE = re.compile(r"vllm:(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)(?: \d+)?")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def _read_figure(name: str, labels: dict[str, str], text: str) -> float | None:
    """A sample's figure; of the cache's description its tokens."""
    if name == "cache_config_info":
        parts = labels.get("block_size", ""), labels.get("num_gpu_blocks", "")
        are_counts = all(part.isdecimal() and len(part) < 12 for part in parts)
        return float(int(parts[0]) * int(parts[1])) if are_counts else None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value < _MAX_TIME_S else None


def _from_vllm(rank: int, values: dict[str, float]) -> LoadReport:
    capacity_tokens = int(values.get("cache_config_info", 0)) or None
    usage_ratio = min(1.0, values.get("kv_cache_usage_perc", 0.0))
    return LoadReport(
        dp_rank=rank,
        running_requests=int(values["num_requests_running"]),
        waiting_requests=int(values.get("num_requests_waiting", 0)),
        used_tokens=int(usage_ratio * (capacity_tokens or 0)),
        capacity_tokens=capacity_tokens,
    )


def _to_sglang(report: LoadReport) -> dict[str, object]:
    fields: dict[str, object] = {
        "dp_rank": report.dp_rank,
        "num_running_reqs": report.running_requests,
        "num_waiting_reqs": report.waiting_requests,
        "num_waiting_uncached_tokens": report.waiting_uncached_tokens,
        "num_used_tokens": report.used_tokens,
        "num_total_tokens": report.used_tokens + (report.waiting_uncached_tokens or 0),
        "max_total_num_tokens": report.capacity_tokens,
        "max_running_requests": report.max_running_requests,
        "gen_throughput": report.generated_tokens_per_s,
        "token_usage": report.used_tokens / report.capacity_tokens if report.capacity_tokens else None,
    }
    return {key: value for key, value in fields.items() if value is not None}
