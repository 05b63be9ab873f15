"""Speed and size of the prefix index: `python -m benchmarks.index [--json] [--quick]`.

Figures are CPU time. Every one stands beside references measured in the same run, right after it: the index in
Python; and ai-dynamo-runtime in an interpreter of its own (`--peer-python`; `index_peer` says how to install it):
its RadixTree, which gets JSON with tokens already hashed where ours gets the bytes that an engine publishes, and its
`dynamo.indexer`, which reads the same bytes off ZeroMQ. Without it those references are left out, and the run says so.
Ratios above 1 are in our favour.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import index_events, index_match, index_root, zmq_indexers
from benchmarks.real_text import TOY, find_tokenizer, read_tokens
from benchmarks.rows import Aim, Row, make_row
from benchmarks.run_facts import describe_run, finish, make_parser, progress

PEER = Path("~/.peers/dyn/bin/python").expanduser()
PEER_DISTRIBUTION = "ai-dynamo-runtime"
BINDING, INDEXER = "Dynamo's binding", "Dynamo's ZMQ indexer"
TEXT_TOKENS = 2_000_000
QUICK_SCALE = 50
#: Aims by blocks an event and pairs: ratio to the peer's binding.
APPLY_AIMS = (10.0, 8.0, 5.0, 1.0)
INDEXER_AIM = 3.0
MATCH_AIMS_US = (5.0, 10.0)
HASH_AIM_MS = 0.1
BYTES_AIMS = {"shared_by_16": 45.0, "disjoint": 80.0}


class Peer:
    """The peer's interpreter; answers nothing where it cannot run."""

    def __init__(self, python: Path, repeats: int) -> None:
        self.python = python
        self._repeats = repeats
        self.missing: str | None = None
        told = self.ask("version", PEER_DISTRIBUTION)
        self.name = None if told is None else f"{PEER_DISTRIBUTION} {told}"

    def ask(self, what: str, case: Any) -> Any:
        """One case; None where the peer is missing."""
        if self.missing is not None:
            return None
        script = Path(__file__).with_name("index_peer.py")
        asked = json.dumps({what: case, "repeats": self._repeats})
        try:
            done = subprocess.run([self.python, script, asked], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.missing = (
                f"{type(error).__name__}: no {PEER_DISTRIBUTION}; benchmarks/index_peer.py says how to install it"
            )
            progress(self.missing)
            return None
        return json.loads(done.stdout)[what]

    def find_median(self, what: str, case: Any) -> float | None:
        """The median of what it measured."""
        told = self.ask(what, case)
        return None if told is None else median(told) if isinstance(told, list) else float(told)


class IndexRun:
    """One run: rows and details so far."""

    def __init__(self, tokens: Sequence[int], peer: Peer, repeats: int, scale: int) -> None:
        self._tokens, self._peer, self._repeats, self._scale = tokens, peer, repeats, scale
        #: How many of a list of cases; a quick run takes the first.
        self._some = None if scale == 1 else 1
        self.rows: list[Row] = []
        self.details: dict[str, Any] = {"apply": [], "match": [], "by_holders": [], "by_changes": []}

    def measure_memory(self) -> None:
        """Bytes a pair; first of all."""
        pairs = index_events.MEMORY_PAIRS // self._scale
        self.details["memory"] = index_events.measure_memory(self._tokens, pairs)
        for name, (holders, copies) in {"shared_by_16": (16, 16), "disjoint": (128, 1)}.items():
            taken = self.details["memory"][name]
            taken["peer_resident_bytes"] = theirs = self._peer.find_median("memory", [pairs, holders, copies])
            words = f"memory a (block, holder) pair, {name.replace('_', ' ')}"
            aim = Aim(at_most=BYTES_AIMS[name])
            self._add(words, taken["bytes"], "bytes", BINDING, theirs, aim=aim, headline=True)

    def measure_events(self) -> None:
        """Events from wire bytes in memory."""
        for case, ratio in zip(index_events.CASES, APPLY_AIMS, strict=True):
            per_event, pairs, holders = case[0], case[1] // self._scale, case[2]
            progress(f"events of {per_event} blocks, {pairs:,} pairs")
            taken = index_events.measure_apply(self._tokens, self._repeats, (per_event, pairs, holders))
            theirs = taken["peer_events_per_s"] = self._peer.ask("apply", [per_event, pairs, holders])
            self.details["apply"].append(taken)
            words = (
                f"events of {per_event} block{'s' * (per_event > 1)} into the index, {pairs:,} pairs, {holders} holders"
            )
            reference = median(theirs) if theirs else None
            aim = Aim(at_least=ratio, of_ratio=True)
            self._add(words, taken["events_per_s"], "events/s", BINDING, reference, more=True, aim=aim, headline=True)

    def measure_zmq(self) -> None:
        """Events of 100 and of 16 blocks over ZeroMQ, and those of 100 in memory beside the peer's indexer."""
        blocks = index_events.MEMORY_PAIRS // self._scale
        for per_event in (100, 16)[: self._some]:
            progress(f"events of {per_event} blocks over ZeroMQ")
            ours = zmq_indexers.measure_feed(self._tokens, per_event, blocks)
            theirs = None
            if self._peer.missing is None:
                theirs = zmq_indexers.measure_indexer(self._peer.python, self._tokens, per_event, blocks)
            self.details[f"zmq_{per_event}"] = {"feed": ours, "peer_indexer": theirs}
            rate = None if theirs is None else theirs["events_per_s"]
            if per_event == 100:
                memory = self.details["apply"][-1]["events_per_s"]
                aim = Aim(at_least=INDEXER_AIM, of_ratio=True)
                words = "the same events of 100 blocks, in memory, beside a process that reads them off ZeroMQ"
                self._add(words, memory, "events/s", INDEXER, rate, more=True, aim=aim, headline=True)
            words = f"events of {per_event} blocks through the router's feed, ZeroMQ to index"
            self._add(words, ours["events_per_s"], "events/s", INDEXER, rate, more=True, headline=True)

    def measure_match(self) -> None:
        """Matches by length, holders and changes."""
        for blocks, aim_us in list(zip(index_match.MATCH_BLOCKS, MATCH_AIMS_US, strict=True))[: self._some]:
            progress(f"match of {blocks} blocks")
            taken = index_match.measure_match(self._tokens, self._repeats, blocks)
            theirs = self._peer.find_median("match", [blocks, index_match.draw_depths(blocks)])
            taken["peer_us"] = theirs
            self.details["match"].append(taken)
            words = f"match of {blocks:,} blocks at 64 holders, 8 deep, 16 with a hole"
            self._add(words, taken["us"], "us", BINDING, theirs, aim=Aim(at_most=aim_us), headline=True)
        changes = index_match.FLEET_CHANGES
        by_holders = [(max(changes, holders // self._scale), changes) for holders in index_match.FLEETS[: self._some]]
        by_changes = [(index_match.CHANGED_FLEET, changes) for changes in index_match.CHANGES[: self._some]]
        for name, fleets in (("by_holders", by_holders), ("by_changes", by_changes)):
            for holders, count in fleets:
                progress(f"match at {holders} holders that change {count} times")
                taken = index_match.measure_fleet(self._tokens, self._repeats, holders, count)
                self.details[name].append(taken)
                words = f"match at {holders:,} holders, all found, that change {count} time{'s' * (count > 1)}"
                self._add(words, taken["us"], "us")
                self._add(words + ", without handing each to Python", taken["us_without_result_dict"], "us")

    def measure_root(self) -> None:
        """Removing and storing the root."""
        descendants = index_root.DESCENDANTS // self._scale
        taken = self.details["root"] = index_root.measure_root(self._tokens, self._repeats, descendants)
        words = f"removing and storing again the root of {descendants:,} descendants"
        self._add(words, taken["remove_and_store_us"], "us", headline=True)
        calls = {"event": "event of another holder", "match": "match of another prompt", "match_of_it": "match of it"}
        for name, call in calls.items():
            alone = median(taken["worst_call_alone_us"][name])
            what = f"the longest that any {call} takes meanwhile"
            self._add(what, taken["worst_call_us"][name], "us", "such calls alone", alone, headline=True)

    def measure_hash(self) -> None:
        """Hashes of a long prompt."""
        taken = self.details["hash"] = index_match.measure_hash(self._tokens, self._repeats)
        theirs = taken["peer_ms"] = self._peer.find_median("hash", index_match.HASH_TOKENS)
        words = {
            "array": "array",
            "array_slice": "slice of an array",
            "list": "list",
            "prompt": "prompt's tuple of hashes",
        }
        for name, form in words.items():
            what = f"hash of {index_match.HASH_TOKENS:,} tokens, {form}"
            aim = Aim(at_most=HASH_AIM_MS)
            self._add(what, taken["ms"][name], "ms", BINDING, theirs, aim=aim, headline=name == "array")

    def _add(
        self, what: str, values: float | Sequence[float], unit: str, reference: str | None = None,
        theirs: float | None = None, *, more: bool = False, aim: Aim | None = None, headline: bool = False,
    ) -> None:  # fmt: skip
        row = make_row(
            what, values, unit, reference=reference, reference_value=theirs, more_is_better=more, aim=aim,
            headline=headline,
        )  # fmt: skip
        self.rows.append(row)


def measure(options: argparse.Namespace) -> int:
    """Everything."""
    scale = QUICK_SCALE if options.quick else 1
    peer = Peer(options.peer_python, min(3, options.repeats))
    facts = describe_run(
        options, tokenizer=(TOY if options.quick else find_tokenizer()).name, peer=peer.name, peer_missing=peer.missing
    )
    tokens = read_tokens(TEXT_TOKENS // min(scale, 10), TOY if options.quick else find_tokenizer())
    run = IndexRun(tokens, peer, options.repeats, scale)
    run.measure_memory()
    run.measure_events()
    run.measure_zmq()
    run.measure_match()
    run.measure_root()
    run.measure_hash()
    return finish("index", options, facts, run.rows, run.details)


def main() -> int:
    """Read the flags and measure."""
    parser = make_parser(__doc__, repeats=5)
    parser.add_argument("--peer-python", type=Path, default=PEER, help="interpreter that has ai-dynamo-runtime")
    options = parser.parse_args()
    if options.quick:
        options.repeats = 1
    try:
        import_module("prefix_index._core")
    except ImportError:
        parser.error("the native module was not built")
    return measure(options)


if __name__ == "__main__":
    sys.exit(main())
