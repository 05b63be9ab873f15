"""The engine's real core and the router's real core joined through wire bytes, without sockets or threads.

Engines compute with a forward that takes no time; their events go through a dialect's bytes into the streams and the
index; requests are placed by the real placer; what was predicted is held against what the engine found.
"""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_shim.engine.admission.request import EngineRequest, SamplingParams
from engine_shim.engine.engine import Engine
from engine_shim.engine.forward.timed import CostModel, TimedForward
from engine_shim.engine.publish import EventDialect
from engine_shim.engine.spec import EngineSpec
from prefix_index import BlockChain, NaivePrefixIndex, block_hashes
from prefix_index.stream import RankStream
from prefix_index.trust import Trust
from router.events import ChangeLog
from router.fleet.rank import RankFacts
from router.placement.instructions import Place
from router.placement.placer import Placer
from router.placement.stimuli import FleetChanged, Outcome, RequestArrived, RequestEnded
from router.policy.catalogue import build_policy
from router.proxy.prediction import Prediction, is_raced
from wire.block_hash import namespace_seed
from wire.events import EventBatch
from wire.frames import encode_live, encode_replay, encode_replay_end
from wire.ids import RequestId, SessionId, Target, WorkerId

MODEL = "toy"
PAGE_TOKENS = 4
SEED = namespace_seed(MODEL)


def make_chain(ids):
    hashes = tuple(block_hashes(ids, PAGE_TOKENS, SEED))
    return BlockChain(block_tokens=PAGE_TOKENS, hashes=hashes, token_count=len(ids))


class RankPair:
    """One engine rank and the router's stream of it, with the wire between that may lose messages."""

    def __init__(self, target, index, dialect, pool_pages):
        self.target = target
        self._encode: Callable[[EventBatch], bytes] = dialect.encoder()
        self._pool_pages = pool_pages
        self._index = index
        index.attach(target, model=MODEL)
        self.stream = RankStream(target, index, replay_available=True)
        self.log = ChangeLog()
        self.loses_next = 0
        self.lives = 0
        self.boot()

    def boot(self):
        """A new engine process: empty, numbered from 0 again."""
        spec = EngineSpec(page_tokens=PAGE_TOKENS, pool_pages=self._pool_pages, prefill_chunk_tokens=16)
        self.engine = Engine(spec, TimedForward(CostModel(time_scale=0.0), spec=spec), dp_rank=self.target.dp_rank)
        self._buffer = []
        self.lives += 1
        self.step()

    @property
    def is_in_step(self):
        """Whether the router has read all that was published."""
        return self.stream.last_seq == len(self._buffer) - 1 and self.stream.trust is Trust.EXACT

    def step(self):
        """One step of the engine; its events reach the router before its tokens do."""
        result = self.engine.step(0.0)
        if result.events:
            self._publish(
                self._encode(EventBatch(ts_s=float(self.lives), events=result.events, dp_rank=self.target.dp_rank))
            )
        return result.outputs

    def _publish(self, payload):
        seq = len(self._buffer)
        self._buffer.append(payload)
        if self.loses_next:
            self.loses_next -= 1
            return
        self._take(self.stream.on_live(encode_live("", seq, payload), 0.0))

    def _take(self, report):
        for change in report.changes:
            self.log.record(change, 0.0)
        if report.ask_replay_from is not None:
            for seq in range(report.ask_replay_from, len(self._buffer)):
                self._take(self.stream.on_replay(encode_replay(seq, self._buffer[seq]), 0.0))
            self._take(self.stream.on_replay(encode_replay_end(), 0.0))


class Running:
    """A request that is placed and not ended."""

    def __init__(self, name, pair, prediction):
        self.name, self.pair, self.prediction = name, pair, prediction
        self.output = []
        self.cached_tokens = None

    @property
    def is_done(self):
        return self.cached_tokens is not None


class Loop:
    """A fleet of ranks behind one placer."""

    def __init__(self, *, ranks=3, dialect=EventDialect.SGLANG_MAP, pool_pages=24, policy="cache_affinity"):
        self.index = NaivePrefixIndex()
        targets = [Target(WorkerId(f"w{rank // 2}"), rank % 2) for rank in range(ranks)]
        self.pairs = {target: RankPair(target, self.index, dialect, pool_pages) for target in targets}
        self.placer = Placer(policy=build_policy(policy), rng_seed=1)
        facts = tuple(
            RankFacts(target=target, url="u", models=(MODEL,), block_tokens=PAGE_TOKENS) for target in targets
        )
        self.placer.handle(FleetChanged(now_s=0.0, ranks=facts))
        self.running = []
        self.count = 0

    def place(self, ids, session=None, max_new_tokens=3):
        """Place and submit; nothing is computed yet."""
        self.count += 1
        name, chain = RequestId(f"r{self.count}"), make_chain(ids)
        overlaps = self.index.find_reuse(chain)
        arrival = RequestArrived(
            now_s=0.0, request_id=name, model=MODEL, prompt_tokens=len(ids), overlaps=overlaps, session=session
        )
        (place,) = self.placer.handle(arrival)
        assert isinstance(place, Place)
        pair = self.pairs[place.target]
        predicted_tokens = place.decision.predicted_cached_tokens
        prediction = Prediction(
            chain=chain,
            predicted_tokens=predicted_tokens,
            trust=pair.stream.trust,
            position=pair.log.position,
            peers=[],
        )
        sampling = SamplingParams(max_new_tokens=max_new_tokens)
        request = EngineRequest(request_id=name, prompt_ids=tuple(ids), sampling=sampling)
        assert pair.engine.submit(request) is None
        for other in self.running:
            if other.pair is pair:
                other.prediction.add_peer(prediction)
                prediction.add_peer(other.prediction)
        self.running.append(Running(name, pair, prediction))
        return self.running[-1]

    def step(self):
        """One step of every engine that has work."""
        for pair in self.pairs.values():
            for output in pair.step() if pair.engine.has_work else ():
                running = next((each for each in self.running if each.name == output.request_id), None)
                if running is None:
                    continue
                if output.token_id is not None:
                    running.output.append(output.token_id)
                if output.finish_reason is not None:
                    self._end(running, output.cached_tokens)

    def _end(self, running, cached_tokens):
        running.cached_tokens = cached_tokens
        self.running.remove(running)
        self.placer.handle(RequestEnded(now_s=0.0, request_id=running.name, outcome=Outcome.DONE))

    def finish(self):
        while self.running:
            self.step()

    def ask(self, ids, session=None):
        """One request alone, from placement to its end."""
        running = self.place(ids, session)
        self.finish()
        return running

    def check(self):
        assert not self.placer.ledger.open_requests()
        self.placer.check_invariants()
        self.index.check_invariants()
        for pair in self.pairs.values():
            pair.engine.check_invariants()


def explained(running):
    """Whether the prediction was right, or evidence says why it was not."""
    prediction, actual = running.prediction, running.cached_tokens
    evidence = running.pair.log.find_since(prediction.position, until_s=0.0)
    return actual == prediction.predicted_tokens or is_raced(prediction, actual, evidence)


@pytest.mark.parametrize("dialect", list(EventDialect))
def test_a_growing_conversation_is_predicted_exactly_in_every_dialect(dialect):
    loop = Loop(dialect=dialect)
    ids = list(range(20))
    for turn in range(8):
        running = loop.ask(ids, SessionId("s"))
        assert running.cached_tokens == running.prediction.predicted_tokens
        assert (running.cached_tokens > 0) == (turn > 0)
        ids = [*ids, *running.output, *range(100 + turn, 103 + turn)]
    loop.check()


PROMPTS = st.lists(st.sampled_from([range(24), range(12), range(50, 61), range(30), (7, 7, 7)]), min_size=1, max_size=3)
STEPS = st.lists(
    st.tuples(PROMPTS, st.sampled_from(["ask", "ask", "ask", "lose", "flush", "restart", "continue"])),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(
    steps=STEPS, dialect=st.sampled_from(list(EventDialect)), policy=st.sampled_from(["cache_affinity", "round_robin"])
)
def test_every_request_alone_is_exact_through_evictions_losses_flushes_and_restarts(steps, dialect, policy):
    loop = Loop(ranks=2, dialect=dialect, pool_pages=14, policy=policy)
    last = []
    for place, (parts, action) in enumerate(steps):
        pair = list(loop.pairs.values())[place % len(loop.pairs)]
        if action == "lose":
            pair.loses_next = 1
        elif action == "flush":
            pair.engine.flush_cache()
            pair.step()
        elif action == "restart":
            pair.boot()
        ids = [*(last if action == "continue" else []), *(token for part in parts for token in part)][:48]
        # A lost message shows with the next one; until then its rank is credited with what it had.
        in_step = all(pair.is_in_step for pair in loop.pairs.values())
        running = loop.ask(ids)
        last = [*ids, *running.output]
        if in_step:
            assert running.cached_tokens == running.prediction.predicted_tokens
    loop.check()


@settings(max_examples=60, deadline=None)
@given(
    bursts=st.lists(st.lists(PROMPTS, min_size=1, max_size=5), min_size=1, max_size=6),
    pauses=st.lists(st.integers(0, 3), min_size=6, max_size=6),
)
def test_of_requests_side_by_side_every_difference_is_explained_by_evidence(bursts, pauses):
    loop = Loop(ranks=2, pool_pages=40)
    placed = []
    for burst, pause in zip(bursts, pauses, strict=False):
        for parts in burst:
            placed.append(loop.place([token for part in parts for token in part]))
        for _ in range(pause):
            loop.step()
    loop.finish()
    assert all(explained(running) for running in placed)
    loop.check()


def test_a_restarted_rank_starts_without_credit_and_is_exact_again():
    loop = Loop(ranks=1)
    (pair,) = loop.pairs.values()
    ids = list(range(20))
    assert loop.ask(ids).cached_tokens == 0
    assert loop.ask(ids).prediction.predicted_tokens == 16
    pair.boot()
    assert pair.stream.counters.resets == 1
    after = loop.ask(ids)
    assert (after.prediction.predicted_tokens, after.cached_tokens) == (0, 0)
    assert loop.ask(ids).prediction.predicted_tokens == 16
    assert pair.stream.trust is Trust.EXACT


def test_a_prediction_of_another_prefix_is_not_explained_away():
    loop = Loop(ranks=1)
    running = loop.ask(list(range(20)))
    running.prediction.predicted_tokens = 8
    assert not explained(running)
