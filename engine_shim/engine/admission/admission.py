"""Continuous batching: who runs in a step, with how many tokens, on which pages.

Takes requests and sampled tokens from the engine, gives it a plan and outputs. Leases come from the
prefix cache; nothing is computed here.

Served in order of arrival. The oldest running sequence can always go on: when pages run out, the youngest
gives its lease back (its full pages stay cached) and resumes later from what the cache still has.
So every request ends.
"""

from collections.abc import Sequence as Seq
from itertools import count as count_up

import msgspec

from engine_shim.engine.admission.budget import TokenBudget
from engine_shim.engine.admission.outcome import TokenOutput
from engine_shim.engine.admission.queues import Queues
from engine_shim.engine.admission.refuse import find_refusal
from engine_shim.engine.admission.request import EngineRequest, Refusal, RefusalReason
from engine_shim.engine.admission.sequence import Sequence
from engine_shim.engine.cache.prefix_cache import Lease, PrefixCache
from engine_shim.engine.spec import EngineSpec


class AdmissionCounters(msgspec.Struct):
    """Sums since the start."""

    #: Prompt tokens of admitted requests, each counted once.
    prompt_tokens: int = 0
    #: Of those, found in the cache at the first admission.
    cached_tokens: int = 0
    #: Tokens prefilled, those computed again after a retraction included.
    computed_tokens: int = 0
    generated_tokens: int = 0
    #: Times that a running request gave its pages back.
    retracted_requests: int = 0
    finished_requests: int = 0
    aborted_requests: int = 0


class PlannedRow(msgspec.Struct, frozen=True):
    """Tokens `[sequence.computed_tokens, end_token)` of a running sequence."""

    sequence: Sequence
    lease: Lease
    end_token: int

    @property
    def samples(self) -> bool:
        """Whether all known tokens are computed after this row, so that the next one is sampled."""
        return self.end_token == self.sequence.total_tokens


class Admission:
    """The sequences of one rank and what they hold."""

    def __init__(self, spec: EngineSpec, cache: PrefixCache) -> None:
        self._spec = spec
        self._cache = cache
        self._next_number = 0
        #: For blocks of generated tokens, where prompts are lists of block ids.
        self._own_ids = count_up()
        self.queues = Queues()
        self.counters = AdmissionCounters()

    def submit(self, request: EngineRequest) -> Refusal | None:
        """Let a request wait, or say why it cannot be served."""
        refusal = find_refusal(request, self._spec) or self._find_conflict(request)
        if refusal is None:
            self.queues.add(Sequence(request, self._next_number, self._spec, self._own_ids))
            self._next_number += 1
        return refusal

    def abort(self, request_id: str) -> TokenOutput | None:
        """End a request now, wherever it is; its computed full pages stay cached."""
        sequence = self.queues.remove(request_id)
        if sequence is None:
            return None
        self._give_up_lease(sequence)
        self.counters.aborted_requests += 1
        return sequence.report(None, "abort")

    def plan(self) -> tuple[PlannedRow, ...]:
        """Decide the rows of the next step, oldest sequence first, and lease their pages."""
        budget = TokenBudget(self._spec.prefill_chunk_tokens)
        retracted_requests = self.counters.retracted_requests
        plan_row = self._plan_row
        rows = [plan_row(sequence, budget) for sequence in tuple(self.queues.running)]
        # Who just gave pages back for want of room is not let in again by the same step.
        while self.counters.retracted_requests == retracted_requests and self._admit_next(budget):
            rows.append(plan_row(self.queues.running[-1], budget))
        return tuple([row for row in rows if row is not None])

    def settle(self, rows: Seq[PlannedRow], token_ids: Seq[int | None]) -> tuple[TokenOutput, ...]:
        """Take in what was computed: publish full pages, append sampled tokens, end what is done."""
        outputs = []
        id_tokens, publish = self._spec.id_tokens, self._cache.publish
        for row, token_id in zip(rows, token_ids, strict=True):
            sequence, end_token = row.sequence, row.end_token
            if not sequence.is_decoding:
                prefill_end_token = min(end_token, sequence.prefill_end_token)
                self.counters.computed_tokens += prefill_end_token - sequence.computed_tokens
            sequence.computed_tokens = end_token
            publish(row.lease, sequence.token_bytes, end_token // id_tokens)
            if token_id is not None:
                outputs.append(self._take_token(sequence, token_id))
        return tuple(outputs)

    def count_like_steps(self, rows: Seq[PlannedRow]) -> int:
        """How many steps in a row will do just what `rows` do: none ends, and none begins a page, before the last.

        1 where something is prefilled. Admission cannot change meanwhile: no page is taken or given back.
        """
        page_tokens = self._spec.page_tokens
        steps = page_tokens
        for row in rows:
            sequence = row.sequence
            if not sequence.is_decoding:
                return 1
            steps = min(steps, sequence.left_tokens, page_tokens - sequence.computed_tokens % page_tokens)
        return steps

    def lengthen(self, rows: Seq[PlannedRow], steps: int) -> tuple[PlannedRow, ...]:
        """Make `rows` stand for `steps` steps, at most `count_like_steps`; only where generated tokens are not kept."""
        if steps < 2:
            return tuple(rows)
        for row in rows:
            row.sequence.skip(steps - 1)
        self.counters.generated_tokens += (steps - 1) * len(rows)
        return tuple([PlannedRow(row.sequence, row.lease, row.end_token + steps - 1) for row in rows])

    def count_waiting_uncached_tokens(self) -> int:
        """Prompt tokens that wait and would have to be computed. Cost: one match a waiting request."""
        queues = self.queues
        return sum(
            sequence.total_tokens - self._cached_tokens(sequence) for sequence in (*queues.retracted, *queues.waiting)
        )

    def _find_conflict(self, request: EngineRequest) -> Refusal | None:
        if request.request_id in self.queues:
            message = f"request_id {request.request_id!r} is being served; ids are unique while they run"
            return Refusal(reason=RefusalReason.DUPLICATE_REQUEST, message=message)
        if len(self.queues.waiting) >= self._spec.max_waiting_requests:
            message = f"{len(self.queues.waiting)} requests wait, which is the limit; try again later"
            return Refusal(reason=RefusalReason.QUEUE_FULL, message=message)
        return None

    def _admit_next(self, budget: TokenBudget) -> bool:
        """Admit the next sequence if there is a place, budget and room for all its known tokens.

        Budget is left only when every running prompt has its pages already, so that each of those
        sequences is owed one page more: the one that its next tokens may begin.
        """
        sequence = self.queues.find_next()
        if sequence is None or not budget.left_tokens:
            return False
        if len(self.queues.running) >= self._spec.max_running_requests:
            return False
        match = self._cache.match(sequence.token_bytes, sequence.request.cache_salt)
        spare = 0 if self._spec.admits_tightly else 1
        needed = self._pages_for(sequence.total_tokens + spare) - len(match.pages) + match.unheld_pages
        if self.queues.running and needed + spare * len(self.queues.running) > self._cache.obtainable_pages:
            return False
        self._start(sequence, self._cache.lease(match))
        return True

    def _start(self, sequence: Sequence, lease: Lease) -> None:
        self.queues.admit(sequence)
        sequence.lease = lease
        sequence.computed_tokens = len(lease.pages) * self._spec.page_tokens
        sequence.prefill_end_token = sequence.total_tokens
        if sequence.cached_tokens is None:
            sequence.cached_tokens = sequence.computed_tokens
            self.counters.prompt_tokens += sequence.prompt_tokens
            self.counters.cached_tokens += sequence.cached_tokens

    def _plan_row(self, sequence: Sequence, budget: TokenBudget) -> PlannedRow | None:
        """A row for the sequence; None where the budget is spent, or where it had to give its lease back."""
        lease = sequence.lease
        if lease is None:  # an older one took its pages in this very step
            return None
        count = 1
        if self._spec.decode_shares_chunk or not sequence.is_decoding:
            count = budget.take(sequence.total_tokens - sequence.computed_tokens)
        if not count:
            return None
        end_token = sequence.computed_tokens + count
        if end_token > len(lease.pages) * self._spec.page_tokens and not self._make_room(sequence, lease, end_token):
            return None
        return PlannedRow(sequence, lease, end_token)

    def _make_room(self, sequence: Sequence, lease: Lease, end_token: int) -> bool:
        """Pages up to a token, at the cost of the youngest; False where that was the sequence itself."""
        while not self._cache.grow(lease, self._pages_for(end_token)):
            retracted = self.queues.retract_youngest()
            self._give_up_lease(retracted)
            self.counters.retracted_requests += 1
            if retracted is sequence:
                return False
        return True

    def _take_token(self, sequence: Sequence, token_id: int) -> TokenOutput:
        finish_reason = sequence.append(token_id)
        self.counters.generated_tokens += 1
        if finish_reason is not None:
            self.queues.remove(sequence.request.request_id)
            self._give_up_lease(sequence)
            self.counters.finished_requests += 1
        return sequence.report(token_id, finish_reason)

    def _give_up_lease(self, sequence: Sequence) -> None:
        if sequence.lease is not None:
            self._cache.release(sequence.lease)
            sequence.lease = None
            sequence.computed_tokens = 0

    def _cached_tokens(self, sequence: Sequence) -> int:
        match = self._cache.match(sequence.token_bytes, sequence.request.cache_salt)
        return len(match.pages) * self._spec.page_tokens

    def _pages_for(self, tokens: int) -> int:
        return -(-tokens // self._spec.page_tokens)
