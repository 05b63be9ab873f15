"""One request between placement and its end: charged once, released once, judged once.

Turns what happens to a request into stimuli for the `Placer` and numbers for the metrics. `end` may be called on
every path and from `finally`; the first call counts.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from prefix_index import BlockChain
from prefix_index.trust import Trust
from router.access.tenants import scope_name
from router.placement.accuracy import Accuracy, classify
from router.placement.decision import Decision
from router.placement.instructions import Place, Reject
from router.placement.stimuli import FirstToken, Outcome, OutputProgressed, PrefillEnded, RequestEnded, StateKept
from router.proxy.asked import Asked, arrive
from router.proxy.kept import name_response
from router.proxy.ports import ProxyParts
from router.proxy.prediction import EVENT_DELAY_S, Prediction, cut_chain, is_raced
from router.proxy.refusal import refusal
from router.proxy.running import RunningRequests
from router.proxy.sse import Usage
from wire.ids import RequestId, Target

_log = logging.getLogger("dovecote.proxy")
_NO_USAGE = Usage()
#: Answers count as so long while requests wait.
OUTPUT_GUESS_TOKENS = 256
#: Outcomes of a prediction that tell whether look-ups and events mean the same.
_COMPARABLE = frozenset({Accuracy.EXACT, Accuracy.UNEXPLAINED, Accuracy.BELIEVED})


class Attempt:
    """The life of one request on the rank chosen for it; after a refused connection, on the next one."""

    def __init__(
        self,
        parts: ProxyParts,
        running: RunningRequests,
        asked: Asked,
        *,
        arrived_s: float,
    ) -> None:
        self._parts = parts
        self._running = running
        self._clock = parts.clock
        self._asked = asked
        self._request_id = asked.request_id
        self._prompt = asked.prompt
        self._arrived_s = arrived_s
        self._excluded: frozenset[Target] = frozenset()
        self._is_retried = False
        self._target: Target | None = None
        #: Rank that prefills for it while its leg is open; None without one.
        self._prefill: Target | None = None
        #: Rank whose cache was predicted from, and what its engine said of it, where a leg of its own was prefilled.
        self._source: Target | None = None
        self._prefill_usage: Usage | None = None
        self._is_comparable = True
        #: Is told of the first output.
        self.on_output: Callable[[], None] | None = None
        self._prediction: Prediction | None = None
        self._first_byte_s: float | None = None
        self._first_output_s: float | None = None
        self._whole_at_s: float | None = None
        #: Seconds for which its client was waited for, and since when it is.
        self._held_s = self._full_since_s = 0.0
        #: Most that one rank held of the prompt at the last look.
        self._held_tokens = 0

    @property
    def request_id(self) -> RequestId:
        """Name of the request."""
        return self._request_id

    @property
    def queue_name(self) -> str:
        """Equal for requests that wait for the same ranks: for those of a model, or the one with some kept state."""
        model, pin = self._asked.model or "", self._asked.pin
        return model if pin is None else f"{model}\0{pin}"

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt, as far as it is known."""
        return self._prompt.prompt_tokens

    @property
    def cost_tokens(self) -> int:
        """Tokens of work: what no rank held of the prompt at the last look, and an answer of usual length."""
        limit = self._asked.max_output_tokens
        output_tokens = OUTPUT_GUESS_TOKENS if limit is None else min(limit, OUTPUT_GUESS_TOKENS)
        return max(1, self._prompt.prompt_tokens - self._held_tokens) + output_tokens * self._asked.choices

    @property
    def asked(self) -> Asked:
        """What is asked for."""
        return self._asked

    def place(self, *, prefilled_by: Target | None = None) -> Place:
        """Choose a rank, or a pair, and charge it.

        Args:
            prefilled_by: Rank that has prefilled it already; only one to generate is chosen.

        Raises:
            FleetError: No rank can take the request.
            RequestError: No rank serves its model, or none has the state that it rests on.
        """
        started_s = self._clock()
        arrival = arrive(self._parts, self._asked, excluded=self._excluded, now_s=started_s)
        if prefilled_by is not None:
            arrival = msgspec.structs.replace(arrival, prefilled_by=prefilled_by)
        self._held_tokens = max(arrival.overlaps.values(), default=0)
        (instruction,) = self._parts.placer.handle(arrival)
        self._parts.metrics.decision.observe(max(0.0, self._clock() - started_s))
        if isinstance(instruction, Reject):
            raise refusal(instruction, self._asked.model, self._parts)
        self._start(instruction, is_prefilled=prefilled_by is not None)
        return instruction

    def exclude_worker(self, target: Target) -> None:
        """A rank's worker cannot be reached: release all charges and never choose it again for this request."""
        self._excluded |= self._parts.fleet.find_ranks(target.worker) | {target}
        self._is_retried = True
        self.end(Outcome.WORKER_LOST)
        self._parts.fleet.report_unreachable(target.worker)

    def readmit_workers(self) -> None:
        """Nobody else is there: a worker that could not be reached may have it once it is healthy again."""
        self._excluded = frozenset()

    def end_prefill(self, outcome: Outcome) -> None:
        """The prefill rank is free of the request; calls after the first change nothing."""
        prefill, self._prefill = self._prefill, None
        if prefill is not None:
            self._running.remove(prefill, self._request_id)
            self._parts.admission.wake()
            cached_tokens = None if self._prefill_usage is None else self._prefill_usage.cached_tokens
            self._parts.placer.handle(
                PrefillEnded(
                    now_s=self._clock(), request_id=self._request_id, outcome=outcome, cached_tokens=cached_tokens
                )
            )

    def skip_prefill(self) -> None:
        """Only the decode leg is sent, though a pair was chosen: nothing of the prediction can come true."""
        self._is_comparable = False
        self.end_prefill(Outcome.CANCELLED)

    def see_prefill_usage(self, usage: Usage) -> None:
        """What the prefill engine says of the prompt."""
        self._prefill_usage = usage

    def see_first_byte(self) -> None:
        """The answer began."""
        if self._first_byte_s is None:
            self._first_byte_s = self._clock()

    def see_whole_answer(self) -> None:
        """All of it is there; a slow client does not count for its engine."""
        self.see_first_byte()
        self._whole_at_s = self._clock()

    def see_first_output(self) -> None:
        """The model's first output came."""
        if self.on_output is not None:
            self.on_output()
        now_s = self._first_output_s = self._clock()
        self._parts.metrics.ttft.observe(max(0.0, now_s - self._arrived_s))
        self._parts.placer.handle(FirstToken(now_s=now_s, request_id=self._request_id))

    def see_progress(self, output_tokens: int) -> None:
        """Output so far."""
        stimulus = OutputProgressed(now_s=self._clock(), request_id=self._request_id, output_tokens=output_tokens)
        self._parts.placer.handle(stimulus)

    def see_full_client(self) -> None:
        """Its stream waits for the client."""
        self._full_since_s = self._clock()

    def see_ready_client(self) -> None:
        """It goes on."""
        self._held_s += self._clock() - self._full_since_s

    def keep_response(self, response_id: str) -> None:
        """The engine named its answer, by which later requests ask for it."""
        if self._target is not None and self._asked.keeps_response:
            self.keep(name_response(response_id))
            self._parts.chains.store(scope_name(self._asked.tenant, response_id), self._asked.session)

    def keep(self, name: str) -> None:
        """The rank keeps something under a name. One that stands for what another worker keeps stays as it is."""
        target, placer = self._target, self._parts.placer
        if target is None:
            return
        name = scope_name(self._asked.tenant, name)
        known = placer.pins.look_up(name, placer.clock.now_s)
        if known is None or known.is_lost or known.target.worker == target.worker:
            placer.handle(StateKept(now_s=self._clock(), name=name, target=target))

    def end(self, outcome: Outcome, usage: Usage | None = None) -> None:
        """Release the charge; calls after the first change nothing."""
        target, prediction = self._target, self._prediction
        if target is None or prediction is None:
            return
        self.end_prefill(outcome)
        self._target = self._prediction = None
        self._running.remove(target, self._request_id)
        self._parts.admission.wake()
        counts, source = usage or _NO_USAGE, self._source or target
        reused_tokens = counts.cached_tokens if self._source is None else count_reused(self._prefill_usage, counts)
        now_s = self._clock()
        self._parts.placer.handle(
            RequestEnded(
                now_s=now_s,
                request_id=self._request_id,
                outcome=outcome,
                cached_tokens=reused_tokens,
                output_tokens=counts.completion_tokens,
                answers=self._asked.choices,
                whole_at_s=self._whole_at_s,
                held_s=self._held_s,
            )
        )
        if outcome is Outcome.DONE:
            self._measure(source, counts, reused_tokens, now_s)
        # To what it keeps of a conversation an engine adds the text: it is not all of the prompt.
        is_whole = self._asked.pin is None
        if outcome is Outcome.DONE and prediction.is_approximate and self._prompt.text is not None and is_whole:
            self._parts.prompts.approximate.learn(
                source, self._prompt.text, prompt_tokens=counts.prompt_tokens, cached_tokens=reused_tokens
            )
        told = self._prefill_usage or counts
        if told.cached_tokens is not None and self._is_comparable:
            self._judge(source, prediction, told.cached_tokens, now_s)

    def _measure(self, source: Target, counts: Usage, reused_tokens: int | None, now_s: float) -> None:
        """A good answer's pace, and what the engines say they had cached: of a pair the two hits are one."""
        metrics = self._parts.metrics
        if counts.completion_tokens:
            tiers = counts.tiers if self._source is None else None
            metrics.count_hits(source, counts.prompt_tokens, reused_tokens, tiers)
        first_s, tokens = self._first_output_s, counts.completion_tokens
        if first_s is not None and tokens is not None and tokens > 1 and self._asked.choices == 1:
            metrics.inter_token.observe(max(0.0, now_s - first_s) / (tokens - 1))

    def _start(self, place: Place, *, is_prefilled: bool) -> None:
        target, decision = place.target, place.decision
        self._source, self._prefill = place.prefill, None if is_prefilled else place.prefill
        source = place.prefill or target
        if self._prompt.uncredited is not None and not self._is_retried:
            self._parts.metrics.uncredited(self._prompt.uncredited).inc()
        self._target = target
        self._prediction = self._predict(source, decision.predicted_cached_tokens)
        self._first_byte_s = None
        for rank in (target,) if self._prefill is None else (source, target):
            self._parts.fleet.count_placed(rank.worker)
            self._running.add(rank, self._request_id, self._prediction if rank == source else None)
            self._parts.metrics.of_rank(rank).placements.inc()
        self._parts.metrics.of_rank(source).prompt_tokens.inc(self._prompt.prompt_tokens)
        _log_placement(decision)

    def _predict(self, target: Target, predicted_tokens: int) -> Prediction:
        reuse, chain = self._parts.reuse, self._find_chain(target)
        is_approximate = self._parts.prompts.approximate.admits(target.worker)
        if chain is None:
            return Prediction(chain=None, predicted_tokens=predicted_tokens, is_approximate=is_approximate)
        return Prediction(
            chain=chain,
            predicted_tokens=predicted_tokens,
            trust=Trust.PARTIAL if self._prompt.is_partial else reuse.find_trust(target),
            position=reuse.find_position(target),
            is_approximate=is_approximate,
            slack_tokens=max(chain.by_size) if chain is self._prompt.pairs else 0,
            is_believed=reuse.has_beliefs(target),
        )

    def _find_chain(self, target: Target) -> BlockChain | None:
        """The prompt's chain in the namespace of a rank."""
        rank = self._parts.placer.fleet.find(target)
        is_pairs = rank is not None and rank.facts.is_bigram
        return self._prompt.pairs if is_pairs else self._prompt.plain

    def _count_new_blocks(self, target: Target, chain: BlockChain, actual_tokens: int) -> int:
        """Full blocks that a rank had to compute; 0 while no block size is known."""
        if self._prompt.rehash is not None:
            return 0
        rank = self._parts.placer.fleet.find(target)
        said = None if rank is None else rank.facts.block_tokens
        size = said if said in chain.by_size else max(chain.by_size)
        return len(chain.by_size[size]) - actual_tokens // size

    def _judge(self, target: Target, prediction: Prediction, actual_tokens: int, now_s: float) -> None:
        """Hold the prediction against the engine's count; a difference waits for events still under way."""
        counters = self._parts.metrics.of_rank(target)
        counters.actual_cached.inc(actual_tokens)
        if prediction.is_approximate:
            self._record(Accuracy.APPROXIMATE)
            return
        counters.predicted_cached.inc(prediction.predicted_tokens)
        if prediction.chain is None:
            return
        new_blocks = self._count_new_blocks(target, prediction.chain, actual_tokens)
        self._parts.reuse.expect_blocks(target, new_blocks, prediction.position)
        if actual_tokens == prediction.predicted_tokens:
            self._conclude(target, prediction, actual_tokens, raced=False)
            return
        until_s = (now_s if self._first_byte_s is None else self._first_byte_s) + EVENT_DELAY_S
        wait_s = min(max(0.0, until_s - now_s), EVENT_DELAY_S)
        asyncio.get_running_loop().call_later(
            wait_s, self._judge_difference, target, prediction, actual_tokens, until_s
        )

    def _judge_difference(self, target: Target, prediction: Prediction, actual_tokens: int, until_s: float) -> None:
        if self._prompt.rehash is not None:
            # The engine has told its block size since.
            chains = self._prompt.rehash()
            prediction.chain = chains[-1] if prediction.chain is self._prompt.pairs else chains[0]
        evidence = self._parts.reuse.find_evidence(target, prediction.position, until_s)
        raced = is_raced(prediction, actual_tokens, evidence)
        accuracy = self._conclude(target, prediction, actual_tokens, raced=raced)
        if accuracy is Accuracy.UNEXPLAINED:
            _log.warning(
                "prediction_unexplained request=%s worker=%s dp_rank=%d predicted_tokens=%d actual_tokens=%d",
                self._request_id, target.worker, target.dp_rank, prediction.predicted_tokens, actual_tokens,
            )  # fmt: skip
        if not raced and prediction.is_believed and prediction.chain is not None:
            known = max(prediction.predicted_tokens, actual_tokens)
            self._parts.reuse.correct(target, cut_chain(prediction.chain, known), actual_tokens)

    def _conclude(self, target: Target, prediction: Prediction, actual_tokens: int, *, raced: bool) -> Accuracy:
        accuracy = classify(
            prediction.predicted_tokens,
            actual_tokens,
            trust=prediction.trust,
            raced=raced,
            choices=self._asked.choices,
            slack_tokens=prediction.slack_tokens,
            believed=prediction.is_believed,
        )
        self._record(accuracy)
        if accuracy in _COMPARABLE and prediction.trust is Trust.EXACT:
            self._compare(target, prediction.predicted_tokens, actual_tokens)
        return accuracy

    def _compare(self, target: Target, predicted_tokens: int, actual_tokens: int) -> None:
        """Predictions that should be exact: a run of differences is told."""
        kind = self._parts.agreement.record(target, predicted_tokens=predicted_tokens, actual_tokens=actual_tokens)
        if kind is not None:
            _log.warning(
                "prediction_disagreement worker=%s dp_rank=%d kind=%s predicted_tokens=%d actual_tokens=%d",
                target.worker, target.dp_rank, kind.value, predicted_tokens, actual_tokens,
            )  # fmt: skip

    def _record(self, accuracy: Accuracy) -> None:
        self._parts.metrics.predictions(accuracy.value).inc()
        self._parts.placer.decisions.record_accuracy(self._request_id, accuracy)


def count_reused(prefill: Usage | None, decode: Usage) -> int | None:
    """Prompt tokens that were not computed, over both legs: each head that an engine found counts once.

    What the decode engine had of the prompt is a head of it, as is what the prefill engine had: the longer holds both.
    """
    said = [usage.cached_tokens for usage in (prefill, decode) if usage is not None and usage.cached_tokens is not None]
    if not said:
        return None
    prompt = next((u.prompt_tokens for u in (decode, prefill) if u is not None and u.prompt_tokens is not None), None)
    return max(said) if prompt is None else min(max(said), prompt)


def _log_placement(decision: Decision) -> None:
    if _log.isEnabledFor(logging.INFO) and decision.target is not None:
        _log.info(
            "placed request=%s worker=%s dp_rank=%d policy=%s prompt_tokens=%d predicted_cached_tokens=%d session=%r",
            decision.request_id, decision.target.worker, decision.target.dp_rank, decision.policy,
            decision.prompt_tokens, decision.predicted_cached_tokens, decision.session,
        )  # fmt: skip
