"""What the first sight of a long prompt does to small requests in the same event loop: it is prepared in a thread."""

import asyncio
import json
import time
from statistics import median
from typing import Any

from benchmarks.talk import Talk
from benchmarks.timing import describe_times
from router.collector import keep_for_good
from router.prompt import ModelPrompts, PromptCatalogue, Prompter
from router.proxy.api import Api
from router.proxy.body import RequestBody

BLOCK_TOKENS = 16
#: Between two small requests.
_PAUSE_S = 0.002
_LONG_BODIES = 8


def make_catalogue(prompter: Prompter) -> PromptCatalogue:
    """A catalogue that serves one model, `m`."""
    catalogue = PromptCatalogue(block_sizes=lambda: (BLOCK_TOKENS,))
    catalogue.put("m", ModelPrompts(prompter, "m"))
    return catalogue


async def prepare(catalogue: PromptCatalogue, data: bytes) -> int:
    """A body in memory to its block hashes; the prompt's length in tokens."""
    body = RequestBody(data, api=Api.CHAT)
    prepared = await catalogue.prepare(body.model, body.prompt_input, len(data))
    if not prepared.chains:
        raise RuntimeError(f"no chain: {prepared.uncredited}")
    return prepared.prompt_tokens


async def measure_first_sight(prompter: Prompter, known_tokens: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Latency of small requests alone and beside first sights, taking turns."""
    catalogue = make_catalogue(prompter)
    bodies = []
    for number in range(_LONG_BODIES):
        talk = Talk(prompter.tokenizer, 1_000 + number)
        talk.grow(known_tokens)
        bodies.append(talk.to_body([]))
    prompter.conversations.clear()
    keep_for_good()
    taken: dict[str, list[dict[str, float]]] = {"alone": [], "beside": []}
    first_s: list[float] = []
    for _ in range(rounds):
        taken["alone"].append(describe_times(await _measure_small(catalogue, seconds)))
        seer = asyncio.create_task(_see(prompter, catalogue, bodies, first_s))
        taken["beside"].append(describe_times(await _measure_small(catalogue, seconds)))
        seer.cancel()
        await asyncio.gather(seer, return_exceptions=True)
    catalogue.close()
    moves_ms = [
        beside["p99_ms"] - alone["p99_ms"] for alone, beside in zip(taken["alone"], taken["beside"], strict=True)
    ]
    return {
        **taken,
        "p99_moved_ms": moves_ms,
        "first_sights": len(first_s),
        "first_sight_p50_ms": 1e3 * median(first_s),
    }


async def _see(prompter: Prompter, catalogue: PromptCatalogue, bodies: list[bytes], taken_s: list[float]) -> None:
    """One first sight after the other until cancelled."""
    while True:
        prompter.conversations.clear()
        prompter.tokenizer.cache.clear()
        start_s = time.perf_counter()
        await prepare(catalogue, bodies[len(taken_s) % len(bodies)])
        taken_s.append(time.perf_counter() - start_s)


async def _measure_small(catalogue: PromptCatalogue, seconds: float) -> list[float]:
    """From the moment a small request was due to its block hashes."""
    taken_s, end_s = [], time.perf_counter() + seconds
    number = 0
    while time.perf_counter() < end_s:
        due_s = time.perf_counter() + _PAUSE_S
        await asyncio.sleep(_PAUSE_S)
        number += 1
        messages = [{"role": "user", "content": f"question {number}: " + "what is the answer " * 50}]
        await prepare(catalogue, json.dumps({"model": "m", "messages": messages}).encode())
        taken_s.append(time.perf_counter() - due_s)
    return taken_s
