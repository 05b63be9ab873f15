"""Small traces of block ids, as values and as files."""

import json
from array import array

from simulator.graph.request import BlockRequest, BlockTrace, Trigger, Wait

BLOCK_TOKENS = 8


def after(place, pause_s=0.0, trigger=Trigger.COMPLETION):
    return Wait(place, trigger, pause_s)


def request(name, blocks, *waits, session="s", tail=0, output=8, **more):
    return BlockRequest(
        request_id=name,
        session=session,
        blocks=array("I", blocks),
        prompt_tokens=BLOCK_TOKENS * len(blocks) + tail,
        output_tokens=output,
        waits=waits,
        **more,
    )


def trace_of(*requests):
    return BlockTrace(BLOCK_TOKENS, tuple(requests))


HEAD = {"schema": "dynamo.agentic_mooncake", "version": 2, "block_size": BLOCK_TOKENS}


def write_agentic(path, trace):
    """The trace as a file of agentic Mooncake, version 2."""
    names = [each.request_id for each in trace.requests]
    rows = [
        {
            "request_id": each.request_id, "session_id": each.session, "play_id": each.parent or each.session,
            "input_length": each.prompt_tokens, "output_length": each.output_tokens, "hash_ids": list(each.blocks),
            "not_before_ms": 1000 * each.not_before_s,
            "dependencies": [
                {"request_id": names[wait.place], "trigger": wait.trigger.value, "delay_ms": 1000 * wait.pause_s}
                for wait in each.waits
            ],
        }
        for each in trace.requests
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in (HEAD, *rows)))
    return path


def conversations(count, turns):
    """So many sessions of so many growing turns, all with one head of two blocks."""
    made = []
    for session in range(count):
        for turn in range(turns):
            own = range(1_000 * (session + 1), 1_000 * (session + 1) + 2 * turn + 2)
            waits = (after(len(made) - 1),) if turn else ()
            made.append(request(f"{session}.{turn}", [1, 2, *own], *waits, session=f"s{session}", tail=3))
    return trace_of(*made)
