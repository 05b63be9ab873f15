"""Make a trace smaller before it is sent: fewer sessions and requests, shorter prompts, shorter pauses. Pure."""

from array import array

from msgspec import Struct
from msgspec.structs import replace

from simulator.graph.request import BlockRequest, BlockTrace, Wait


class Cut(Struct, frozen=True, kw_only=True):
    """What is kept; None keeps all."""

    #: Conversations kept, the first ones; sub-agents come along and are not counted.
    sessions: int | None = None
    #: Requests kept, the first ones.
    requests: int | None = None
    #: Longer prompts are left out, in recorded tokens.
    max_prompt_tokens: int | None = None
    #: Longest answer asked for, in tokens after scaling.
    max_output_tokens: int | None = None
    #: Multiplies prompts and answers, above 0 and at most 1.
    prompt_ratio: float = 1.0
    #: Multiplies pauses and the times at which sessions start.
    time_ratio: float = 1.0
    #: Longest pause kept, seconds, after scaling.
    max_pause_s: float = float("inf")


def cut_trace(trace: BlockTrace, cut: Cut) -> BlockTrace:
    """The requests that are kept, in their order. What waits for a request that was left out is left out too.

    Prompts keep their blocks: `prompt_ratio` is applied where they are written.
    """
    roots: set[str] = set()
    places: dict[int, int] = {}
    kept: list[BlockRequest] = []
    for place, request in enumerate(trace.requests):
        if cut.requests is not None and len(kept) >= cut.requests:
            break
        fits = cut.max_prompt_tokens is None or request.prompt_tokens <= cut.max_prompt_tokens
        if not fits or any(wait.place not in places for wait in request.waits) or not _takes(request, roots, cut):
            continue
        places[place] = len(kept)
        kept.append(_scale(request, places, cut))
    return replace(trace, requests=tuple(kept))


def _takes(request: BlockRequest, roots: set[str], cut: Cut) -> bool:
    """Whether the conversation is one of those kept; a request without one is a conversation of its own."""
    root = request.parent or request.session or f"request {request.request_id}"
    if root not in roots:
        if cut.sessions is not None and len(roots) >= cut.sessions:
            return False
        roots.add(root)
    return True


def _scale(request: BlockRequest, places: dict[int, int], cut: Cut) -> BlockRequest:
    output_tokens = max(1, round(request.output_tokens * cut.prompt_ratio))
    if cut.max_output_tokens is not None:
        output_tokens = min(output_tokens, cut.max_output_tokens)
    waits = tuple(
        Wait(places[wait.place], wait.trigger, min(wait.pause_s * cut.time_ratio, cut.max_pause_s))
        for wait in request.waits
    )
    return replace(
        request,
        blocks=array("I", request.blocks),
        output_tokens=output_tokens,
        not_before_s=request.not_before_s * cut.time_ratio,
        waits=waits,
    )
