"""The engine's face: events in order, ends of requests, flush, load, counters."""

import pytest

from engine_shim.engine.admission.request import EngineRequest, RefusalReason, SamplingParams
from engine_shim.engine.engine import Engine
from engine_shim.engine.forward.timed import CostModel, TimedForward
from engine_shim.engine.spec import EngineSpec
from tests.engine_shim.page_hashes import page_hashes
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored


@pytest.fixture
def engine():
    made = make_engine()
    yield made
    made.check_invariants()


def make_engine(**fields):
    spec = EngineSpec(**{"page_tokens": 4, "pool_pages": 16, "prefill_chunk_tokens": 8, **fields})
    return Engine(spec, TimedForward(CostModel(time_scale=0.0), spec=spec), dp_rank=3)


def submit(engine, name, prompt, *, max_new_tokens=1, **fields):
    sampling = SamplingParams(max_new_tokens=max_new_tokens)
    return engine.submit(EngineRequest(request_id=name, prompt_ids=tuple(prompt), sampling=sampling, **fields))


def run(engine):
    """Step until there is nothing to do; returns outputs and events."""
    outputs, events = [], []
    while engine.has_work:
        result = engine.step(0.0)
        outputs += result.outputs
        events += result.events
    return outputs, events


def test_A12_a_new_engine_has_one_thing_to_tell_before_any_request(engine):
    assert engine.has_work
    result = engine.step(7.0)
    assert (result.events, result.outputs, result.now_s) == ((AllBlocksCleared(),), (), 7.0)
    assert not engine.has_work


def test_the_first_step_clears_before_it_stores(engine):
    submit(engine, "a", range(5))
    assert [type(event) for event in engine.step(0.0).events] == [AllBlocksCleared, BlockStored]


def test_events_carry_the_hashes_of_prompt_and_output(engine):
    submit(engine, "a", range(10), max_new_tokens=8)
    outputs, events = run(engine)
    computed = [*range(10), *(output.token_id for output in outputs[:-1])]
    stored = [event for event in events if isinstance(event, BlockStored)]
    hashes = [value for event in stored for value in event.block_hashes]
    assert hashes == page_hashes(computed, 4)
    assert [token for event in stored for token in event.token_ids] == computed[:16]
    assert [event.parent_block_hash for event in stored] == [None, *(event.block_hashes[-1] for event in stored[:-1])]


def test_a_page_is_told_removed_before_what_replaces_it_is_told_stored(engine):
    for number in range(6):
        submit(engine, f"r{number}", range(100 * number, 100 * number + 12))
    _, events = run(engine)
    kinds = [type(event) for event in events]
    assert BlockRemoved in kinds
    assert kinds.index(BlockRemoved) > kinds.index(BlockStored)
    assert kinds[-1] is BlockStored
    assert engine.counters.evicted_pages == sum(len(e.block_hashes) for e in events if isinstance(e, BlockRemoved))


def test_an_abort_frees_at_once_and_its_end_is_told_by_the_next_step(engine):
    submit(engine, "a", range(20), max_new_tokens=5)
    submit(engine, "b", range(50, 60), max_new_tokens=5)
    engine.step(0.0)
    assert engine.abort("a")
    assert engine.abort("b")
    assert not engine.abort("a")
    assert engine.pages.leased == 0
    assert engine.has_work
    assert [(o.request_id, o.finish_reason) for o in engine.step(0.0).outputs] == [("a", "abort"), ("b", "abort")]
    assert not engine.has_work
    assert engine.counters.aborted_requests == 2


def test_a_refused_request_leaves_no_trace(engine):
    engine.step(0.0)
    assert submit(engine, "a", range(64)).reason == RefusalReason.LARGER_THAN_POOL
    assert not engine.has_work
    assert not engine.abort("a")


def test_A21_a_flush_is_told_and_refused_while_a_request_lives(engine):
    submit(engine, "a", range(9))
    assert not engine.flush_cache()
    run(engine)
    assert engine.pages.cached == 2
    assert engine.flush_cache()
    assert engine.pages.free == 16
    assert engine.has_work
    assert engine.step(0.0).events == (AllBlocksCleared(),)
    submit(engine, "b", range(9))
    outputs, events = run(engine)
    assert outputs[-1].cached_tokens == 0
    assert len(events) == 1


def test_outputs_say_how_much_of_the_prompt_was_found(engine):
    submit(engine, "a", range(10))
    submit(engine, "b", [*range(9), 77, 78])
    outputs, _ = run(engine)
    assert [(o.request_id, o.prompt_tokens, o.cached_tokens, o.output_tokens) for o in outputs] == [
        ("a", 10, 0, 1),
        ("b", 11, 8, 1),
    ]


def test_salts_do_not_share(engine):
    for name, salt in (("a", None), ("b", "s"), ("c", "s")):
        submit(engine, name, range(9), cache_salt=salt)
        outputs, _ = run(engine)
        assert outputs[-1].cached_tokens == (8 if name == "c" else 0)


def test_load_counts_what_runs_waits_and_is_held():
    engine = make_engine(max_running_requests=1)
    for name in "abc":
        submit(engine, name, range(12), max_new_tokens=9)
    engine.step(0.0)
    report = engine.load(1.0)
    assert (report.dp_rank, report.running_requests, report.waiting_requests) == (3, 1, 2)
    assert report.waiting_uncached_tokens == 2 * 4
    assert (report.used_tokens, report.capacity_tokens, report.max_running_requests) == (8, 64, 1)
    assert report.generated_tokens_per_s is None


def test_load_says_the_output_speed_since_the_last_report(engine):
    engine.load(10.0)
    submit(engine, "a", [1], max_new_tokens=6)
    run(engine)
    assert engine.load(12.0).generated_tokens_per_s == 3.0
    assert engine.load(12.0).generated_tokens_per_s is None
    assert engine.load(13.0).generated_tokens_per_s == 0.0


def test_the_counters_add_up(engine):
    submit(engine, "a", range(10), max_new_tokens=3)
    run(engine)
    submit(engine, "b", range(10), max_new_tokens=2)
    run(engine)
    counters = engine.counters
    assert (counters.prompt_tokens, counters.cached_tokens, counters.computed_tokens) == (20, 8, 12)
    assert (counters.generated_tokens, counters.finished_requests, counters.retracted_requests) == (5, 2, 0)


def test_a_spec_that_makes_no_engine_is_refused():
    with pytest.raises(ValueError, match="pool_pages=0"):
        make_engine(pool_pages=0)


def test_a_prompt_of_100_000_tokens_is_served_and_found_again():
    engine = make_engine(page_tokens=16, pool_pages=8192, prefill_chunk_tokens=8192, vocabulary_tokens=200_000)
    prompt = range(100_000)
    submit(engine, "a", prompt)
    run(engine)
    submit(engine, "b", prompt)
    outputs, _ = run(engine)
    assert outputs[-1].cached_tokens == 99_984
    assert len(list(engine._cache._tree.nodes())) < 4


class FailsOnce:
    """A forward whose second step breaks before it computes anything."""

    def __init__(self, forward):
        self.forward = forward
        self.steps = 0

    def run(self, rows):
        self.steps += 1
        if self.steps == 2:
            raise MemoryError("no room for activations")
        return self.forward.run(rows)


def test_a_step_whose_forward_fails_can_be_repeated_and_changes_no_token():
    spec = EngineSpec(page_tokens=4, pool_pages=16, prefill_chunk_tokens=8)
    outputs = []
    for wrap in (FailsOnce, lambda forward: forward):
        engine = Engine(spec, wrap(TimedForward(CostModel(time_scale=0.0), spec=spec)), dp_rank=0)
        submit(engine, "a", range(20), max_new_tokens=6)
        engine.step(0.0)
        if wrap is FailsOnce:
            with pytest.raises(MemoryError):
                engine.step(0.0)
        engine.check_invariants()
        outputs.append([output.token_id for output in run(engine)[0]])
        assert engine.pages.leased == 0
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 6
