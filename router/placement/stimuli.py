"""Everything that can happen to placement, as values. Past tense; each says when it happened."""

from collections.abc import Set as AbstractSet
from enum import StrEnum

import msgspec

from router.fleet.breaker import Cause, Verdict
from router.fleet.rank import RankFacts
from router.fleet.tiers import ReuseOption
from router.placement.origins import HomeRecord, LedgerPartial
from wire.ids import RequestId, SessionId, Target, WorkerId


class Outcome(StrEnum):
    """How a request ended."""

    DONE = "done"
    ERROR = "error"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    WORKER_LOST = "worker_lost"


class FleetChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The whole fleet, each time. Ranks that vanish are lost: their load is released, their homes forgotten."""

    now_s: float
    ranks: tuple[RankFacts, ...]


class LoadReported(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine says about one of its ranks. None where that engine does not say."""

    now_s: float
    target: Target
    #: Requests being prefilled or decoded.
    running_requests: int
    #: Requests queued in the engine.
    waiting_requests: int
    #: Prompt tokens queued and not found in the cache.
    waiting_tokens: int | None = None
    #: Tokens of the KV pool in use.
    used_tokens: int | None = None
    #: Size of the KV pool.
    capacity_tokens: int | None = None
    #: How old it was at `now_s`.
    age_s: float = 0.0


class RequestArrived(msgspec.Struct, frozen=True, kw_only=True):
    """A request wants a rank. Sent again with `excluded` for a retry, after the first attempt was ended."""

    now_s: float
    request_id: RequestId
    #: Model name asked for; None accepts any.
    model: str | None
    #: Length of the rendered prompt; an estimate where no tokenizer is known.
    prompt_tokens: int
    #: Tokens of the prompt's head resident on each rank, as events confirmed them.
    overlaps: dict[Target, int] = {}
    #: Conversation, None without affinity.
    session: SessionId | None = None
    #: Longest output that the client allows; None without a limit.
    max_output_tokens: int | None = None
    #: Prompts in it. Of several the first output comes before the prefill of all is done.
    prompts: int = 1
    #: Ranks already tried for this request.
    excluded: frozenset[Target] = frozenset()
    #: Chained block hashes of the prompt (`BlockChain.hashes`), so that a burst of siblings sees what is being
    #: prefilled now; empty switches that off for this request.
    chain_hashes: tuple[int, ...] = ()
    #: Tokens a hash of `chain_hashes` stands for.
    chain_block_tokens: int = 0
    #: What the overlaps rest on, in words.
    credit: str = "exact"
    #: Ranks whose overlap is a guess from chunks of text.
    approximate: AbstractSet[Target] = frozenset()
    #: Ways to serve the prompt on ranks where more than the device cache counts.
    options: dict[Target, tuple[ReuseOption, ...]] = {}
    #: Name of state inside one engine that it rests on (`StateKept`); None where it can go anywhere.
    pin: str | None = None
    #: A pair of ranks may serve it; else only one that does everything.
    takes_pair: bool = True
    #: Rank that has prefilled it already, so that only one to generate is wanted; None before.
    prefilled_by: Target | None = None
    #: What its failures are counted as; None while no rank failed any request of late.
    cause: Cause | None = None


class FirstToken(msgspec.Struct, frozen=True, kw_only=True):
    """The first output of a request: its prefill is over."""

    now_s: float
    request_id: RequestId
    #: Prompt tokens the engine says it reused; None where it says so only at the end, or never.
    cached_tokens: int | None = None


class PrefillEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The prefill leg of a pair is over, one way or the other: its rank is free of it."""

    now_s: float
    request_id: RequestId
    outcome: Outcome
    #: Prompt tokens the engine says it reused; None where it does not say.
    cached_tokens: int | None = None


class OutputProgressed(msgspec.Struct, frozen=True, kw_only=True):
    """Output so far, counted from the start of the request."""

    now_s: float
    request_id: RequestId
    output_tokens: int


class RequestEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A request is over, one way or the other. Late and repeated ones change nothing."""

    now_s: float
    request_id: RequestId
    outcome: Outcome
    #: Prompt tokens the engine says it reused; None where it does not say.
    cached_tokens: int | None = None
    #: Tokens generated; None where unknown.
    output_tokens: int | None = None
    #: Answers that have these.
    answers: int = 1
    #: When all of an answer was there that was not streamed; None of others.
    whole_at_s: float | None = None
    #: Seconds for which its stream waited for the client.
    held_s: float = 0.0


class TargetJudged(msgspec.Struct, frozen=True, kw_only=True):
    """What one request said of the rank that had it, before or after its end; a request may say several things."""

    now_s: float
    target: Target
    verdict: Verdict
    #: How long an engine with a full queue wants to be left alone; None where it does not say.
    retry_after_s: float | None = None
    #: Whose request it was; None where no request can have brought it about.
    cause: Cause | None = None


class WorkerProbed(msgspec.Struct, frozen=True, kw_only=True):
    """A worker answered a probe of health well. Probes pass through no breaker: they help to close it."""

    now_s: float
    worker: WorkerId


class StateKept(msgspec.Struct, frozen=True, kw_only=True):
    """An engine keeps something that later requests name: a stored response, an opened session."""

    now_s: float
    #: Name by which requests will ask for it.
    name: str
    target: Target


class StateDropped(msgspec.Struct, frozen=True, kw_only=True):
    """It keeps it no longer."""

    now_s: float
    name: str


class StateLost(msgspec.Struct, frozen=True, kw_only=True):
    """An engine process was replaced by another, and all that it kept is gone. Its ranks are those of the fleet."""

    now_s: float
    worker: WorkerId


class PartialTold(msgspec.Struct, frozen=True, kw_only=True):
    """Another router told what it has placed."""

    now_s: float
    partial: LedgerPartial


class HomeTold(msgspec.Struct, frozen=True, kw_only=True):
    """Another router told where a conversation lives."""

    now_s: float
    record: HomeRecord


Stimulus = (
    FleetChanged
    | LoadReported
    | RequestArrived
    | FirstToken
    | PrefillEnded
    | OutputProgressed
    | RequestEnded
    | TargetJudged
    | WorkerProbed
    | StateKept
    | StateDropped
    | StateLost
    | PartialTold
    | HomeTold
)
