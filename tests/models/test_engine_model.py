"""A whole engine under random submits, aborts, steps and flushes.

Nothing leaks, events tell what is cached, every request ends once, and no token is wrong.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine_shim.engine.admission.request import EngineRequest, SamplingParams
from engine_shim.engine.cache.page_hash import event_hash
from engine_shim.engine.cache.prefix_cache import PrefixCache
from engine_shim.engine.engine import Engine
from engine_shim.engine.forward.timed import CostModel, TimedForward
from engine_shim.engine.spec import EngineSpec
from wire.events import AllBlocksCleared, BlockStored

VOCABULARY = 5
PROMPTS = st.lists(st.integers(0, 1), min_size=0, max_size=24)


def build(spec):
    cache = PrefixCache(page_tokens=spec.page_tokens, pool_pages=spec.pool_pages)
    return Engine(spec, TimedForward(CostModel(time_scale=0.0), spec=spec), dp_rank=0, cache=cache), cache


def serve_alone(request, page_tokens, sequence_limit_tokens):
    """What an engine with room for everything and one chunk answers."""
    spec = EngineSpec(
        page_tokens=page_tokens,
        pool_pages=64,
        prefill_chunk_tokens=4096,
        vocabulary_tokens=VOCABULARY,
        max_model_len=sequence_limit_tokens,
    )
    engine, _ = build(spec)
    assert engine.submit(request) is None
    tokens = []
    while engine.has_work:
        tokens += [output.token_id for output in engine.step(0.0).outputs]
    return tokens


class EngineMachine(RuleBasedStateMachine):
    @initialize(
        page_tokens=st.sampled_from([1, 2, 4]),
        pool_pages=st.integers(3, 16),
        max_running=st.integers(1, 4),
        chunk_tokens=st.integers(1, 12),
    )
    def start(self, page_tokens, pool_pages, max_running, chunk_tokens):
        self.spec = EngineSpec(
            page_tokens=page_tokens,
            pool_pages=pool_pages,
            max_running_requests=max_running,
            max_waiting_requests=6,
            prefill_chunk_tokens=chunk_tokens,
            max_model_len=40,
            vocabulary_tokens=VOCABULARY,
        )
        self.engine, self.cache = build(self.spec)
        self.requests, self.tokens, self.ends = {}, {}, {}
        self.told, self.batches = set(), 0

    @rule(
        prompt=PROMPTS,
        salt=st.sampled_from([None, "s"]),
        max_new_tokens=st.integers(0, 20),
        temperature=st.sampled_from([0.0, 1.0]),
    )
    def submit(self, prompt, salt, max_new_tokens, temperature):
        name = f"r{len(self.requests)}"
        sampling = SamplingParams(
            max_new_tokens=max_new_tokens, temperature=temperature, seed=len(prompt), stop_token_ids=(4,)
        )
        request = EngineRequest(request_id=name, prompt_ids=tuple(prompt), sampling=sampling, cache_salt=salt)
        refusal = self.engine.submit(request)
        fits = 0 < len(prompt) < self.spec.sequence_limit_tokens and max_new_tokens > 0
        if refusal is None:
            assert fits
            self.requests[name], self.tokens[name] = request, []
        else:
            assert not fits or refusal.reason == "queue_full"

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def abort(self, data):
        name = data.draw(st.sampled_from(sorted(self.requests)))
        assert self.engine.abort(name) == (name not in self.ends)
        self.ends.setdefault(name, "abort untold")

    @rule(steps=st.integers(1, 5))
    def step(self, steps):
        for _ in range(steps):
            result = self.engine.step(0.0)
            self.take_events(result.events)
            for output in result.outputs:
                self.take_output(output)

    @rule()
    def flush(self):
        assert self.engine.flush_cache() == all(name in self.ends for name in self.requests)

    def take_events(self, events):
        if events and not self.batches:
            assert isinstance(events[0], AllBlocksCleared)
        self.batches += bool(events)
        for event in events:
            if isinstance(event, AllBlocksCleared):
                self.told.clear()
            elif isinstance(event, BlockStored):
                assert not self.told & set(event.block_hashes)
                self.told |= set(event.block_hashes)
            else:
                assert self.told >= set(event.block_hashes)
                self.told -= set(event.block_hashes)
        assert self.told == {event_hash(digest) for digest in self.cache.cached_digests()}

    def take_output(self, output):
        name = output.request_id
        ended = self.ends.get(name)
        assert ended is None or (ended == "abort untold" and output.finish_reason == "abort")
        assert output.prompt_tokens == len(self.requests[name].prompt_ids)
        assert output.cached_tokens < output.prompt_tokens
        assert output.cached_tokens % self.spec.page_tokens == 0
        if output.token_id is not None:
            self.tokens[name].append(output.token_id)
        assert output.output_tokens >= len(self.tokens[name])
        if output.finish_reason is not None:
            self.ends[name] = output.finish_reason
            self.check_tokens(name)

    def check_tokens(self, name):
        alone = serve_alone(self.requests[name], self.spec.page_tokens, self.spec.sequence_limit_tokens)
        got = self.tokens[name]
        assert got == (alone[: len(got)] if self.ends[name] == "abort" else alone)

    @invariant()
    def nothing_leaks(self):
        self.engine.check_invariants()
        if all(name in self.ends for name in self.requests):
            assert self.engine.pages.leased == 0

    def teardown(self):
        if not hasattr(self, "engine"):
            return
        for _ in range(3000):
            if not self.engine.has_work:
                break
            self.step(1)
        assert set(self.ends) == set(self.requests)
        assert "abort untold" not in self.ends.values()
        assert self.engine.pages.leased == 0
        assert self.engine.flush_cache()
        assert self.engine.pages.free == self.spec.pool_pages


TestEngineModel = EngineMachine.TestCase
TestEngineModel.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
