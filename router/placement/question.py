"""What is to be decided: the query, the ranks that may be chosen, and what lies of the prompt where."""

from collections.abc import Mapping, Sequence
from heapq import nlargest

import msgspec

from router.fleet.outputs import OutputLengths
from router.fleet.tiers import ReuseOption
from router.placement.heads import HotHeads
from router.placement.homes import Home
from router.placement.live import LiveSession
from router.placement.paces import Paces
from router.placement.residency import Expected
from router.placement.standings import Pool, Standings
from router.placement.stimuli import RequestArrived
from router.placement.views import NO_OVERLAP, Overlap, bound_overlap
from router.policy.base import HotHead, PlacementQuery, RankView
from wire.ids import Target

#: Longest prompt or output that is believed.
MAX_TOKENS = 100_000_000
#: Holders of the prompt that are looked at for what need not travel to them.
MAX_HOLDERS = 16


def may_choose(target: Target, pools: Sequence[Pool], excluded: frozenset[Target]) -> bool:
    """Whether a rank of some pools may be chosen."""
    if target not in excluded:
        # A generator would take several times as long, of one pool as a rule.
        for pool in pools:
            if target in pool.targets:
                return True
    return False


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be decided, and by which figures."""

    query: PlacementQuery
    pools: tuple[Pool, ...]
    excluded: frozenset[Target]
    #: Tokens of the prompt's head by rank: confirmed, and expected of requests being prefilled.
    confirmed: Mapping[Target, int]
    expected: Expected
    options: Mapping[Target, tuple[ReuseOption, ...]]
    #: Share of what is expected that is believed.
    credit_ratio: float
    now_s: float

    @property
    def eligible_count(self) -> int:
        """Ranks that may be chosen, but for those tried before."""
        pools = self.pools
        # Asked several times for each request, of one pool as a rule: a sum over a generator takes ten times as long.
        return len(pools[0].targets) if len(pools) == 1 else sum(len(pool.targets) for pool in pools)

    def allows(self, target: Target | None) -> bool:
        """Whether a rank may be chosen."""
        return target is not None and may_choose(target, self.pools, self.excluded)

    def find_overlap(self, target: Target) -> Overlap:
        """What lies on a rank."""
        confirmed, expected = self.confirmed.get(target, 0), self.expected.find(target)
        if confirmed <= 0 and expected <= 0:
            return NO_OVERLAP
        return bound_overlap(
            confirmed_tokens=confirmed,
            predicted_tokens=expected,
            prompt_tokens=self.query.prompt_tokens,
            credit_ratio=self.credit_ratio,
        )

    def find_holders(self) -> list[Target]:
        """Ranks that hold most of the prompt."""
        confirmed = nlargest(MAX_HOLDERS, self.confirmed, key=self.confirmed.__getitem__)
        return list(dict.fromkeys((*confirmed, *self.expected.find_most(MAX_HOLDERS))))

    def view(self, standings: Standings, target: Target) -> RankView:
        """A rank as the policy sees it for this request."""
        return standings.view(target, self.find_overlap(target), self.options.get(target, ()))

    def find_eligible(self) -> list[Target]:
        """Every rank that may be chosen."""
        excluded = self.excluded
        return [target for pool in self.pools for target in pool.targets if target not in excluded]


class Inquiry:
    """Puts the question of an arrival."""

    def __init__(self, *, standings: Standings, paces: Paces, heads: HotHeads, outputs: OutputLengths) -> None:
        self._standings = standings
        self._paces = paces
        self._heads = heads
        self._outputs = outputs

    def ask(
        self,
        arrival: RequestArrived,
        pools: tuple[Pool, ...],
        *,
        home: Home | None,
        live: LiveSession | None,
        expected: Expected,
        mean_live_sessions: float,
        return_rate_per_s: float,
        request_work_s: float,
        credit_ratio: float,
        max_copies: int,
        now_s: float,
    ) -> Question:
        """The question.

        Args:
            arrival: What is placed.
            pools: Ranks that serve its model.
            home: Of its conversation, None where there is none that counts.
            live: The conversation as it loads a rank; None where it is not live.
            expected: Tokens of its head that siblings being prefilled will leave, by rank.
            mean_live_sessions: Live sessions of a rank, on average.
            return_rate_per_s: Returns of a paused session a second.
            request_work_s: Seconds of prefill in a request, on average.
            credit_ratio: Share of what is expected that is believed.
            max_copies: Copies of a hot head beyond which one more earns nothing.
            now_s: When.
        """
        target = None if home is None or not may_choose(home.target, pools, arrival.excluded) else home.target
        lives_there = target is not None and live is not None and live.target == target
        head = None
        if home is None and arrival.session is not None and arrival.chain_hashes:
            head = self._find_head(arrival, max_copies, now_s)
        outlook = self._outputs.foresee(arrival.max_output_tokens)
        query = PlacementQuery(
            request_id=arrival.request_id,
            prompt_tokens=bound_tokens(arrival.prompt_tokens),
            expected_output_tokens=outlook.expected_tokens,
            session=arrival.session,
            home=target,
            home_tokens=live.tokens if lives_there and live is not None else 0,
            pauses_at_home=lives_there and live is not None and live.is_paused,
            mean_live_sessions=mean_live_sessions,
            joint_output_tokens=outlook.joint_tokens,
            joint_ratio=outlook.joint_ratio,
            return_rate_per_s=return_rate_per_s,
            request_work_s=request_work_s,
            head=head,
            prefill_ratio=self._paces.prefill.ratio,
            attention_ratio=self._paces.attention.ratio,
            decode_ratio=self._paces.decode.ratio,
        )
        return Question(
            query=query,
            pools=pools,
            excluded=arrival.excluded,
            confirmed=arrival.overlaps,
            expected=expected,
            options=arrival.options,
            credit_ratio=credit_ratio,
            now_s=now_s,
        )

    def _find_head(self, arrival: RequestArrived, max_copies: int, now_s: float) -> HotHead | None:
        """The hot head of a session that begins, where some rank has it, but not so many that no copy is wanted."""
        hot = self._heads.find(arrival.chain_hashes, arrival.chain_block_tokens, now_s)
        if hot is None:
            return None
        holders = [target for target, tokens in arrival.overlaps.items() if tokens >= hot[0]]
        if not 0 < len(holders) < max_copies:
            return None
        waits_s = [wait_s for wait_s in map(self._standings.find_wait_s, holders) if wait_s is not None]
        if not waits_s:
            return None
        return HotHead(tokens=hot[0], requests_per_s=hot[1], copies=len(holders), least_wait_s=min(waits_s))


def bound_tokens(count: int) -> int:
    """A count within what is believed."""
    return min(max(count, 0), MAX_TOKENS)
