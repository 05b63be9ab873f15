"""The interface of a policy: a query and the candidate ranks in, one choice with every cost out.

Policies have no side effects and no state but an explicit turn counter (round robin); they see values, never an index,
a ledger or a request.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from router.config.policy import Coefficients
from router.fleet.tiers import DEFAULT_LINKS, ReuseOption, TierLinks
from wire.ids import RequestId, SessionId, Target


class HotHead(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a prompt that other sessions begin with too."""

    #: Length of the head.
    tokens: int
    #: Sessions a second that begin with it, of late.
    requests_per_s: float
    #: Ranks that hold it, or are expected to.
    copies: int
    #: Seconds of work ahead on the idlest of them.
    least_wait_s: float


class PlacementQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be placed."""

    request_id: RequestId
    #: Length of the prompt.
    prompt_tokens: int
    #: Output expected.
    expected_output_tokens: int = 256
    #: Of it, tokens that fall beside another answer that begins at the same time.
    joint_output_tokens: int = 128
    #: The same over what an answer without a client's limit would have: 1 without a limit.
    joint_ratio: float = 1.0
    #: Returns of a paused session a second, of late.
    return_rate_per_s: float = 0.0
    #: Conversation, None without affinity.
    session: SessionId | None = None
    #: Where the conversation lives, None where it lives nowhere yet.
    home: Target | None = None
    #: Tokens of it that count among the live ones of its home.
    home_tokens: int = 0
    #: It is one of the sessions that pause there.
    pauses_at_home: bool = False
    #: Live sessions of a rank, on average over the fleet.
    mean_live_sessions: float = 0.0
    #: Seconds of prefill in one request, on average of late.
    request_work_s: float = 0.0
    #: The head it shares with other sessions that begin; None where it shares none, or is none that begins.
    head: HotHead | None = None
    #: Measured prefill seconds of the fleet over those the coefficients predict, 1 while nothing was measured.
    prefill_ratio: float = 1.0
    #: The same for the part that grows with what is attended to, relative to the whole.
    attention_ratio: float = 1.0
    #: The same as `prefill_ratio` for the time between tokens.
    decode_ratio: float = 1.0


class RankView(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate as a policy sees it. Only ranks that may be chosen become views."""

    target: Target
    #: Prompt tokens resident there, confirmed by events.
    overlap_tokens: int = 0
    #: Prompt tokens that another request, placed there a moment ago, is expected to leave; already discounted.
    predicted_overlap_tokens: int = 0
    #: Seconds of prefill this router has placed there and that are not done yet.
    own_wait_s: float = 0.0
    #: Seconds of work there that others placed, as far as the last report shows.
    foreign_wait_s: float = 0.0
    #: Requests placed there and not ended, by this router or by others.
    open_requests: int = 0
    #: Of these, all but what others queued.
    served_requests: int = 0
    #: The ones generating now.
    decoding_requests: int = 0
    #: Tokens that those generating are still expected to produce, summed.
    remaining_output_tokens: int = 0
    #: Tokens that those generating attend to, summed.
    context_tokens: int = 0
    #: Output that open requests are expected to give beside an answer that begins now, summed.
    joint_output_tokens: int = 0
    #: The same, each times the tokens that the request attends to.
    joint_context_tokens: int = 0
    #: Size of the KV cache; None while unknown.
    capacity_tokens: int | None = None
    #: Tokens of it in use or holding something reusable, as far as known.
    resident_tokens: int = 0
    #: Prompt and output of all requests placed there and not ended, summed: what cannot give way to a new one.
    open_tokens: int = 0
    #: Tokens of the sessions that live there, whether they run or pause.
    live_tokens: int = 0
    #: How many they are.
    live_sessions: int = 0
    #: Those of them that pause: how many, and their tokens.
    paused_sessions: int = 0
    paused_tokens: int = 0
    #: Seconds until a token that nobody asks for is pushed out; None while nothing is.
    cache_age_s: float | None = None
    #: Probability that a token pushed out now would have been asked for again.
    eviction_reuse_ratio: float = 0.0
    #: Share of the last minute that work of this router kept the rank busy, 0..1.
    busy_ratio: float = 0.0
    #: Measured prefill seconds of this worker over the fleet's, and the same for the time between tokens.
    prefill_ratio: float = 1.0
    decode_ratio: float = 1.0
    #: Measured seconds that context adds to a step over predicted ones, relative to the rest of the step.
    context_ratio: float = 1.0
    #: Ways to serve the prompt there, where more than its device cache counts; empty elsewhere.
    options: tuple[ReuseOption, ...] = ()
    #: How fast it reads its other tiers.
    links: TierLinks = DEFAULT_LINKS

    @property
    def usable_overlap_tokens(self) -> int:
        """Confirmed or predicted, whichever is longer: both are heads of the same prompt."""
        confirmed, predicted = self.overlap_tokens, self.predicted_overlap_tokens
        # Asked many times for each candidate; max() takes three times as long.
        return confirmed if confirmed >= predicted else predicted  # noqa: FURB136


class CandidateCost(msgspec.Struct, frozen=True):
    """What placing the request on one rank was reckoned to cost."""

    target: Target
    #: Prompt tokens resident there, confirmed by events.
    overlap_tokens: int
    #: Seconds by term, weights applied. Baselines have none.
    terms: dict[str, float]
    #: The figure compared; lowest wins. Seconds for the cost policy, the policy's own unit for a baseline.
    total_s: float
    #: The session's home.
    is_home: bool
    #: Prompt tokens expected from requests being prefilled there now; 0 where nothing is predicted.
    predicted_overlap_tokens: int = 0
    #: Ways to serve the prompt there with other tiers, windows rebuilt or checkpoints; empty where there are none.
    options: tuple[ReuseOption, ...] = ()
    #: Rank that would prefill for it; None where the rank does so itself.
    prefill: Target | None = None


class CostTable(msgspec.Struct, frozen=True):
    """The costs of all candidates of one decision, as columns: thousands of decisions are kept."""

    targets: tuple[Target, ...]
    #: The session's home; None where it has none among the candidates.
    home: Target | None
    overlap_tokens: "array[int]"
    predicted_overlap_tokens: "array[int]"
    #: Names of the terms, in the order of `terms_s`.
    term_names: tuple[str, ...]
    #: Seconds by term, weights applied, one candidate after the other.
    terms_s: "array[float]"
    totals_s: "array[float]"
    #: Of the candidates that have any.
    options: dict[Target, tuple[ReuseOption, ...]] = {}
    #: Prefill ranks of pairs, a column like the others; empty where ranks do all themselves.
    prefills: tuple[Target, ...] = ()

    def __len__(self) -> int:
        return len(self.targets)

    def candidate(self, place: int) -> CandidateCost:
        """One row."""
        target, width = self.targets[place], len(self.term_names)
        terms_s = self.terms_s[place * width : (place + 1) * width]
        return CandidateCost(
            target,
            self.overlap_tokens[place],
            dict(zip(self.term_names, terms_s, strict=True)),
            self.totals_s[place],
            target == self.home,
            self.predicted_overlap_tokens[place],
            self.options.get(target, ()),
            self.prefills[place] if self.prefills else None,
        )

    def candidates(self) -> tuple[CandidateCost, ...]:
        """All rows."""
        return tuple(self.candidate(place) for place in range(len(self.targets)))


def build_table(
    query: PlacementQuery,
    ranks: Sequence[RankView],
    totals_s: Iterable[float],
    *,
    term_names: tuple[str, ...] = (),
    terms_s: Iterable[float] = (),
) -> CostTable:
    """A table over the ranks; without terms for policies that have none."""
    return CostTable(
        tuple([rank.target for rank in ranks]),
        query.home,
        array("q", [rank.overlap_tokens for rank in ranks]),
        array("q", [rank.predicted_overlap_tokens for rank in ranks]),
        term_names,
        array("d", terms_s),
        array("d", totals_s),
        {rank.target: rank.options for rank in ranks if rank.options},
    )


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The rank chosen and how."""

    target: Target
    costs: CostTable
    #: Candidates whose cost was too close to tell them apart, the chosen one among them.
    tied_count: int = 1
    #: Why, where the policy itself knows best; None leaves the words to the explanation of costs.
    reason: str | None = None
    #: Oddities met on the way, such as a cost that was not a number.
    notes: tuple[str, ...] = ()

    @property
    def candidates(self) -> tuple[CandidateCost, ...]:
        """Every candidate with its costs."""
        return self.costs.candidates()


class Seat(msgspec.Struct, frozen=True):
    """What a request meets on the rank chosen: of the figures of its view those that its placement rests on."""

    target: Target
    overlap_tokens: int
    predicted_overlap_tokens: int
    open_requests: int
    served_requests: int
    prefill_ratio: float
    #: Seconds of work ahead, of this router's and of others'.
    wait_s: float
    #: The terms of these names, without weights.
    reuse_s: float
    admission_s: float
    #: What it needs may come from other tiers.
    has_options: bool = False

    @property
    def usable_overlap_tokens(self) -> int:
        """As of the view."""
        return max(self.overlap_tokens, self.predicted_overlap_tokens)


class Policy(Protocol):
    """One way of choosing."""

    @property
    def name(self) -> str:
        """Name in the configuration."""
        ...

    @property
    def coefficients(self) -> Coefficients:
        """What work costs; placement charges load with the same figures."""
        ...

    def choose(self, query: PlacementQuery, ranks: Sequence[RankView], seed: int) -> Choice:
        """Picks one of `ranks`, of which there is at least one. `seed` decides ties and chance."""
        ...
