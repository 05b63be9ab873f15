"""What a sidecar says of its engine and itself: the bodies of `/server_info` and `/health`."""

from typing import Any

import msgspec

from engine_shim.sidecar.hub import RankView
from engine_shim.sidecar.service import SidecarService
from wire.block_hash import namespace_seed
from wire.snapshot import SNAPSHOT_VERSION


def describe(service: SidecarService) -> dict[str, Any] | None:
    """Facts in SGLang's names and a `sidecar` block; None before the engine was found."""
    facts, hub = service.facts, service.hub
    if facts is None or hub is None:
        return None
    views, sizes = hub.to_views(), sorted(hub.block_sizes())
    block_tokens = facts.block_tokens or (sizes[0] if sizes else None)
    layout = service.settings.layout
    told = {
        "served_model_name": facts.models[0],
        "page_size": block_tokens,
        "dp_size": facts.dp_size,
        "max_total_num_tokens": facts.capacity_tokens,
        "kv_events": _describe_events(service, block_tokens),
        "incarnation": service.incarnation,
        "sidecar": {
            "dialect": facts.dialect,
            "model": service.model,
            "seed": namespace_seed(service.model, bigram=facts.is_bigram),
            "block_sizes": sizes,
            "incarnation": service.incarnation,
            "snapshot_url": "/snapshot/{dp_rank}",
            "snapshot_version": SNAPSHOT_VERSION,
            "tokenizer": facts.info.get("tokenizer_path"),
            "redis_name": None if service.redis is None else service.settings.redis_name,
            "layout": None if layout is None else msgspec.to_builtins(layout.groups),
            "components": [dict(group) for group in {repr(one): one for view in views for one in view.groups}.values()],
            "ranks": [_describe_rank(view) for view in views],
        },
    }
    return facts.info | {key: value for key, value in told.items() if value is not None}


def describe_health(service: SidecarService) -> dict[str, Any]:
    """Whether all is well, and why not."""
    ranks = [] if service.hub is None else [_describe_rank(view) for view in service.hub.to_views()]
    told: dict[str, Any] = {"ready": service.is_ready, "problem": service.problem, "ranks": ranks}
    return told if service.redis is None else told | {"redis_problem": service.redis.problem}


def _describe_events(service: SidecarService, block_tokens: int | None) -> dict[str, Any]:
    hub, facts = service.hub, service.facts
    assert hub is not None  # noqa: S101  (asked by the caller)
    assert facts is not None  # noqa: S101
    ports = hub.ports
    return {
        "publisher": "zmq",
        "endpoint_host": ports.host,
        "endpoint_port_base": ports.events_base,
        "topic": service.settings.topic,
        "block_size": block_tokens,
        "dp_size": facts.dp_size,
        "replay_endpoint_host": ports.host,
        "replay_endpoint_port_base": ports.replay_base,
        "replay_buffer_steps": service.settings.buffer_batches,
    }


def _describe_rank(view: RankView) -> dict[str, Any]:
    return {
        "dp_rank": view.dp_rank,
        "trust": view.trust.value,
        "engine_seq": view.engine_seq,
        "next_seq": view.next_seq,
        "engine_incarnation": view.engine_lives,
        "blocks": view.blocks,
    }
