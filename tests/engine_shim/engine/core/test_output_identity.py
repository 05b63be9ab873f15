"""Greedy tokens are the same whether the prefix was computed or found, and however the work was cut.

Each test serves a prompt in some roundabout way and compares with a fresh engine that serves it alone in one
chunk. The last test proves that the comparison would see a page of another prefix.
"""

import pytest
import torch

from engine_shim.engine.admission.request import EngineRequest, SamplingParams
from engine_shim.engine.cache.prefix_cache import PrefixCache
from engine_shim.engine.cache.radix_tree import Match, RadixTree
from engine_shim.engine.engine import Engine
from engine_shim.engine.forward.timed import CostModel, TimedForward
from engine_shim.engine.forward.toy import build_torch_forward
from engine_shim.engine.spec import EngineSpec, ModelSpec

MODEL = ModelSpec(layers=2, hidden_dim=48, query_heads=4, kv_heads=2, head_dim=12, feed_forward_dim=64)
SMALL = {"page_tokens": 4, "pool_pages": 128, "vocabulary_tokens": 512, "model": MODEL}
CHANCE = torch.Generator().manual_seed(11)


def random_tokens(count):
    return tuple(torch.randint(512, (count,), generator=CHANCE).tolist())


PROMPT = random_tokens(45)
OTHERS = [random_tokens(count) for count in (30, 17, 51)]
OUTPUT_TOKENS = 12


def make_torch(spec):
    return build_torch_forward(spec, seed=3)


def make_timed(spec):
    return TimedForward(CostModel(time_scale=0.0), spec=spec)


@pytest.fixture(params=[make_torch, make_timed], ids=["torch", "timed"])
def make_engine(request):
    """Builds an engine; each one is checked when the test ends."""
    made = []

    def make(**fields):
        spec = EngineSpec(**{**SMALL, **fields})
        made.append(Engine(spec, request.param(spec), dp_rank=0))
        return made[-1]

    yield make
    for engine in made:
        engine.check_invariants()


def submit(engine, name, prompt, *, max_new_tokens=OUTPUT_TOKENS, **sampling):
    params = SamplingParams(max_new_tokens=max_new_tokens, **sampling)
    assert engine.submit(EngineRequest(request_id=name, prompt_ids=tuple(prompt), sampling=params)) is None


def run(engine, steps=10_000):
    """Step until there is nothing to do; returns every request's tokens."""
    tokens = {}
    while engine.has_work and steps:
        for output in engine.step(0.0).outputs:
            if output.token_id is not None:
                tokens.setdefault(output.request_id, []).append(output.token_id)
        steps -= 1
    return tokens


def serve(engine, prompt, **sampling):
    submit(engine, "served", prompt, **sampling)
    return run(engine)["served"]


def serve_cold(make_engine, prompt, **sampling):
    """What a fresh engine answers, alone and in one chunk."""
    return serve(make_engine(prefill_chunk_tokens=4096), prompt, **sampling)


def test_a_cached_prefix_changes_no_token(make_engine):
    engine = make_engine()
    cold = serve_cold(make_engine, PROMPT)
    assert serve(engine, PROMPT) == cold
    assert engine.counters.cached_tokens == 0
    assert serve(engine, PROMPT) == cold
    assert engine.counters.cached_tokens == 44
    assert len(set(cold)) > 4


@pytest.mark.parametrize("shared_tokens", [0, 1, 4, 21, 40, 44])
def test_a_prefix_shared_in_part_changes_no_token(make_engine, shared_tokens):
    engine = make_engine()
    serve(engine, PROMPT[:shared_tokens] + OTHERS[0])
    assert serve(engine, PROMPT) == serve_cold(make_engine, PROMPT)
    assert engine.counters.cached_tokens == shared_tokens // 4 * 4


def test_a_conversation_that_grows_reuses_its_own_answers_and_changes_no_token(make_engine):
    engine = make_engine()
    conversation = PROMPT
    for turn in OTHERS:
        cached_before = engine.counters.cached_tokens
        conversation = (*conversation, *serve(engine, conversation), *turn)
        known = (len(conversation) - len(turn) - 1) // 4 * 4
        assert serve(engine, conversation, max_new_tokens=1) == serve_cold(make_engine, conversation, max_new_tokens=1)
        assert engine.counters.cached_tokens - cached_before >= known


@pytest.mark.parametrize("chunk_tokens", [*range(1, 10), 16, 31, 44, 45, 46])
def test_the_size_of_the_chunks_changes_no_token(make_engine, chunk_tokens):
    engine = make_engine(prefill_chunk_tokens=chunk_tokens)
    assert serve(engine, PROMPT) == serve_cold(make_engine, PROMPT)


@pytest.mark.parametrize("chunk_tokens", [3, 20, 200])
def test_other_requests_in_the_batch_change_no_token(make_engine, chunk_tokens):
    engine = make_engine(prefill_chunk_tokens=chunk_tokens)
    prompts = {"p": PROMPT, "twin": PROMPT, "branch": PROMPT[:22] + OTHERS[1], "x": OTHERS[0], "y": OTHERS[2]}
    for name, prompt in prompts.items():
        submit(engine, name, prompt)
    assert run(engine) == {name: serve_cold(make_engine, prompt) for name, prompt in prompts.items()}


def test_eviction_and_prefill_from_scratch_change_no_token(make_engine):
    engine = make_engine(pool_pages=16)
    cold = serve_cold(make_engine, PROMPT)
    for other in OTHERS:
        assert serve(engine, PROMPT) == cold
        serve(engine, other)
    assert serve(engine, PROMPT) == cold
    assert engine.counters.evicted_pages > 0


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_F16_retraction_and_resumption_change_no_token(make_engine, temperature):
    engine = make_engine(pool_pages=30)
    sampling = {"temperature": temperature, "top_p": 0.95, "max_new_tokens": 40}
    prompts = {"p": PROMPT, "x": OTHERS[1], "y": OTHERS[0]}
    for seed, (name, prompt) in enumerate(prompts.items()):
        submit(engine, name, prompt, seed=seed, **sampling)
    served = run(engine)
    assert engine.counters.retracted_requests > 0
    for seed, (name, prompt) in enumerate(prompts.items()):
        assert served[name] == serve_cold(make_engine, prompt, seed=seed, **sampling)


@pytest.mark.parametrize("steps", [1, 3, 6, 9])
def test_F15_the_abort_of_a_sibling_changes_no_token(make_engine, steps):
    engine = make_engine(prefill_chunk_tokens=10)
    submit(engine, "sibling", PROMPT[:40] + OTHERS[1])
    submit(engine, "p", PROMPT)
    run(engine, steps)
    assert engine.abort("sibling")
    submit(engine, "later", PROMPT)
    served = run(engine)
    assert served["later"] == serve_cold(make_engine, PROMPT)
    assert served["p"] == served["later"][len(served["later"]) - len(served["p"]) :]


def test_a_seed_fixes_the_sampled_tokens_and_another_changes_them(make_engine):
    engine = make_engine()
    one, two, again = (serve(engine, PROMPT, temperature=1.0, seed=seed) for seed in (1, 2, 1))
    assert one == again
    assert one != two


class ServesAnyPrefix(RadixTree):
    """Deliberately wrong: where nothing matches, the pages of some other prefix are served."""

    def match(self, token_bytes, cache_salt, *, limit_pages):
        right = super().match(token_bytes, cache_salt, limit_pages=limit_pages)
        wanted = limit_pages
        for node in self.nodes():
            if not right.pages and wanted and not node.lock_count and node.parent is self._roots[None]:
                taken = min(wanted, len(node.pages))
                pages = tuple(node.pages[:taken])
                return Match(pages=pages, unheld_pages=taken, cache_salt=None, node=node, node_pages=taken)
        return right


@pytest.mark.parametrize("make_forward", [make_torch, make_timed], ids=["torch", "timed"])
@pytest.mark.parametrize("make_tree", [RadixTree, ServesAnyPrefix])
def test_the_comparison_sees_a_page_of_another_prefix(make_forward, make_tree):
    spec = EngineSpec(**SMALL)
    cache = PrefixCache(page_tokens=4, pool_pages=128, make_tree=make_tree)
    engine = Engine(spec, make_forward(spec), dp_rank=0, cache=cache)
    cold = serve(Engine(spec, make_forward(spec), dp_rank=0), PROMPT)
    serve(engine, OTHERS[2])
    served = serve(engine, PROMPT)
    assert (served == cold) == (make_tree is RadixTree)
