"""One decision without its consequences: what is asked, which ranks come into question, what the policy makes of it.

Reads everything and changes nothing, so that it serves a request, a dry run and a shadow policy alike. A policy that
raises, or chooses a rank it was not given, is overruled and told of.
"""

from collections.abc import Mapping, Sequence

import msgspec

from router.placement.attempt import Paces
from router.placement.heads import HotHeads
from router.placement.homes import Home
from router.placement.shortlist import BoundedPolicy, Found, Shortlist
from router.placement.standings import Pool, Standings
from router.placement.stimuli import RequestArrived
from router.placement.views import bound_overlap
from router.policy.admission import AdmissionTerm
from router.policy.base import Choice, HotHead, PlacementQuery, Policy, RankView
from router.policy.baselines import LeastLoad
from router.policy.reuse import ReuseTerm
from router.policy.ties import find_tied
from wire.ids import Target

#: Longest prompt or output that is believed.
MAX_TOKENS = 100_000_000
#: So few ranks are all looked at, for the sake of the explanation.
FEW_RANKS = 8


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be decided, and by which figures."""

    query: PlacementQuery
    pools: tuple[Pool, ...]
    #: Views of ranks that hold something of the prompt, and of the home.
    special: tuple[RankView, ...]
    excluded: frozenset[Target]
    now_s: float

    @property
    def eligible_count(self) -> int:
        """Ranks that may be chosen, but for those tried before."""
        return sum(len(pool.targets) for pool in self.pools)

    def allows(self, target: Target | None) -> bool:
        """Whether a rank may be chosen."""
        return target not in self.excluded and any(target in pool.targets for pool in self.pools)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy chose."""

    choice: Choice
    #: The rank chosen.
    view: RankView
    #: What went wrong with the policy, in words; None where nothing did.
    failure: str | None = None


class Chooser:
    """Asks one policy."""

    def __init__(self, policy: Policy, standings: Standings, *, seed: int, is_exhaustive: bool) -> None:
        self.policy = policy
        self.costs = policy.coefficients
        self._standings = standings
        self._seed = seed
        self._shortlist: Shortlist | None = None
        if isinstance(policy, BoundedPolicy) and not is_exhaustive:
            self._shortlist = Shortlist(policy, standings, seed)
        self._fallback = LeastLoad(self.costs)
        self._reuse = ReuseTerm(self.costs)
        self._admission = AdmissionTerm(self.costs)

    def answer(self, question: Question) -> Answer:
        """The policy's choice; never raises, there is at least one rank."""
        found, failure = self._find_views(question)
        views = found.views
        choice: Choice | None = None
        if failure is None:
            try:
                choice = self.policy.choose(question.query, views, self._seed)
            except Exception as error:  # noqa: BLE001 - whatever a policy does, the request is placed
                failure = f"{type(error).__name__}: {error}"[:200]
        view = None if choice is None else _find_view(views, choice.target)
        if choice is not None and view is None:
            failure = f"it chose {choice.target}, which cannot be chosen"
        if choice is None or view is None:
            choice = self._overrule(question.query, views, failure)
            view = next(each for each in views if each.target == choice.target)
        if found.alike:
            choice = _count_ties(choice, found.alike)
        return Answer(choice=choice, view=view, failure=failure)

    def _find_views(self, question: Question) -> tuple[Found, str | None]:
        if self._shortlist is None or question.eligible_count <= FEW_RANKS:
            return Found(self.find_all(question), {}), None
        try:
            found = self._shortlist.find(
                question.query,
                question.pools,
                question.special,
                excluded=question.excluded,
                now_s=question.now_s,
            )
        except Exception as error:  # noqa: BLE001 - as above
            return Found(self.find_all(question), {}), f"{type(error).__name__}: {error}"[:200]
        return found, None

    def find_all(self, question: Question) -> list[RankView]:
        """Views of every rank that may be chosen."""
        special = {view.target: view for view in question.special}
        targets = (target for pool in question.pools for target in pool.targets if target not in question.excluded)
        return [special.get(target) or self._standings.view(target) for target in targets]

    def _overrule(self, query: PlacementQuery, views: Sequence[RankView], failure: str | None) -> Choice:
        choice = self._fallback.choose(query, views, self._seed)
        reason = f"policy {self.policy.name} failed ({failure}) and was overruled; {choice.reason}"
        return msgspec.structs.replace(choice, reason=reason)

    def work_s(self, query: PlacementQuery, view: RankView) -> float:
        """Seconds of work that the request adds to the rank: prefill, or fetching where that is quicker."""
        return self._reuse.cost_s(query, view)

    def ttft_s(self, query: PlacementQuery, view: RankView) -> float:
        """Seconds to the first token as predicted: work ahead, room to wait for, own work."""
        ahead_s = view.own_wait_s + view.foreign_wait_s + self._admission.cost_s(query, view)
        return ahead_s + self.work_s(query, view)


def _count_ties(choice: Choice, alike: Mapping[Target, int]) -> Choice:
    """The choice with all ranks counted that tied, also those that one stood for."""
    targets = choice.costs.targets
    count = sum(alike.get(targets[place], 1) for place in find_tied(choice.costs.totals_s))
    return choice if count == choice.tied_count else msgspec.structs.replace(choice, tied_count=count)


def _find_view(views: Sequence[RankView], target: Target) -> RankView | None:
    return next((view for view in views if view.target == target), None)


class Inquiry:
    """Puts the question of an arrival: the query with its figures, and the ranks that hold something."""

    def __init__(self, *, standings: Standings, paces: Paces, heads: HotHeads) -> None:
        self._standings = standings
        self._paces = paces
        self._heads = heads

    def ask(
        self,
        arrival: RequestArrived,
        pools: tuple[Pool, ...],
        *,
        home: Home | None,
        expected: Mapping[Target, int],
        live_tokens_mean: float,
        request_work_s: float,
        predicted_credit_ratio: float,
        now_s: float,
    ) -> Question:
        """The question.

        Args:
            arrival: What is placed.
            pools: Ranks that serve its model.
            home: Of its conversation, None where there is none that counts.
            expected: Tokens of its head that siblings being prefilled will leave, by rank.
            live_tokens_mean: Tokens of live sessions on a rank, on average.
            request_work_s: Seconds of prefill in a request, on average.
            predicted_credit_ratio: Share of what is expected that is believed.
            now_s: When.
        """
        prompt_tokens = bound_tokens(arrival.prompt_tokens)
        held = self._find_held(arrival, pools, expected, None if home is None else home.target)
        overlaps = {
            target: bound_overlap(
                confirmed_tokens=arrival.overlaps.get(target, 0),
                predicted_tokens=expected.get(target, 0),
                prompt_tokens=prompt_tokens,
                credit_ratio=predicted_credit_ratio,
            )
            for target in held
        }
        special = tuple(
            self._standings.view(target, overlap, arrival.options.get(target, ()))
            for target, overlap in overlaps.items()
        )
        at_home = home is not None and home.target in overlaps
        query = PlacementQuery(
            request_id=arrival.request_id,
            prompt_tokens=prompt_tokens,
            expected_output_tokens=bound_tokens(arrival.expected_output_tokens),
            session=arrival.session,
            home=home.target if home is not None and at_home else None,
            home_tokens=home.prompt_tokens if home is not None and at_home else 0,
            mean_live_tokens=live_tokens_mean,
            request_work_s=request_work_s,
            head=None if home is not None else self._find_head(arrival, special, now_s),
            prefill_ratio=self._paces.prefill.ratio,
            attention_ratio=self._paces.attention.ratio,
            decode_ratio=self._paces.decode.ratio,
        )
        return Question(query=query, pools=pools, special=special, excluded=arrival.excluded, now_s=now_s)

    @staticmethod
    def _find_held(
        arrival: RequestArrived, pools: tuple[Pool, ...], expected: Mapping[Target, int], home: Target | None
    ) -> list[Target]:
        """Ranks that may be chosen and are unlike the rest for this request."""
        named = dict.fromkeys((*arrival.overlaps, *expected, *arrival.options))
        if home is not None:
            named[home] = None
        excluded = arrival.excluded
        return [target for target in named if target not in excluded and any(target in pool.targets for pool in pools)]

    def _find_head(self, arrival: RequestArrived, special: Sequence[RankView], now_s: float) -> HotHead | None:
        """The hot head of a session that begins, where some rank has it."""
        if arrival.session is None or not arrival.chain_hashes:
            return None
        hot = self._heads.find(arrival.chain_hashes, arrival.chain_block_tokens, now_s)
        if hot is None:
            return None
        waits_s = [view.own_wait_s + view.foreign_wait_s for view in special if view.usable_overlap_tokens >= hot[0]]
        if not waits_s:
            return None
        return HotHead(tokens=hot[0], requests_per_s=hot[1], copies=len(waits_s), least_wait_s=min(waits_s))


def bound_tokens(count: int) -> int:
    """A count within what is believed."""
    return min(max(count, 0), MAX_TOKENS)
