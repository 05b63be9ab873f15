"""What measured times of requests teach: the speeds of the fleet and of each worker, against predicted ones."""

import msgspec

from router.config.policy import Coefficients
from router.fleet.pace import AttentionPace, Pace, StepPace, WorkerPaces
from router.placement.reservation import Reservation, StepParts
from router.policy.prefill import prefill_s
from router.policy.steps import attended_s
from wire.ids import WorkerId

#: Fewer uncached tokens than this are over too quickly to tell the speed of prefill from fixed costs.
MIN_MEASURED_TOKENS = 256
#: Fewer tokens of output than this tell nothing of the time between them.
MIN_MEASURED_OUTPUT = 16
#: What is a smaller part of a span than this is not to be learned from it.
MIN_SHARE = 0.05


class Paces(msgspec.Struct):
    """The speeds that are learned: those of the fleet, and of each worker relative to it."""

    prefill: Pace = msgspec.field(default_factory=Pace)
    attention: AttentionPace = msgspec.field(default_factory=AttentionPace)
    decode: StepPace = msgspec.field(default_factory=StepPace)
    workers: WorkerPaces = msgspec.field(default_factory=WorkerPaces)

    @property
    def is_settled(self) -> bool:
        """Whether one measurement more moves both speeds little."""
        return self.prefill.is_settled and self.decode.is_settled


def record_prefill(
    paces: Paces, running: Reservation, *, cached_tokens: int | None, now_s: float, costs: Coefficients
) -> None:
    """The first token came: learns the speed of prefill where the request had the rank to itself."""
    cached = running.assumed_cached_tokens if cached_tokens is None else cached_tokens
    uncached_tokens = running.prompt_tokens - cached
    if not running.starts_at_once or uncached_tokens < MIN_MEASURED_TOKENS:
        return
    ttft_s = now_s - running.reserved_at_s
    attention_ratio = paces.attention.ratio
    computed_s = prefill_s(uncached_tokens, running.prompt_tokens, costs, attention_ratio)
    predicted_s = costs.prefill_step_s + computed_s
    attention_s = computed_s - uncached_tokens * costs.prefill_s_per_token
    share = attention_s / predicted_s if predicted_s > 0 else 0.0
    paces.attention.record(attention_share=share, predicted_s=predicted_s * paces.prefill.ratio, measured_s=ttft_s)
    paces.prefill.record(predicted_s=predicted_s, measured_s=ttft_s)
    paces.workers.record_prefill(
        running.target.worker, predicted_s=predicted_s * paces.prefill.ratio, measured_s=ttft_s, now_s=now_s
    )


class Work(msgspec.Struct, frozen=True):
    """What a rank did in a span of time, in seconds that the coefficients predict, without any measured ratio."""

    #: Of prefill; with the ratio of attention in it.
    prefill_s: float
    #: Of all steps that gave tokens, without their context and of it.
    base_s: float = 0.0
    context_s: float = 0.0


def predict_work_s(paces: Paces, worker: WorkerId, work: Work) -> float:
    """Seconds that so much work takes on a rank of a worker, with every ratio."""
    ratios = paces.workers.find(worker)
    steps_s = paces.decode.predict_s(work.base_s, work.context_s)
    return ratios.prefill * paces.prefill.ratio * work.prefill_s + ratios.decode * steps_s


def record_work(paces: Paces, worker: WorkerId, work: Work, *, measured_s: float, now_s: float) -> None:
    """Some work took so long, or no longer, or at least so long.

    Prefill and steps are both taken to be off by as much as the whole is, and each learns by its share of the whole:
    spans in which these shares differ tell the two apart.
    """
    ratios = paces.workers.find(worker)
    prefill_s, steps_s = paces.prefill.ratio * work.prefill_s, paces.decode.predict_s(work.base_s, work.context_s)
    whole_s = ratios.prefill * prefill_s + ratios.decode * steps_s
    if whole_s <= 0 or measured_s <= 0:
        return
    ratio, share = measured_s / whole_s, ratios.prefill * prefill_s / whole_s
    if share >= MIN_SHARE:
        taken_s = ratio * ratios.prefill * prefill_s
        paces.prefill.record(predicted_s=work.prefill_s, measured_s=taken_s, share=share)
        paces.workers.record_prefill(worker, predicted_s=prefill_s, measured_s=taken_s, now_s=now_s, share=share)
    share = 1.0 - share
    if share >= MIN_SHARE:
        taken_s, step_s = ratio * ratios.decode * steps_s, work.base_s + paces.decode.context_ratio * work.context_s
        # What of it the context adds is not to be told from the prefill: both grow with the prompt.
        paces.decode.record(base_s=step_s, context_s=0.0, measured_s=taken_s, share=share)
        paces.workers.record_decode(worker, predicted_s=steps_s, measured_s=taken_s, now_s=now_s, share=share)


def predict_step(requests: int, context_tokens: int, capacity_tokens: int | None, costs: Coefficients) -> StepParts:
    """The time between two tokens on a rank that generates for so many requests, which attend to so much."""
    return StepParts(
        costs.decode_step_s + costs.decode_s_per_request * requests,
        attended_s(context_tokens, capacity_tokens, costs),
    )


def record_decode(
    paces: Paces, running: Reservation, *, last_step: StepParts, output_tokens: int, now_s: float
) -> None:
    """The answer is complete: learns the time between tokens, from what a step was when it began and when it ended."""
    if running.first_token_at_s is None or output_tokens < MIN_MEASURED_OUTPUT:
        return
    measured_s = (now_s - running.first_token_at_s) / (output_tokens - 1)
    base_s = (running.first_step.base_s + last_step.base_s) / 2
    context_s = (running.first_step.context_s + last_step.context_s) / 2
    paces.decode.record(base_s=base_s, context_s=context_s, measured_s=measured_s)
    predicted_s = paces.decode.predict_s(base_s, context_s)
    paces.workers.record_decode(running.target.worker, predicted_s=predicted_s, measured_s=measured_s, now_s=now_s)
