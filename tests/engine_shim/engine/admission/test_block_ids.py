"""Prompts given as ids of whole blocks, runs of like steps, and decode tokens within the chunk limit."""

from array import array

import pytest

from engine_shim.engine.admission.admission import Admission
from engine_shim.engine.admission.request import EngineRequest, RefusalReason, SamplingParams
from engine_shim.engine.cache.page_hash import NAMED_PAGES
from engine_shim.engine.cache.prefix_cache import PrefixCache
from engine_shim.engine.engine import Engine
from engine_shim.engine.forward.timed import CostModel, TimedForward
from engine_shim.engine.spec import EngineSpec


def make(**fields):
    defaults = {"page_tokens": 4, "id_tokens": 4, "pool_pages": 32, "prefill_chunk_tokens": 64}
    spec = EngineSpec(**{**defaults, **fields})
    spec.validate()
    return Admission(spec, PrefixCache(page_tokens=spec.page_ids, pool_pages=spec.pool_pages, naming=NAMED_PAGES))


def submit(admission, name, ids, *, out=20, prompt_tokens=None):
    return admission.submit(
        EngineRequest(
            request_id=name,
            prompt_ids=array("I", ids),
            prompt_tokens=prompt_tokens,
            sampling=SamplingParams(max_new_tokens=out),
        )
    )


def step(admission, steps=1):
    rows = admission.plan()
    assert steps <= admission.count_like_steps(rows)
    rows = admission.lengthen(rows, steps)
    return admission.settle(rows, [0 if row.samples else None for row in rows])


def test_an_id_stands_for_a_block_of_tokens():
    admission = make()
    assert submit(admission, "a", [7, 8, 9]) is None
    (output,) = step(admission)
    assert (output.prompt_tokens, output.output_tokens) == (12, 1)
    assert admission.counters.computed_tokens == 12


def test_blocks_are_reused_and_the_last_one_is_computed_again():
    admission = make()
    submit(admission, "a", [7, 8, 9], out=1)
    submit(admission, "b", [7, 8, 9], out=1)
    step(admission)
    submit(admission, "c", [7, 8, 9, 10], out=1)
    (output,) = step(admission)
    assert output.cached_tokens == 12
    submit(admission, "d", [7, 8], out=1)
    assert step(admission)[0].cached_tokens == 4


def test_what_two_requests_generate_after_one_prompt_is_not_shared():
    admission = make()
    for name in "ab":
        submit(admission, name, [7, 8], out=9)
    while outputs := step(admission):
        if all(output.finish_reason for output in outputs):
            break
    assert admission.counters.finished_requests == 2
    assert len(admission._cache.cached_digests()) == 2 + 2 * 2


def test_like_steps_end_where_a_page_is_full_or_an_output_ends():
    admission = make()
    submit(admission, "a", [1], out=20)
    submit(admission, "b", [2, 3], out=3)
    step(admission)
    rows = admission.plan()
    assert admission.count_like_steps(rows) == 2
    outputs = admission.settle(*_like(admission, rows, 2))
    assert [(output.output_tokens, output.finish_reason) for output in outputs] == [(3, None), (3, "length")]
    assert admission.count_like_steps(admission.plan()) == 2


def _like(admission, rows, steps):
    longer = admission.lengthen(rows, steps)
    return longer, [0 for _ in longer]


def test_tokens_that_are_kept_cannot_be_skipped():
    admission = make(id_tokens=1)
    submit(admission, "a", [1, 2, 3])
    step(admission)
    with pytest.raises(ValueError, match="cannot skip"):
        admission.lengthen(admission.plan(), 2)


def test_decode_tokens_count_against_the_chunk_where_the_spec_says_so():
    for shares, computed in ((False, 8), (True, 7)):
        admission = make(decode_shares_chunk=shares, prefill_chunk_tokens=8)
        submit(admission, "a", [1])
        step(admission)
        submit(admission, "b", range(10, 20))
        rows = {row.sequence.request.request_id: row.end_token for row in admission.plan()}
        assert rows == {"a": 5, "b": computed}


@pytest.mark.parametrize(
    ("ids", "tokens", "reason"),
    [
        ([1, 2], 13, RefusalReason.LENGTH_MISMATCH),
        ([1 << 31], None, RefusalReason.OUT_OF_VOCABULARY),
        ([], None, RefusalReason.EMPTY_PROMPT),
    ],
)
def test_ids_that_are_no_prompt_of_blocks_are_refused(ids, tokens, reason):
    assert submit(make(), "a", ids, prompt_tokens=tokens).reason is reason


def test_a_salt_beside_ids_of_blocks_is_refused():
    request = EngineRequest(
        request_id="a", prompt_ids=array("I", [1]), sampling=SamplingParams(max_new_tokens=1), cache_salt="tenant"
    )
    assert make().submit(request).reason is RefusalReason.SALTED_IDS


def test_an_engine_that_computes_takes_no_ids_of_blocks():
    spec = EngineSpec(page_tokens=4, id_tokens=4)
    with pytest.raises(ValueError, match="a forward computes tokens"):
        Engine(spec, TimedForward(CostModel(), spec=spec), dp_rank=0)


def test_pages_of_several_ids_have_no_name_of_their_own():
    with pytest.raises(ValueError, match="pages of 4 ids"):
        NAMED_PAGES.chain(b"", bytes(16), 4)


def test_a_prompt_shorter_than_a_block_has_no_ids():
    admission = make()
    assert submit(admission, "a", [], prompt_tokens=3, out=2) is None
    assert step(admission)[0].prompt_tokens == 3


def test_other_numbers_of_tokens_than_one_or_a_page_are_no_id():
    with pytest.raises(ValueError, match="id_tokens=2 must be 1 or page_tokens=4"):
        EngineSpec(page_tokens=4, id_tokens=2).validate()
