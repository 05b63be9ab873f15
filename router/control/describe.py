"""Workers, ranks and sources as `GET /v1/workers` tells them, as plain values; no key of a worker is told."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from router.control.fleet import FleetWatch
from router.control.worker import Worker
from router.fleet.agreement import Disagreement
from router.fleet.breaker import BreakerState
from router.metrics import StreamView
from router.placement.placer import Placer
from wire.ids import Target


def describe_fleet(
    fleet: FleetWatch,
    placer: Placer,
    views: Iterable[StreamView],
    *,
    inflight: Mapping[Target, int],
    read_agreement: Callable[[Target], Disagreement | None],
    now_s: float,
) -> dict[str, Any]:
    """The whole answer."""
    streams = {view.target: view for view in views}
    states = placer.breakers.find_states(placer.clock.now_s)

    def tell(worker: Worker, target: Target) -> dict[str, Any]:
        kind = read_agreement(target)
        return describe_rank(worker, target, streams.get(target), now_s) | {
            "inflight_requests": inflight.get(target, 0),
            "disagreement": None if kind is None else kind.value,
            "breaker": states.get(target, BreakerState.CLOSED).value,
        }

    listed = [
        describe_worker(worker, fleet.registry.origins.get(worker.id))
        | {"ranks": [tell(worker, target) for target in worker.targets]}
        for worker in fleet.workers.values()
    ]
    return {"workers": listed, "sources": describe_sources(fleet)}


def describe_worker(worker: Worker, source: str | None) -> dict[str, Any]:
    """A worker without its ranks.

    Args:
        worker: The worker.
        source: Who names it; None where nobody does any more.
    """
    facts = worker.facts
    return {
        "id": worker.id,
        "url": worker.config.url,
        "source": source,
        "healthy": worker.is_usable,
        "role": worker.role,
        "engine": worker.engine,
        "standing": worker.find_standing().value,
        "problem": worker.refused or worker.problem,
        "models": [] if facts is None else list(facts.models),
        "dp_size": None if facts is None else facts.dp_size,
        "block_tokens": None if facts is None else facts.block_tokens,
        "capacity_tokens": None if facts is None else facts.capacity_tokens,
        "version": None if facts is None else facts.version,
        "parity": worker.parity,
        "cache_credit": worker.describe_credit(),
        "no_cache_credit": worker.explain_no_credit(),
    }


def describe_rank(worker: Worker, target: Target, view: StreamView | None, now_s: float) -> dict[str, Any]:
    """A rank: its event stream, and what it said of its load last, with how and how long ago."""
    taken = worker.loads.by_rank.get(target.dp_rank)
    age_s = None if view is None else view.last_batch_age_s
    return {
        "dp_rank": target.dp_rank,
        "trust": "lost" if view is None else view.trust.value,
        "last_seq": None if view is None else view.last_seq,
        "index_blocks": 0 if view is None else view.blocks,
        "event_batches": 0 if view is None else view.batches,
        "last_batch_age_s": None if age_s is None else round(age_s, 3),
        "load": None
        if taken is None
        else {
            "source": taken.source.value,
            "age_s": round(max(0.0, now_s - taken.taken_s), 3),
            **{
                name: value
                for name, value in msgspec.structs.asdict(taken.report).items()
                if name not in {"dp_rank", "age_s"}
            },
        },
    }


def describe_sources(fleet: FleetWatch) -> list[dict[str, Any]]:
    """Who names workers: how many, what is wrong, and which of them do not count and why."""
    problems, shadowed = fleet.find_problems(), fleet.registry.shadowed
    return [
        {
            "source": source,
            "workers": count,
            "problem": problems.get(source),
            "not_counted": [{"id": worker, "reason": why} for named_by, worker, why in shadowed if named_by == source],
        }
        for source, count in fleet.registry.count().items()
    ]
