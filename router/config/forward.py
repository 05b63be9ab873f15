"""Paths of workers that clients may reach as they are, beyond the APIs that the router knows. None by default."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from router.config.model import ConfigModel, Text

#: Segments of which an engine's paths to its operator are made (SGLang, vLLM); none is ever passed on.
OPERATORS_SEGMENTS = frozenset(
    {
        "abort_request", "abort_requests", "attach_hicache", "clear_hicache_storage_backend", "close_session",
        "collective_rpc", "configure_logging", "continue_generation", "destroy_weights_update_group",
        "detach_hicache", "docs", "dump_expert_distribution_record", "finish_weight_update", "flush_cache",
        "freeze_gc", "get_server_info", "get_weights_by_name", "hicache", "init_weight_transfer_engine",
        "init_weights_send_group_for_remote_instance", "init_weights_update_group", "is_paused", "is_sleeping",
        "kv_event_sources", "kv_hints", "load_lora_adapter", "load_lora_adapter_from_tensors", "metrics",
        "open_session", "openapi.json", "pause", "pause_generation", "redoc", "release_memory_occupation",
        "reset_encoder_cache", "reset_mm_cache", "reset_prefix_cache", "resume", "resume_memory_occupation",
        "scale_elastic_ep", "send_weights_to_remote_instance", "server_info", "set_internal_state",
        "set_trace_level", "shutdown", "sleep", "slow_down", "start_expert_distribution_record", "start_profile",
        "start_weight_update", "stop_expert_distribution_record", "stop_profile", "unload_lora_adapter",
        "update_weight_version", "update_weights", "update_weights_from_disk", "update_weights_from_distributed",
        "update_weights_from_ipc", "update_weights_from_tensor", "wake_up",
    }
)  # fmt: skip
_SAFE_PATH = re.compile(r"(?:/[A-Za-z0-9._~:@!$&'()*+,=\-]+)+/?")


def find_path_problem(path: str) -> str | None:
    """Why a path is never passed on to a worker, in words; None where it may be.

    Args:
        path: Decoded, as routes see it; what is not plain after that is refused, so that no spelling hides another.
    """
    if _SAFE_PATH.fullmatch(path) is None:
        return "a path is made of / and segments of letters, digits and -._~:@!$&'()*+,="
    for segment in path.strip("/").split("/"):
        if not segment.strip("."):
            return "a path has no . or .. in it"
        if segment.lower() in OPERATORS_SEGMENTS:
            return f"{segment!r} is for the operator of an engine"
    return None


def _check_prefix(prefix: str) -> str:
    problem = find_path_problem(prefix)
    if problem is None and prefix.strip("/") == "v1":
        problem = "name what is below /v1: the router has paths of its own there"
    if problem is not None:
        raise PydanticCustomError("bad_prefix", "{problem}", {"key": "prefixes", "value": prefix, "problem": problem})
    return prefix.rstrip("/")


Prefix = Annotated[Text, AfterValidator(_check_prefix)]


class ForwardConfig(ConfigModel):
    """What is passed on."""

    #: Paths, each with all that is below it, such as /v1/audio; an engine's paths to its operator never are.
    prefixes: Annotated[tuple[Prefix, ...], Field(max_length=100)] = ()


def is_below(path: str, prefixes: tuple[str, ...]) -> bool:
    """Whether a path is one of these or below one."""
    return any(path == prefix or path.startswith(f"{prefix}/") for prefix in prefixes)
