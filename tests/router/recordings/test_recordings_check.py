"""The index against real engines: the count of each class for every capture, and mutations that must be found."""

import base64
import json
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from prefix_index import Change, NaivePrefixIndex
from prefix_index.base import CopyRule
from prefix_index.components import STANDARD, State, Window
from prefix_index.hashing import native_available
from prefix_index.native import NativePrefixIndex
from router.recordings.capture import CaptureError, read_capture
from router.recordings.check import Class, RecordingCheck
from router.recordings.command import recordings
from wire import frames
from wire.dialects import vllm
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch, Medium
from wire.ids import Target

CAPTURES = Path(__file__).parents[2] / "fixtures" / "recordings"
COUNTS = {
    "vllm016_full_reuse_array_form.jsonl": {Class.EXACT: 12, Class.CHOICES: 1, Class.SALT_BLIND: 1},
    "vllm032_dp2.jsonl": {Class.EXACT: 4, Class.RACED: 1, Class.UNPINNED: 11},
    "vllm032_full_evict.jsonl": {Class.EXACT: 17},
    "vllm032_full_plain.jsonl": {Class.EXACT: 6},
    "vllm032_full_replay.jsonl": {Class.EXACT: 10},
    "vllm032_full_report_mode_full.jsonl": {Class.EXACT: 5},
    "vllm032_full_reuse.jsonl": {Class.EXACT: 12, Class.RACED: 1, Class.CHOICES: 1},
    "vllm032_http_shapes.jsonl": {Class.EXACT: 6},
    "vllm032_hybrid_gdn_plus_full_block1056.jsonl": {Class.EXACT: 9},
    "vllm032_hybrid_sliding_plus_full.jsonl": {Class.EXACT: 9},
}


def check(lines, index=None) -> Counter[Class]:
    return RecordingCheck(read_capture("capture", lines), index).run().counts


def read_lines(name: str) -> list[str]:
    return (CAPTURES / name).read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", COUNTS)
def test_a_capture_has_these_classes(name):
    assert check(read_lines(name)) == COUNTS[name]


@pytest.mark.skipif(not native_available(), reason="the native module was not built (no C++ compiler)")
@pytest.mark.parametrize("name", COUNTS)
def test_the_native_index_gives_the_same_classes(name):
    if "hybrid" in name and "groups" not in NativePrefixIndex.supports:
        pytest.skip("the native index does not declare 'groups'")
    assert check(read_lines(name), NativePrefixIndex()) == COUNTS[name]


def test_every_capture_is_counted():
    assert {path.name for path in CAPTURES.glob("*.jsonl")} == set(COUNTS)


@pytest.mark.shared
def test_the_shared_captures_are_explained(shared_dir):
    files = sorted(str(path) for path in (shared_dir / "recordings").glob("*.jsonl"))
    assert CliRunner().invoke(recordings, ["check", *files]).exit_code == 0


# Captures made here, for what the real ones do not show.

PROMPT = tuple(range(200, 233))  # 8 blocks of 4 and one token


class Tape:
    """Writes a capture line by line."""

    def __init__(self, version="0.32") -> None:
        self.version, self.lines, self.at_s, self.number, self.seqs = version, [], 1.0, 0, Counter()

    def _write(self, **entry):
        self.at_s += 0.1
        self.lines.append(json.dumps({"t": entry.pop("t", self.at_s), **entry}))

    def events(self, *events, socket=0, seq=None):
        seq = self.seqs[socket] if seq is None else seq
        self.seqs[socket] = seq + 1
        payload = vllm.encode_batch(EventBatch(ts_s=self.at_s + 0.1, events=events, dp_rank=socket), self.version)
        parts = [base64.b64encode(part).decode() for part in frames.encode_live("kv", seq, payload)]
        self._write(k="msg", sub=socket, frames=parts)

    def ask(self, cached, *, tokens=PROMPT, rank=None, between=(), **body):
        headers = {} if rank is None else {"X-data-parallel-rank": str(rank)}
        self._write(k="request", i=self.number, headers=headers, body=body)
        for events in between:
            self.events(*events)
        usage = {"prompt_tokens": len(tokens), "prompt_tokens_details": {"cached_tokens": cached}}
        self._write(k="response", i=self.number, usage=usage, body={"prompt_token_ids": list(tokens)})
        self.number += 1
        return self


def blocks(first, last, **fields) -> BlockStored:
    return BlockStored(
        block_hashes=tuple(range(first, last + 1)),
        parent_block_hash=first - 1 or None,
        token_ids=PROMPT[4 * (first - 1) : 4 * last],
        block_tokens=4,
        **fields,
    )


FULL = {"group_idx": 1, "group_kind": "full_attention"}
WINDOW = {"group_idx": 0, "group_kind": "sliding_window", "window_tokens": 8}
STATE = {"group_idx": 0, "group_kind": "mamba"}


def window_step(first, last, *, listed) -> BlockStored:
    """A step that names only its last blocks."""
    step = blocks(first, last, **WINDOW)
    return replace(step, block_hashes=step.block_hashes[len(step.block_hashes) - listed :])


class CopyBlindIndex(NaivePrefixIndex):
    """Mutation: a second store of a block adds no copy."""

    def attach(self, holder: Target, *, model: str) -> None:
        super().attach(holder, model=model, rule=CopyRule.REFRESHED)


class SaltBlindIndex(NaivePrefixIndex):
    """Mutation: blocks of every salt are taken for unsalted ones."""

    def apply(self, holder, event):
        if isinstance(event, BlockStored):
            event = BlockStored(
                block_hashes=event.block_hashes,
                parent_block_hash=event.parent_block_hash,
                token_ids=event.token_ids,
                block_tokens=event.block_tokens,
                group_idx=event.group_idx,
                group_kind=event.group_kind,
            )
        return super().apply(holder, event)


class ForgetfulIndex(NaivePrefixIndex):
    """Mutation: removals do nothing."""

    def apply(self, holder, event):
        if isinstance(event, BlockRemoved):
            return super().apply(holder, BlockRemoved(block_hashes=()))
        return super().apply(holder, event)


class DeafIndex(NaivePrefixIndex):
    """Mutation: clears do nothing."""

    def apply(self, holder, event):
        if isinstance(event, AllBlocksCleared):
            return super().apply(holder, BlockRemoved(block_hashes=()))
        return super().apply(holder, event)


class TierBlindIndex(NaivePrefixIndex):
    """Mutation: what lies on the host or in a pool is taken for the device's."""

    def apply(self, holder, event, **terms):
        if not isinstance(event, AllBlocksCleared):
            event = replace(event, medium=Medium.DEVICE)
        return super().apply(holder, event, **terms)


class GroupBlindIndex(NaivePrefixIndex):
    """Mutation: only full attention decides."""

    def apply(self, holder, event, **terms):
        if getattr(event, "group_kind", None) in {"sliding_window", "mamba"}:
            return Change()
        return super().apply(holder, event, **terms)


class OffState(State):
    """Mutation: a checkpoint is wanted one block before the boundary."""

    def find_start(self, end_tokens: int) -> int:
        return max(0, end_tokens - 5)


def make_off_by_one(kind: str, component) -> NaivePrefixIndex:
    return NaivePrefixIndex(registry=STANDARD.with_kind(kind, component))


def copied() -> Tape:
    """A block-aligned prompt asked for twice: its last block is computed and stored again, then one copy goes."""
    tape = Tape()
    tape.ask(0, tokens=PROMPT[:16])
    tape.events(blocks(1, 4))
    tape.ask(12, tokens=PROMPT[:16])
    tape.events(blocks(4, 4))
    tape.events(BlockRemoved(block_hashes=(4,)))
    return tape.ask(16)


def test_an_index_that_does_not_count_copies_is_found():
    assert check(copied().lines) == {Class.EXACT: 3}
    assert check(copied().lines, CopyBlindIndex()) == {Class.EXACT: 2, Class.UNEXPLAINED: 1}


def test_an_index_that_ignores_salt_is_found_in_a_real_capture():
    assert check(read_lines("vllm032_full_reuse.jsonl"), SaltBlindIndex())[Class.UNEXPLAINED] == 1


def test_an_index_that_ignores_removals_is_found_in_a_real_capture():
    assert check(read_lines("vllm032_full_evict.jsonl"), ForgetfulIndex())[Class.UNEXPLAINED] > 0


def test_an_index_that_ignores_clears_is_found():
    tape = Tape()
    tape.events(blocks(1, 4))
    tape.events(AllBlocksCleared())
    tape.ask(0)
    assert check(tape.lines) == {Class.EXACT: 1}
    assert check(tape.lines, DeafIndex()) == {Class.UNEXPLAINED: 1}


def test_an_index_that_ignores_tiers_is_found():
    tape = Tape()
    tape.events(blocks(1, 4, medium=Medium.HOST), blocks(1, 2))
    tape.ask(8)
    assert check(tape.lines) == {Class.EXACT: 1}
    assert check(tape.lines, TierBlindIndex()) == {Class.UNEXPLAINED: 1}


def test_an_index_that_ignores_window_groups_is_found_in_a_real_capture():
    assert check(read_lines("vllm032_hybrid_sliding_plus_full.jsonl"), GroupBlindIndex())[Class.UNEXPLAINED] == 2


def test_an_index_whose_window_is_off_by_one_is_found_in_a_real_capture():
    # The next token is in its own window, so a window of 257 begins in the same block of 32 as one of 256.
    wide = make_off_by_one("sliding_window", lambda tokens: Window(tokens + 2))
    assert check(read_lines("vllm032_hybrid_sliding_plus_full.jsonl"), wide)[Class.UNEXPLAINED] == 1
    # A narrower window shows only where it begins in another block.
    tape = Tape()
    tape.events(blocks(3, 4, **(WINDOW | {"window_tokens": 10})), blocks(1, 4, **FULL))
    tape.ask(0)
    assert check(tape.lines) == {Class.EXACT: 1}
    narrow = make_off_by_one("sliding_window", lambda tokens: Window(tokens - 1))
    assert check(tape.lines, narrow) == {Class.UNEXPLAINED: 1}


def test_an_index_whose_checkpoints_are_off_by_one_block_is_found():
    tape = Tape()
    tape.events(blocks(4, 4, **(STATE | {"group_idx": 0})), blocks(1, 8, **FULL))
    tape.ask(16)
    assert check(tape.lines) == {Class.EXACT: 1}
    assert check(tape.lines, make_off_by_one("mamba", lambda _: OffState())) == {Class.UNEXPLAINED: 1}
    tape = Tape()
    tape.events(blocks(5, 5, **STATE), blocks(1, 8, **FULL))
    assert check(tape.ask(16).lines) == {Class.UNEXPLAINED: 1}


def test_a_model_with_a_window_in_every_layer_is_predicted():
    """Steps list the last blocks, or none; a chunk without names is followed by one with."""
    tape = Tape()
    tape.events(window_step(1, 5, listed=0))
    tape.events(window_step(6, 8, listed=2))
    tape.ask(32)
    tape.ask(0, tokens=PROMPT[:21])
    tape.ask(0, tokens=PROMPT[:29])
    assert check(tape.lines) == {Class.EXACT: 3}


def test_an_event_under_way_makes_a_request_raced_only_where_the_numbers_meet():
    tape = Tape()
    tape.ask(8, between=[[blocks(1, 2)], [blocks(3, 4)]])
    tape.ask(8, between=[[BlockRemoved(block_hashes=(3,))]])
    tape.ask(16, between=[[blocks(3, 3)]])
    assert check(tape.lines) == {Class.RACED: 3}
    assert check(Tape().ask(8, between=[[blocks(1, 1)], [blocks(2, 3)]]).lines) == {Class.UNEXPLAINED: 1}


def test_an_event_made_after_the_answer_does_not_race():
    tape = Tape().ask(8)
    tape.events(blocks(1, 2))
    assert check(tape.lines) == {Class.UNEXPLAINED: 1}


def test_a_capture_that_begins_in_the_middle_gives_lower_bounds():
    tape = Tape()
    tape.events(blocks(1, 2), seq=7)
    assert check(tape.ask(20).lines) == {Class.PARTIAL: 1}
    tape = Tape()
    tape.events(blocks(1, 2), seq=7)
    assert check(tape.ask(4).lines) == {Class.UNEXPLAINED: 1}


def test_two_answers_must_equal_the_hit_after_the_own_prompt():
    assert check(Tape().ask(32, n=2, between=[[blocks(1, 8)]]).lines) == {Class.CHOICES: 1}
    assert check(Tape().ask(16, n=2, between=[[blocks(1, 8)]]).lines) == {Class.UNEXPLAINED: 1}


def test_a_dialect_that_says_no_salt_gives_lower_bounds_to_salted_prompts_only():
    tape = Tape("0.16")
    tape.events(blocks(1, 8))
    tape.ask(32, cache_salt="s")
    tape.ask(32)
    assert check(tape.lines) == {Class.SALT_BLIND: 1, Class.EXACT: 1}
    tape.ask(16)
    assert check(tape.lines)[Class.UNEXPLAINED] == 1


def test_an_unpinned_request_equals_some_rank_and_a_pinned_one_its_own():
    tape = Tape()
    tape.events(blocks(1, 2), socket=0)
    tape.events(blocks(1, 4), socket=1)
    tape.ask(16).ask(8).ask(16, rank=1)
    assert check(tape.lines) == {Class.UNPINNED: 2, Class.EXACT: 1}
    tape.ask(16, rank=0).ask(12)
    assert check(tape.lines)[Class.UNEXPLAINED] == 2


def test_a_hybrid_prediction_is_exact_or_unexplained():
    tape = Tape()
    tape.events(blocks(3, 4, **WINDOW), blocks(1, 4, **FULL))
    assert check(tape.ask(16).lines) == {Class.EXACT: 1}
    assert check(tape.ask(12).lines)[Class.UNEXPLAINED] == 1


def test_answers_without_counts_are_not_judged():
    tape = Tape()
    tape._write(k="request", i=0, headers={}, body=None)
    tape._write(k="response", i=0, usage=None, body={"status": "ok"})
    report = RecordingCheck(read_capture("capture", tape.lines)).run()
    assert (report.verdicts, report.uncounted) == ((), 1)


def run(*paths):
    return CliRunner().invoke(recordings, ["check", *map(str, paths)])


def test_the_command_prints_every_request_and_exits_with_zero_when_all_is_explained():
    result = run(CAPTURES / "vllm032_full_reuse.jsonl", CAPTURES / "vllm032_dp2.jsonl")
    assert result.exit_code == 0
    assert "#1          0     192  raced" in result.output
    assert "16 requests: 4 exact, 1 raced, 11 unpinned" in result.output


def test_the_command_exits_with_one_when_something_is_unexplained(tmp_path):
    path = tmp_path / "wrong.jsonl"
    path.write_text("\n".join(Tape().ask(8).lines), encoding="utf-8")
    result = run(path)
    assert result.exit_code == 1
    assert "unexplained" in result.output


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("not json", "no JSON object"),
        ("[]", "no JSON object"),
        pytest.param("[" * 100_000, "no JSON object", id="nested"),
        ("{}", "k is missing"),
        ('{"k":"msg","t":1,"sub":0,"frames":["%"]}', "the frames are not base64"),
        ('{"k":"msg","t":1,"sub":1e999,"frames":[]}', "no JSON object"),
        ('{"k":"msg","t":1,"sub":"x","frames":[]}', "a value is not of its type"),
        ('{"k":"msg","t":1,"frames":[]}', "sub is missing"),
        ('{"k":"response","i":9}', "a response without its request"),
        ('{"k":"response","i":[]}', "a value is not of its type"),
    ],
)
def test_a_file_that_is_no_capture_is_refused_by_file_and_line(tmp_path, line, problem):
    path = tmp_path / "broken.jsonl"
    path.write_text('{"k":"scenario","t":0}\n' + line, encoding="utf-8")
    result = run(path)
    assert result.exit_code == 2
    assert f"broken.jsonl, line 2: {problem}; a capture has one JSON object a line" in result.output
    assert "Error" not in result.output
    with pytest.raises(CaptureError):
        read_capture("broken.jsonl", path.read_text(encoding="utf-8").splitlines())


def test_a_file_that_is_not_there_is_said(tmp_path):
    result = run(tmp_path / "none.jsonl")
    assert result.exit_code == 2
    assert result.output == f"error: {tmp_path / 'none.jsonl'} cannot be read: No such file or directory\n"


def test_a_file_that_is_no_text_is_said(tmp_path):
    path = tmp_path / "picture.jsonl"
    path.write_bytes(b"\xff\xfe")
    result = run(path)
    assert result.exit_code == 2
    assert "picture.jsonl is no capture: it is not UTF-8 text; a capture has" in result.output
