"""One turn of a coding agent, body in memory to block hashes: `python -m benchmarks.turn [--json] [--out FILE]`.

A conversation of 100k known tokens (400 KB of JSON: tools, calls, results) gets one call and one result of some 800
tokens more. Beside it, in the same run: what a router does that renders and tokenizes every prompt anew, with
`tokenizers`; the cost by known length; and what the first sight of such a prompt does to small requests in the same
event loop. Wants Qwen3's files (`scripts/fetch-tokenizers`), else takes the toy tokenizer and says so.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import fmean, linear_regression, median, quantiles
from typing import Any

import msgspec
import tokenizers

from prefix_index import block_hashes
from prefix_index.hashing import native_available
from router.prompt import ModelPrompts, PromptCatalogue, Prompter
from router.proxy.body import RequestBody
from router.proxy.known_bodies import KnownBodies
from router.server import SWITCH_INTERVAL_S, keep_for_good
from wire.block_hash import namespace_seed

SEED = 7
BLOCK_TOKENS = 16
KNOWN_TOKENS = 100_000
NEW_TOKENS = 800
LENGTHS = (10_000, 25_000, 50_000, 100_000, 150_000, 200_000)
RESULT_TOKENS = 1_200
#: Turns measured of one conversation.
TURNS = 20
PAUSE_S = 0.002
ROOT = Path(__file__).parents[1]
QWEN = Path(sys.prefix) / "tokenizers/qwen3"
TOY = ROOT / "engine_shim/engine/tokenizer/toy"
WORD_TEXT = (
    "the a file test function def return self import class value error line for in if not and or path read write "
    "module result request response index token cache block route session worker state event batch count limit"
)
WORDS = WORD_TEXT.split()
JOINTS = (" ", " ", " ", " ", "_", ".", ", ", "(", ")\n", "\n    ", ': "', '"\n', " = ", " # ")


class Talk:
    """A seeded agent conversation whose length in tokens is roughly known."""

    def __init__(self, prompter: Prompter, seed: int) -> None:
        self._rng = Random(seed)
        self._tokenizer = prompter.tokenizer
        self.tools = [self._tool(number) for number in range(24)]
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": self._text(3_000)},
            {"role": "user", "content": self._text(300)},
        ]

    def grow(self, tokens: int) -> None:
        """Add calls and results until the conversation has about that many tokens."""
        held = 3_300 + len(self._tokenizer.encode(json.dumps(self.tools)))
        while held < tokens:
            size = min(RESULT_TOKENS, max(50, tokens - held))
            self.messages += self.step(size)
            held += size + 60

    def step(self, tokens: int) -> list[dict[str, Any]]:
        """One call and its result."""
        name = f"c{self._rng.getrandbits(32):x}"
        arguments = json.dumps({"path": self._text(8), "line": self._rng.randrange(900)})
        call = {"id": name, "type": "function", "function": {"name": "read_file_0", "arguments": arguments}}
        return [
            {"role": "assistant", "content": self._text(20), "tool_calls": [call]},
            {"role": "tool", "tool_call_id": name, "content": self._text(tokens)},
        ]

    def to_body(self, more: list[dict[str, Any]]) -> bytes:
        """The request's body as Python clients write it."""
        body = {"model": "m", "messages": [*self.messages, *more], "tools": self.tools, "stream": True}
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()

    def _tool(self, number: int) -> dict[str, Any]:
        properties = {f"field_{place}": {"type": "string", "description": self._text(12)} for place in range(4)}
        function = {
            "name": f"read_file_{number}",
            "description": self._text(60),
            "parameters": {"type": "object", "properties": properties},
        }
        return {"type": "function", "function": function}

    def _text(self, tokens: int) -> str:
        pieces: list[str] = []
        while len(pieces) < 2 * tokens:
            pieces += [self._rng.choice(WORDS), self._rng.choice(JOINTS)]
        text = "".join(pieces)
        return text[: len(text) * tokens // max(1, len(self._tokenizer.encode(text)))]


def describe_times(taken_s: list[float]) -> dict[str, float]:
    """Median and 99th percentile in milliseconds."""
    return {"p50_ms": 1e3 * median(taken_s), "p99_ms": 1e3 * quantiles(taken_s, n=100)[98]}


def new_catalogue(prompter: Prompter) -> PromptCatalogue:
    """A catalogue that serves one model."""
    catalogue = PromptCatalogue(block_sizes=lambda: (BLOCK_TOKENS,))
    catalogue.put("m", ModelPrompts(prompter, "m"))
    return catalogue


async def measure_turns(prompter: Prompter, tokens: int, repeats: int, full: Callable[[bytes], int]) -> dict[str, Any]:
    """Turns of several conversations of that length, each going on from the one before."""
    catalogue, bodies = new_catalogue(prompter), KnownBodies()
    known, new, body_bytes = [], [], []
    wall_s, cpu_s = [], []
    for number in range(max(1, repeats // TURNS)):
        talk = Talk(prompter, SEED + 100 * number)
        talk.grow(tokens)
        before = await _prepare(catalogue, talk.to_body([]), bodies)
        for _ in range(TURNS):
            talk.messages += talk.step(NEW_TOKENS - 60)
            data = talk.to_body([])
            start_s, start_cpu_s = time.perf_counter(), time.thread_time()
            prepared = await _prepare(catalogue, data, bodies)
            wall_s.append(time.perf_counter() - start_s)
            cpu_s.append(time.thread_time() - start_cpu_s)
            known.append(before)
            new.append(prepared - before)
            body_bytes.append(len(data))
            before = prepared
        if before != full(data):
            raise RuntimeError("the turn's ids differ from a full rendering and tokenization")
    catalogue.close()
    return {
        "known_tokens": fmean(known),
        "new_tokens": fmean(new),
        "body_bytes": fmean(body_bytes),
        "turns": len(known),
        "wall": describe_times(wall_s),
        "cpu": describe_times(cpu_s),
    }


async def _prepare(catalogue: PromptCatalogue, data: bytes, bodies: KnownBodies | None = None) -> int:
    body = RequestBody(data, is_chat=True, known=bodies)
    prepared = await catalogue.prepare(body.model, body.prompt_input, len(data))
    if not prepared.chains:
        raise RuntimeError(f"no chain: {prepared.uncredited}")
    return prepared.prompt_tokens


def make_reference(prompter: Prompter, folder: Path) -> Callable[[bytes], int]:
    """Everything anew: decode, render, `tokenizers`, hash; gives the prompt's length."""
    model = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    template = prompter.template
    if template is None:
        raise RuntimeError("the tokenizer has no template")

    def full(data: bytes) -> int:
        body = msgspec.json.decode(data)
        text = template.render(body["messages"], body["tools"])
        ids = model.encode_batch_fast([text], add_special_tokens=False)[0].ids
        block_hashes(ids, BLOCK_TOKENS, namespace_seed("m"))
        return len(ids)

    return full


async def measure_first_sight(prompter: Prompter, seconds: float) -> dict[str, Any]:
    """Latency of small requests in a loop, alone and while long prompts are seen for the first time."""
    catalogue = new_catalogue(prompter)
    bodies = []
    for number in range(8):
        talk = Talk(prompter, 1_000 + number)
        talk.grow(KNOWN_TOKENS)
        bodies.append(talk.to_body([]))
    prompter.conversations.clear()
    keep_for_good()
    alone = await _measure_small(catalogue, seconds)
    stop, seen = asyncio.Event(), 0
    first_s: list[float] = []

    async def see() -> None:
        nonlocal seen
        while not stop.is_set():
            prompter.conversations.clear()
            prompter.tokenizer.cache.clear()
            start_s = time.perf_counter()
            await _prepare(catalogue, bodies[seen % len(bodies)])
            first_s.append(time.perf_counter() - start_s)
            seen += 1

    task = asyncio.create_task(see())
    beside = await _measure_small(catalogue, seconds)
    stop.set()
    await task
    catalogue.close()
    moved_ms = describe_times(beside)["p99_ms"] - describe_times(alone)["p99_ms"]
    return {
        "small_alone": describe_times(alone),
        "small_beside": describe_times(beside),
        "p99_moved_ms": moved_ms,
        "first_sights": seen,
        "first_sight_p50_ms": 1e3 * median(first_s),
    }


async def _measure_small(catalogue: PromptCatalogue, seconds: float) -> list[float]:
    """From the moment a small request was due to its block hashes."""
    taken_s, end_s = [], time.perf_counter() + seconds
    number = 0
    while time.perf_counter() < end_s:
        due_s = time.perf_counter() + PAUSE_S
        await asyncio.sleep(PAUSE_S)
        number += 1
        messages = [{"role": "user", "content": f"question {number}: " + "what is the answer " * 50}]
        await _prepare(catalogue, json.dumps({"model": "m", "messages": messages}).encode())
        taken_s.append(time.perf_counter() - due_s)
    return taken_s


def describe_run(folder: Path) -> dict[str, Any]:
    """Where the figures come from."""
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "commit": git.stdout.strip() or None,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "native": native_available(),
        "tokenizer": folder.name,
        "seed": SEED,
    }


async def measure(folder: Path, repeats: int, seconds: float) -> dict[str, Any]:
    """All figures."""
    run = describe_run(folder)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    prompter = Prompter.load(folder)
    full = make_reference(prompter, folder)
    keep_for_good()
    turns = [await measure_turns(prompter, tokens, repeats, full) for tokens in LENGTHS]
    turn = next(one for tokens, one in zip(LENGTHS, turns, strict=True) if tokens == KNOWN_TOKENS)
    talk = Talk(prompter, SEED)
    talk.grow(KNOWN_TOKENS)
    anew_s = []
    for _ in range(10):
        data, start_s = talk.to_body(talk.step(NEW_TOKENS - 60)), time.thread_time()
        full(data)
        anew_s.append(time.thread_time() - start_s)
    lengths = [one["known_tokens"] / 1_000 for one in turns]
    slope, _ = linear_regression(lengths, [1e3 * one["cpu"]["p50_ms"] for one in turns])
    return {
        "run": {**run, "load_after": os.getloadavg()[0]},
        "turn": turn,
        "everything_anew_cpu": describe_times(anew_s),
        "ratio_to_everything_anew": median(anew_s) * 1e3 / turn["cpu"]["p50_ms"],
        "us_per_1000_known_tokens": slope,
        "by_known_tokens": turns,
        "first_sight": await measure_first_sight(prompter, seconds),
    }


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON (as always)")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each part of the first-sight measurement")
    parser.add_argument("--tokenizer", type=Path, help="folder to use")
    options = parser.parse_args()
    folder = options.tokenizer or (QWEN if (QWEN / "tokenizer.json").is_file() else TOY)
    result = asyncio.run(measure(folder, options.repeats, options.seconds))
    text = json.dumps(result, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
