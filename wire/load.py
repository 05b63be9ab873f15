"""Load reports: how busy one rank says it is, in SGLang's `/v1/loads` form.

Takes the JSON body of that endpoint, gives `LoadReport` values, and the other way round.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from wire.malformed import Malformed

#: Largest body read, and most ranks in it.
MAX_BODY_BYTES = 4 << 20
MAX_RANKS = 4_096

_Count = Annotated[int, Meta(ge=0)]


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's own view of its work at one moment. Counts are not negative."""

    dp_rank: int
    #: Requests in the running batch.
    running_requests: int
    #: Requests queued before it.
    waiting_requests: int
    #: Tokens that the queued requests must still compute, net of prefix hits; 0 where the engine does not say.
    waiting_uncached_tokens: int = 0
    #: KV tokens in use by running requests.
    used_tokens: int = 0
    #: KV tokens that fit this rank's device; None where the engine does not say.
    capacity_tokens: int | None = None
    #: Most requests the rank runs at once; None where the engine does not say.
    max_running_requests: int | None = None
    #: Output speed, tokens per second; None where the engine does not say.
    generated_tokens_per_s: float | None = None


class _SglangLoad(msgspec.Struct):
    """One entry of `loads`; foreign keys are ignored."""

    dp_rank: _Count = 0
    num_running_reqs: _Count = 0
    num_waiting_reqs: _Count = 0
    num_waiting_uncached_tokens: _Count = 0
    num_used_tokens: _Count = 0
    max_total_num_tokens: _Count | None = None
    max_running_requests: _Count | None = None
    gen_throughput: float | None = None


class _SglangLoads(msgspec.Struct):
    loads: Annotated[list[_SglangLoad], Meta(max_length=MAX_RANKS)]


_read_loads = msgspec.json.Decoder(_SglangLoads).decode


def decode_sglang_loads(body: bytes) -> tuple[LoadReport, ...] | Malformed:
    """Reports in a `/v1/loads` answer, one a rank, in its order; never raises."""
    if len(body) > MAX_BODY_BYTES:
        return Malformed("payload size")
    try:
        answer = _read_loads(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Malformed("loads")
    return tuple(_from_sglang(entry) for entry in answer.loads)


def encode_sglang_loads(reports: Sequence[LoadReport], *, timestamp: str, version: str) -> dict[str, object]:
    """Body of a `/v1/loads` answer; `timestamp` is ISO 8601."""
    return {
        "timestamp": timestamp,
        "version": version,
        "num_accelerators": 1,
        "loads": [_to_sglang(report) for report in reports],
    }


def _from_sglang(entry: _SglangLoad) -> LoadReport:
    return LoadReport(
        dp_rank=entry.dp_rank,
        running_requests=entry.num_running_reqs,
        waiting_requests=entry.num_waiting_reqs,
        waiting_uncached_tokens=entry.num_waiting_uncached_tokens,
        used_tokens=entry.num_used_tokens,
        capacity_tokens=entry.max_total_num_tokens,
        max_running_requests=entry.max_running_requests,
        generated_tokens_per_s=entry.gen_throughput,
    )


def _to_sglang(report: LoadReport) -> dict[str, object]:
    fields: dict[str, object] = {
        "dp_rank": report.dp_rank,
        "num_running_reqs": report.running_requests,
        "num_waiting_reqs": report.waiting_requests,
        "num_waiting_uncached_tokens": report.waiting_uncached_tokens,
        "num_used_tokens": report.used_tokens,
        "num_total_tokens": report.used_tokens + report.waiting_uncached_tokens,
        "max_total_num_tokens": report.capacity_tokens,
        "max_running_requests": report.max_running_requests,
        "gen_throughput": report.generated_tokens_per_s,
        "token_usage": report.used_tokens / report.capacity_tokens if report.capacity_tokens else None,
    }
    return {key: value for key, value in fields.items() if value is not None}
