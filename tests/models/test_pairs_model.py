"""A placer of whole ranks and pairs under any order of stimuli: each leg is charged once and released once."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from router.fleet.rank import RankFacts
from router.fleet.role import Engine, Role
from router.placement.instructions import Place
from router.placement.placer import Placer, PlacerSettings
from router.placement.stimuli import FirstToken, FleetChanged, Outcome, PrefillEnded, RequestArrived, RequestEnded
from router.policy.catalogue import build_policy
from wire.ids import RequestId, SessionId, Target, WorkerId

TARGETS = tuple(Target(WorkerId(worker), rank) for worker in ("p", "q", "d", "e", "w") for rank in (0, 1))
ROLES = {"p": Role.PREFILL, "q": Role.PREFILL, "d": Role.DECODE, "e": Role.DECODE, "w": Role.AGGREGATED}
NAMES = tuple(RequestId(f"r{n}") for n in range(5))
names, targets = st.sampled_from(NAMES), st.sampled_from(TARGETS)


class PairMachine(RuleBasedStateMachine):
    """Beside the placer stands who is open where, in the plainest way."""

    def __init__(self):
        super().__init__()
        self.now_s = 0.0
        self.present: set[Target] = set()
        #: Where a request generates, and where its prefill leg is while that is open.
        self.open: dict[RequestId, Target] = {}
        self.prefilling: dict[RequestId, Target] = {}

    @initialize(policy=st.sampled_from(("cache_affinity", "round_robin", "session_hash", "overlap_linear")))
    def build(self, policy):
        self.placer = Placer(policy=build_policy(policy), rng_seed=5, settings=PlacerSettings(max_homes=3))
        self.change_fleet(set(TARGETS))

    @rule(present=st.sets(targets, min_size=3))
    def change_fleet(self, present):
        self.present = present
        ranks = tuple(
            RankFacts(target=t, url="http://x", models=("toy",), role=ROLES[t.worker], engine=Engine.VLLM)
            for t in sorted(present)
        )
        self.placer.handle(FleetChanged(now_s=self.now_s, ranks=ranks))
        self.open = {name: target for name, target in self.open.items() if target in present}
        self.prefilling = {
            name: target for name, target in self.prefilling.items() if target in present and name in self.open
        }

    @rule(by_s=st.floats(0.0, 20.0))
    def let_time_pass(self, by_s):
        self.now_s += by_s

    @rule(
        name=names,
        session=st.none() | st.sampled_from("st"),
        excluded=st.frozensets(targets, max_size=4),
        overlaps=st.dictionaries(targets, st.integers(0, 9_000), max_size=4),
        takes_pair=st.booleans(),
        prefilled_by=st.none() | st.none() | st.sampled_from(TARGETS[:4]),
    )
    def arrive(self, name, session, excluded, overlaps, takes_pair, prefilled_by):  # noqa: PLR0917
        arrival = RequestArrived(
            now_s=self.now_s,
            request_id=name,
            model="toy",
            prompt_tokens=8_000,
            overlaps=overlaps,
            session=None if session is None else SessionId(session),
            excluded=excluded,
            takes_pair=takes_pair,
            prefilled_by=prefilled_by,
            chain_hashes=(1, 2, 3),
            chain_block_tokens=16,
        )
        self.placer.explain(arrival)
        (placed,) = self.placer.handle(arrival)
        if not isinstance(placed, Place):
            return
        assert name not in self.open
        assert placed.target not in excluded
        if placed.prefill is None:
            assert ROLES[placed.target.worker] is Role.AGGREGATED
        else:
            assert takes_pair
            assert (ROLES[placed.prefill.worker], ROLES[placed.target.worker]) == (Role.PREFILL, Role.DECODE)
            assert placed.prefill in ({prefilled_by} if prefilled_by else self.present - excluded)
        self.open[name] = placed.target
        if placed.prefill is not None and prefilled_by is None:
            self.prefilling[name] = placed.prefill

    @rule(name=names, outcome=st.sampled_from(Outcome), cached=st.none() | st.integers(-5, 9_000))
    def end_prefill(self, name, outcome, cached):
        self.placer.handle(PrefillEnded(now_s=self.now_s, request_id=name, outcome=outcome, cached_tokens=cached))
        self.prefilling.pop(name, None)

    @rule(name=names)
    def show_first_token(self, name):
        self.placer.handle(FirstToken(now_s=self.now_s, request_id=name))
        self.prefilling.pop(name, None)

    @rule(name=names, outcome=st.sampled_from(Outcome))
    def end(self, name, outcome):
        self.placer.handle(RequestEnded(now_s=self.now_s, request_id=name, outcome=outcome, output_tokens=20))
        self.open.pop(name, None)
        self.prefilling.pop(name, None)

    @invariant()
    def every_rank_carries_the_legs_that_are_open_there(self):
        self.placer.check_invariants()
        legs = [*self.open.values(), *self.prefilling.values()]
        for target in TARGETS:
            assert self.placer.ledger.totals(target, self.now_s).open_requests == legs.count(target)

    def teardown(self):
        for name in NAMES:
            self.end(name, Outcome.CANCELLED)
        assert len(self.placer.ledger) == 0
        assert self.placer.ledger.reserved_total == self.placer.ledger.released_total
        self.placer.check_invariants()


TestPairs = PairMachine.TestCase
TestPairs.settings = settings(
    max_examples=50, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
