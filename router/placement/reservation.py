"""One running request: what it takes of its rank, and what is remembered to hold against it when its engine has spoken.

Made once at the decision. The ledger keeps it and writes its load; whoever learns from it finds it there.
"""

from enum import StrEnum

import msgspec

from router.placement.homes import ChainMark
from wire.ids import RequestId, SessionId, Target


class Phase(StrEnum):
    """How far a request is."""

    PREFILL = "prefill"
    DECODE = "decode"


class StepParts(msgspec.Struct, frozen=True):
    """A step of generating as the coefficients predict it, without any measured ratio."""

    #: Without any context, seconds.
    base_s: float = 0.0
    #: What the context adds, seconds.
    context_s: float = 0.0


class Reservation(msgspec.Struct, kw_only=True):
    """A running request on its rank."""

    request_id: RequestId
    target: Target
    #: Router that placed it, so that several can share their ledgers.
    origin: str
    #: When it was decided.
    reserved_at_s: float
    prompt_tokens: int

    # Its load, written by the ledger only.

    #: Prompt tokens to be computed.
    uncached_tokens: int
    #: Seconds of prefill, as estimated at the decision.
    prefill_s: float
    #: Seconds of it not done yet.
    remaining_prefill_s: float
    expected_output_tokens: int
    #: Most that the client lets it give; None without a limit.
    max_output_tokens: int | None = None
    output_tokens: int = 0
    #: Output still expected, and what of it falls beside an answer that begins now. Written at each progress.
    remaining_output_tokens: int = 1
    joint_output_tokens: int = 1
    phase: Phase = Phase.PREFILL

    # What measured times and counts are compared with, written by the placer.

    #: Conversation by which its home is known; None without a session.
    session: SessionId | None = None
    #: Tokens assumed to be cached when the load was charged.
    assumed_cached_tokens: int = 0
    #: Nothing was ahead of its one prompt, and nothing is fetched for it: its time to first token is its prefill.
    starts_at_once: bool = False
    #: Requests open on the rank at the decision, which its prefill holds up.
    served_beside: int = 0
    #: Measured over predicted seconds of prefill, as assumed at the decision.
    prefill_ratio: float = 1.0
    #: Its prompt half-way, for the next turn.
    mark: ChainMark | None = None
    #: None before it.
    first_token_at_s: float | None = None
    #: A step on its rank when it began to generate.
    first_step: StepParts = StepParts()

    @property
    def context_tokens(self) -> int:
        """Tokens that it attends to, once it generates."""
        return self.prompt_tokens + self.output_tokens

    @property
    def room_tokens(self) -> int:
        """Tokens of the KV cache that it takes by its end."""
        return self.prompt_tokens + max(self.expected_output_tokens, self.output_tokens)
