"""Who runs in a step: order, budget, room, retraction."""

import pytest

from engine_shim.engine.admission.admission import Admission
from engine_shim.engine.admission.request import EngineRequest, RefusalReason, SamplingParams
from engine_shim.engine.cache.prefix_cache import PrefixCache
from engine_shim.engine.spec import EngineSpec


class Rig:
    """An admission whose every sampled token is `answer`."""

    def __init__(self, **fields):
        defaults = {"page_tokens": 4, "pool_pages": 32, "max_running_requests": 4, "prefill_chunk_tokens": 8}
        self.spec = EngineSpec(**{**defaults, **fields})
        self.cache = PrefixCache(page_tokens=self.spec.page_tokens, pool_pages=self.spec.pool_pages)
        self.admission = Admission(self.spec, self.cache)
        self.answer = 7

    def submit(self, request_id, prompt_ids, *, max_new_tokens=100, **fields):
        sampling = SamplingParams(max_new_tokens=max_new_tokens, stop_token_ids=(99,))
        return self.admission.submit(
            EngineRequest(request_id=request_id, prompt_ids=tuple(prompt_ids), sampling=sampling, **fields)
        )

    def step(self):
        """One step; returns its rows as {request: (start, end)}, and its outputs."""
        rows = self.admission.plan()
        spans = {row.sequence.request.request_id: (row.sequence.computed_tokens, row.end_token) for row in rows}
        outputs = self.admission.settle(rows, [self.answer if row.samples else None for row in rows])
        self.check()
        return spans, outputs

    def check(self):
        self.cache.check_invariants()
        self.admission.queues.check_invariants()

    def names(self, queue):
        return [sequence.request.request_id for sequence in getattr(self.admission.queues, queue)]


def test_a_long_prompt_is_computed_in_chunks_and_sampled_after_the_last():
    rig = Rig()
    rig.submit("a", range(20))
    assert rig.step() == ({"a": (0, 8)}, ())
    assert rig.step() == ({"a": (8, 16)}, ())
    spans, (output,) = rig.step()
    assert spans == {"a": (16, 20)}
    assert (output.token_id, output.output_tokens, output.prompt_tokens, output.finish_reason) == (7, 1, 20, None)
    assert rig.step()[0] == {"a": (20, 21)}


def test_what_a_chunk_leaves_of_the_budget_goes_to_the_next_request():
    rig = Rig()
    rig.submit("a", range(5))
    rig.submit("b", range(100, 110))
    rig.submit("c", range(50, 60))
    assert rig.step()[0] == {"a": (0, 5), "b": (0, 3)}
    assert rig.names("waiting") == ["c"]
    assert rig.step()[0] == {"a": (5, 6), "b": (3, 10), "c": (0, 1)}


def test_a_decoding_request_waits_for_no_prefill():
    rig = Rig(prefill_chunk_tokens=2)
    rig.submit("a", [1])
    rig.step()
    rig.submit("b", range(30))
    for step in range(3):
        assert rig.step()[0] == {"a": (step + 1, step + 2), "b": (2 * step, 2 * step + 2)}


def test_a_second_request_matches_what_the_first_has_already_published():
    rig = Rig()
    rig.submit("a", range(21))
    rig.step()
    rig.submit("b", [*range(18), 50, 51, 52])
    rig.step()
    spans, _ = rig.step()
    assert spans == {"a": (16, 21), "b": (16, 19)}
    assert rig.admission.counters.cached_tokens == 16


def test_two_prefills_of_one_prefix_end_on_the_same_pages():
    rig = Rig(prefill_chunk_tokens=40)
    rig.submit("a", range(17))
    rig.submit("b", range(17))
    rig.step()
    assert rig.cache.count_pages().leased == 4 + 2
    a, b = rig.admission.queues.running
    assert a.lease.pages[:4] == b.lease.pages[:4]


def test_no_more_run_than_the_limit_and_the_others_wait_in_order():
    rig = Rig(max_running_requests=2, prefill_chunk_tokens=100)
    for number, name in enumerate("abc"):
        rig.submit(name, [number], max_new_tokens=1 if name == "a" else 9)
    assert set(rig.step()[0]) == {"a", "b"}
    assert set(rig.step()[0]) == {"b", "c"}


def test_a_request_is_not_admitted_before_its_prompt_fits_beside_the_running_ones():
    rig = Rig(pool_pages=8, prefill_chunk_tokens=100)
    rig.submit("a", range(12), max_new_tokens=3)
    rig.submit("b", range(100, 116))
    assert set(rig.step()[0]) == {"a"}
    rig.step()
    _, (last,) = rig.step()
    assert last.finish_reason == "length"
    assert rig.step()[0] == {"b": (0, 16)}


@pytest.mark.parametrize(("pool_pages", "names"), [(8, {"a"}), (9, {"a", "b"})])
def test_the_page_that_a_running_request_may_need_next_is_not_given_away(pool_pages, names):
    rig = Rig(pool_pages=pool_pages, prefill_chunk_tokens=20)
    rig.submit("a", range(19))
    rig.submit("b", range(100, 110))
    assert set(rig.step()[0]) == names


def test_a_match_on_pages_that_nobody_holds_counts_them_as_taken():
    rig = Rig(pool_pages=9, prefill_chunk_tokens=20)
    rig.submit("c", range(100, 117), max_new_tokens=1)
    rig.step()
    rig.submit("a", range(16))
    rig.step()
    rig.submit("b", [*range(100, 117), 1, 2, 3])
    assert set(rig.step()[0]) == {"a"}


def fill_pool(rig):
    """Two requests decode until the pool is full and the younger one gives way."""
    rig.submit("a", range(8))
    rig.submit("b", range(100, 108))
    for _ in range(200):
        rig.step()
        if rig.names("retracted"):
            return
    raise AssertionError("nobody was retracted")


def test_when_pages_run_out_the_youngest_gives_way_and_the_oldest_goes_on():
    rig = Rig(pool_pages=8, prefill_chunk_tokens=100)
    fill_pool(rig)
    assert rig.names("running") == ["a"]
    assert rig.names("retracted") == ["b"]
    assert rig.admission.counters.retracted_requests == 1
    assert set(rig.step()[0]) == {"a"}


def test_F16_a_retracted_request_resumes_before_newer_ones_from_what_is_still_cached():
    rig = Rig(pool_pages=8, prefill_chunk_tokens=100)
    fill_pool(rig)
    (retracted,) = rig.admission.queues.retracted
    known, out = retracted.total_tokens, retracted.output_tokens
    rig.submit("c", [3])
    rig.admission.abort("a")
    spans, outputs = rig.step()
    start, end = spans["b"]
    assert (start % 4, end) == (0, known)
    assert 0 < start < known
    assert outputs[0].request_id == "b"
    assert (outputs[0].output_tokens, outputs[0].cached_tokens) == (out + 1, 0)
    assert list(spans) == ["b", "c"]
    assert rig.admission.counters.prompt_tokens == 8 + 8 + 1


def test_F18_a_single_request_that_fills_the_pool_ends_with_length():
    rig = Rig(pool_pages=3, prefill_chunk_tokens=100)
    rig.submit("a", range(6), max_new_tokens=1000)
    outputs = [output for _ in range(6) for output in rig.step()[1]]
    assert [output.finish_reason for output in outputs] == [None] * 5 + ["length"]
    assert outputs[-1].prompt_tokens + outputs[-1].output_tokens == 12
    assert rig.admission.counters.retracted_requests == 0
    assert rig.cache.count_pages().leased == 0
    assert rig.submit("b", range(6)) is None


def test_a_stop_token_ends_the_output_and_is_told():
    rig = Rig()
    rig.submit("a", [1])
    rig.step()
    rig.answer = 99
    _, (output,) = rig.step()
    assert (output.token_id, output.finish_reason, output.output_tokens) == (99, "stop", 2)
    assert rig.cache.count_pages().leased == 0


@pytest.mark.parametrize(("ignore_eos", "reasons"), [(False, ["stop"]), (True, [None, "length"])])
def test_the_engines_own_stop_token_can_be_ignored(ignore_eos, reasons):
    rig = Rig(eos_token_ids=(7,))
    sampling = SamplingParams(max_new_tokens=2, ignore_eos=ignore_eos)
    rig.admission.submit(EngineRequest(request_id="a", prompt_ids=(1,), sampling=sampling))
    outputs = [output for _ in range(2) for output in rig.step()[1]]
    assert [output.finish_reason for output in outputs] == reasons


@pytest.mark.parametrize("steps", range(6))
def test_an_abort_at_any_stage_releases_everything(steps):
    rig = Rig(pool_pages=16)
    rig.submit("a", range(20))
    for _ in range(steps):
        rig.step()
    output = rig.admission.abort("a")
    rig.check()
    assert (output.finish_reason, output.token_id) == ("abort", None)
    assert output.output_tokens == max(0, steps - 2)
    assert rig.cache.count_pages().leased == 0
    assert rig.admission.abort("a") is None
    assert rig.admission.plan() == ()


def test_an_aborted_retracted_request_is_forgotten():
    rig = Rig(pool_pages=8, prefill_chunk_tokens=100)
    fill_pool(rig)
    assert rig.admission.abort("b").output_tokens > 0
    rig.check()
    assert rig.names("retracted") == []


def test_an_id_is_unique_while_it_runs_and_free_after():
    rig = Rig()
    assert rig.submit("a", [1], max_new_tokens=1) is None
    assert rig.submit("a", [2]).reason == RefusalReason.DUPLICATE_REQUEST
    rig.step()
    assert rig.submit("a", [2]) is None


def test_a_full_queue_refuses():
    rig = Rig(max_waiting_requests=1)
    assert rig.submit("a", [1]) is None
    assert rig.submit("b", [1]).reason == RefusalReason.QUEUE_FULL
    rig.step()
    assert rig.submit("b", [1]) is None


def test_waiting_tokens_are_counted_net_of_what_is_cached():
    rig = Rig()
    rig.submit("a", range(8), max_new_tokens=1)
    rig.step()
    rig.submit("b", range(30))
    assert rig.admission.count_waiting_uncached_tokens() == 22


def test_E06_cached_and_computed_tokens_add_up_to_the_prompts():
    rig = Rig(prefill_chunk_tokens=5)
    for name, prompt in (("a", range(21)), ("b", range(21)), ("c", [*range(9), 60])):
        rig.submit(name, prompt, max_new_tokens=4)
    for _ in range(40):
        rig.step()
    counters = rig.admission.counters
    assert counters.prompt_tokens == 21 + 21 + 10
    assert counters.cached_tokens + counters.computed_tokens == counters.prompt_tokens
    assert (counters.generated_tokens, counters.finished_requests) == (12, 3)


def break_order(queues):
    queues.running.reverse()


def break_ids(queues):
    queues._by_id.pop("a")


def break_lease(queues):
    queues.running[0].lease = None


@pytest.mark.parametrize(
    ("story", "damage"), [("out of order", break_order), ("in no queue", break_ids), ("has a lease", break_lease)]
)
def test_the_check_sees_a_sequence_in_the_wrong_place(story, damage):
    rig = Rig()
    rig.submit("a", [1])
    rig.submit("b", [2])
    rig.step()
    damage(rig.admission.queues)
    with pytest.raises(RuntimeError, match=story):
        rig.admission.queues.check_invariants()


def test_admission_leaves_a_page_for_each_running_request_unless_it_is_tight():
    for tight, running in ((False, ["a"]), (True, ["a", "b"])):
        rig = Rig(pool_pages=7, prefill_chunk_tokens=64, admits_tightly=tight)
        rig.submit("a", range(12))
        rig.submit("b", range(100, 116))
        rig.step()
        assert rig.names("running") == running


def test_who_gave_pages_back_is_not_admitted_again_by_the_same_step():
    rig = Rig(pool_pages=7, prefill_chunk_tokens=64, admits_tightly=True)
    rig.submit("a", range(12))
    rig.submit("b", range(100, 116))
    rig.step()
    spans, _ = rig.step()
    assert (spans, rig.names("retracted")) == ({"a": (12, 13)}, ["b"])
