"""One turn of a coding agent, body in memory to block hashes: `python -m benchmarks.turn [--json] [--quick]`.

A conversation of 100k known tokens (400 KB of JSON: tools, calls, results) gets one call and one result of some 800
tokens more. Beside it, in the same run: what a router does that renders and tokenizes every prompt anew, with
`tokenizers`; the cost by known length; what the first sight of such a prompt does to small requests in the same event
loop (`first_sight`); what a flood of cache events does to a router's requests (`beside_events`). Wants Qwen3's files
(`scripts/fetch-tokenizers`), else takes the toy tokenizer and says so.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, linear_regression, median
from typing import Any

import msgspec
import tokenizers

from benchmarks import beside_events, first_sight
from benchmarks.first_sight import BLOCK_TOKENS, make_catalogue, prepare
from benchmarks.real_text import TOY, find_tokenizer
from benchmarks.rows import Aim, Row, make_row
from benchmarks.run_facts import SEED, describe_run, finish, make_parser, progress
from benchmarks.talk import CALL_TOKENS, Talk
from benchmarks.timing import describe_times
from prefix_index import block_hashes
from router.collector import keep_for_good
from router.prompt import Prompter
from router.server import SWITCH_INTERVAL_S
from wire.block_hash import namespace_seed

KNOWN_TOKENS = 100_000
NEW_TOKENS = 800
LENGTHS = (10_000, 25_000, 50_000, 100_000, 150_000, 200_000)
QUICK_LENGTHS = (20_000, 30_000)
#: Turns measured of one conversation.
TURNS = 20
ANEW = "everything rendered and tokenized anew"


async def measure_turns(prompter: Prompter, tokens: int, repeats: int, full: Callable[[bytes], int]) -> dict[str, Any]:
    """Turns of several conversations of that length, each going on from the one before."""
    catalogue = make_catalogue(prompter)
    known, new, body_bytes = [], [], []
    wall_s, cpu_s = [], []
    for number in range(max(1, repeats // TURNS)):
        talk = Talk(prompter.tokenizer, SEED + 100 * number)
        # The turns measured lie around the length wanted.
        talk.grow(tokens - TURNS * NEW_TOKENS // 2)
        before = await prepare(catalogue, talk.to_body([]))
        for _ in range(TURNS):
            talk.messages += talk.step(NEW_TOKENS - CALL_TOKENS)
            data = talk.to_body([])
            start_s, start_cpu_s = time.perf_counter(), time.thread_time()
            prepared = await prepare(catalogue, data)
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


def measure_anew(prompter: Prompter, known_tokens: int, full: Callable[[bytes], int]) -> list[float]:
    """CPU seconds of such a turn where nothing is kept."""
    talk, taken_s = Talk(prompter.tokenizer, SEED), []
    talk.grow(known_tokens)
    for _ in range(10):
        data, start_s = talk.to_body(talk.step(NEW_TOKENS - CALL_TOKENS)), time.thread_time()
        full(data)
        taken_s.append(time.thread_time() - start_s)
    return taken_s


async def measure_prompts(folder: Path, options: argparse.Namespace) -> tuple[list[Row], dict[str, Any]]:
    """Everything within one process."""
    lengths = QUICK_LENGTHS if options.quick else LENGTHS
    known_tokens = lengths[-1] if options.quick else KNOWN_TOKENS
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    prompter = Prompter.load(folder)
    full = make_reference(prompter, folder)
    keep_for_good()
    turns = []
    for tokens in lengths:
        progress(f"turns at {tokens:,} known tokens")
        turns.append(await measure_turns(prompter, tokens, options.repeats, full))
    turn = turns[lengths.index(known_tokens)]
    anew_s = measure_anew(prompter, known_tokens, full)
    slope, _ = linear_regression(
        [one["known_tokens"] / 1_000 for one in turns], [1e3 * one["cpu"]["p50_ms"] for one in turns]
    )
    progress("first sights beside small requests")
    sight = await first_sight.measure_first_sight(prompter, known_tokens, options.seconds, options.rounds)
    sizes = (turn["body_bytes"] / 1e3, turn["known_tokens"], turn["new_tokens"])
    words = "turn of {:,.0f} KB, {:,.0f} tokens known, {:,.0f} new".format(*sizes)
    shortest, longest = (turns[place]["known_tokens"] for place in (0, -1))
    rows = [
        _against_anew(f"{words}: p50", turn["wall"]["p50_ms"], anew_s, Aim(at_most=2.0)),
        _against_anew(f"{words}: p99", turn["wall"]["p99_ms"], anew_s, Aim(at_most=6.0)),
        make_row(
            f"each 1,000 tokens known, from {shortest:,.0f} to {longest:,.0f}", slope, "us", aim=Aim(at_most=5.0),
            headline=True,
        ),
        make_row(
            "p99 of small requests moves while such prompts are seen for the first time by", sight["p99_moved_ms"],
            "ms", reference="their p99 alone", reference_value=median(one["p99_ms"] for one in sight["alone"]),
            gives_ratio=False, aim=Aim(at_most=5.0), headline=True,
        ),
    ]  # fmt: skip
    return rows, {"turn": turn, "anew_cpu": describe_times(anew_s), "by_known_tokens": turns, "first_sight": sight}


def _against_anew(what: str, value_ms: float, anew_s: list[float], aim: Aim) -> Row:
    return make_row(what, value_ms, "ms", reference=ANEW, reference_value=1e3 * median(anew_s), aim=aim, headline=True)


def describe_beside_events(told: dict[str, Any]) -> list[Row]:
    """Rows of how much latencies move beside events."""
    drained = told["drained"]
    rows = []
    for state in ("routed", "routed_eighth", "routed_fourfold"):
        words = f"moves beside {told[state]['blocks_per_s']:,.0f} blocks/s of events by"
        aim = Aim(at_most=5.0) if state == "routed" else None
        rows += [
            make_row(
                f"p99 of requests of 1 KB {words}", told[state]["small_p99_ms_moved"], "ms",
                reference=beside_events.REFERENCE, reference_value=median(drained["small_p99_ms_moved"]), aim=aim,
                gives_ratio=False, headline=True,
            ),
            make_row(
                f"p50 of turns {words}", told[state]["turns_p50_ms_moved"], "ms",
                reference=beside_events.REFERENCE, reference_value=drained["turns_p50_ms_moved"],
                gives_ratio=False,
            ),
            make_row(
                f"CPU of the router for each of their messages at {told[state]['blocks_per_s']:,.0f} blocks/s",
                told[state]["router_cpu_us_a_message"], "us",
            ),
        ]  # fmt: skip
    return rows


def main() -> int:
    """Read the flags and measure."""
    parser = make_parser(__doc__, repeats=200)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each part that is measured by time")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of those parts")
    parser.add_argument("--tokenizer", type=Path, help="folder to use")
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.seconds, options.rounds = 1, 0.3, 1
    folder = options.tokenizer or (TOY if options.quick else find_tokenizer())
    facts = describe_run(options, tokenizer=folder.name, seconds=options.seconds, rounds=options.rounds)
    rows, details = asyncio.run(measure_prompts(folder, options))
    known_tokens = QUICK_LENGTHS[-1] if options.quick else KNOWN_TOKENS
    told = asyncio.run(beside_events.measure_beside_events(folder, known_tokens, options.seconds, options.rounds))
    details["beside_events"] = told
    return finish("turn", options, facts, [*rows, *describe_beside_events(told)], details)


if __name__ == "__main__":
    sys.exit(main())
