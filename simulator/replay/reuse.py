"""How much of a trace could be reused at all: what one cache without limits would have held. Pure."""

from simulator.graph.request import BlockTrace


def find_reusable_ratio(trace: BlockTrace) -> float:
    """Share of the prompt tokens in full blocks that stand in an earlier request of the trace."""
    known: set[int] = set()
    reusable_blocks = prompt_tokens = 0
    for request in trace.requests:
        reusable_blocks += sum(block in known for block in request.blocks)
        prompt_tokens += request.prompt_tokens
        known.update(request.blocks)
    return min(1.0, reusable_blocks * trace.block_tokens / prompt_tokens) if prompt_tokens else 0.0
