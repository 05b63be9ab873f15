"""Without a tokenizer the likely holder of a prompt's text is a guess that answers correct."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from prefix_index.hashing import pack_hashes
from router.prompt.approximate import CHUNK_BYTES, ApproximateReuse, TextChain, chain_text
from wire.ids import Target, WorkerId

A, B = Target(WorkerId("a"), 0), Target(WorkerId("b"), 0)
TEXT = bytes(range(256)) * 40


def admitted(**more):
    reuse = ApproximateReuse(**more)
    for target in (A, B):
        reuse.admit(target.worker, admitted=True)
    return reuse


def chain(text, **more):
    return chain_text([text], model="m", **more)


def test_a_rank_holds_what_it_answered_and_no_other_does():
    reuse = admitted()
    reuse.learn(A, chain(TEXT), prompt_tokens=2_560, cached_tokens=0)
    assert reuse.find_reuse(chain(TEXT), 2_560) == {A: 2_559}
    longer = chain(TEXT + b"x" * len(TEXT))
    assert reuse.find_reuse(longer, 5_120) == {A: 2_560}
    assert reuse.find_reuse(chain(b"y" + TEXT), 2_560) == {A: 0}


def test_models_adapters_and_salts_share_nothing():
    chains = [chain(TEXT), chain(TEXT, adapter="a"), chain(TEXT, cache_salt="s"), chain_text([TEXT], model="n")]
    assert len({one.hashes[0] for one in chains}) == 4


def test_what_was_not_found_is_gone_and_all_that_was_used_before_it():
    reuse = admitted()
    old, new = chain(TEXT), chain(b"z" * len(TEXT))
    reuse.learn(A, old, prompt_tokens=2_560, cached_tokens=0)
    reuse.learn(A, new, prompt_tokens=2_560, cached_tokens=0)
    reuse.learn(A, new, prompt_tokens=2_560, cached_tokens=0)
    assert reuse.find_reuse(old, 2_560) == {A: 0}
    assert reuse.find_reuse(new, 2_560) == {A: 2_559}


def test_only_admitted_workers_get_credit_and_lost_ranks_lose_it():
    reuse = admitted()
    for target in (A, B):
        reuse.learn(target, chain(TEXT), prompt_tokens=2_560, cached_tokens=0)
    reuse.admit(A.worker, admitted=False)
    assert set(reuse.find_reuse(chain(TEXT), 2_560)) == {B}
    reuse.forget(B)
    assert reuse.find_reuse(chain(TEXT), 2_560) == {}
    assert reuse.count_chunks() == 0


def test_the_length_of_a_token_is_learned_within_reason():
    reuse = admitted()
    for _ in range(200):
        reuse.learn(A, chain(TEXT), prompt_tokens=len(TEXT) // 2, cached_tokens=None)
    assert reuse.estimate_tokens(1_000) == 500
    reuse.learn(A, chain(TEXT), prompt_tokens=1, cached_tokens=None)
    assert reuse.estimate_tokens(1_000) == 500


@given(
    answers=st.lists(
        st.tuples(st.sampled_from([A, B]), st.lists(st.integers(0, 9), max_size=12), st.integers(0, 3_000)), max_size=40
    )
)
def test_memory_is_bounded_and_credit_never_above_the_prompt(answers):
    reuse = admitted(max_chunks=10)
    for target, hashes, cached_tokens in answers:
        text = TextChain(pack_hashes(hashes), CHUNK_BYTES * len(hashes))
        assert all(0 <= tokens < 1_000 for tokens in reuse.find_reuse(text, 1_000).values())
        reuse.learn(target, text, prompt_tokens=1_000, cached_tokens=cached_tokens)
        assert reuse.count_chunks() <= 20


def test_G10_unique_prompts_without_end_take_no_more_than_the_cap_and_the_latest_survive():
    """Prompts of 8k tokens, all different, far beyond what is kept: memory stands still once the cap is reached."""
    reuse = admitted(max_chunks=8_192)

    def send(first, last):
        for number in range(first, last):
            sent = chain(b"%d " % number * (32_768 // 7))
            reuse.learn(A, sent, prompt_tokens=8_192, cached_tokens=0)
        return sent

    tracemalloc.start()
    try:
        send(100_000, 100_200)
        full_bytes = tracemalloc.get_traced_memory()[0]
        latest = send(200_000, 200_200)
        assert tracemalloc.get_traced_memory()[0] <= 1.05 * full_bytes
    finally:
        tracemalloc.stop()
    assert reuse.count_chunks() == 8_192
    assert reuse.find_reuse(latest, 8_192)[A] > 8_000
    assert reuse.find_reuse(chain(b"100000 " * (32_768 // 7)), 8_192)[A] == 0
