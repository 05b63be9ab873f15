"""The same traffic once more, in virtual time: whether the policies come in the order that was measured."""

from collections.abc import Callable, Sequence
from random import Random
from statistics import fmean

from msgspec import Struct

from engine_shim.engine.tokenizer import Tokenizer
from simulator.demo.agreement import Agreement, Figure, Noise, Standing, compare
from simulator.demo.blocks import TraceWriter
from simulator.demo.client import Reply
from simulator.demo.plan import DemoPlan
from simulator.demo.replay import draw_starts
from simulator.demo.report import Summary
from simulator.demo.virtual import jitter, simulate_plan
from simulator.fleet.report import RunReport
from simulator.graph.request import BlockTrace
from simulator.traces.history import flat_text
from simulator.traces.session import Message, PromptForm, Session

#: Simulated runs of each policy, and the longest that chance adds to each of their pauses, seconds.
SIMULATED_RUNS, JITTER_S = 5, 0.02


class NotAlikeError(RuntimeError):
    """The live runs did not send the same requests, so that there is nothing to compare."""


class CheckResult(Struct, frozen=True):
    """Both rankings and what their comparison comes to."""

    live: tuple[Standing, ...]
    #: Means of the simulated runs, and the largest less the smallest of each.
    simulated: tuple[Standing, ...]
    spreads: tuple[Standing, ...]
    #: Share of the larger by which two figures must differ to be told apart.
    noise_ratio: float
    agreement: Agreement

    @property
    def noise(self) -> Noise:
        """By which figures were told apart."""
        return Noise(self.spreads, self.noise_ratio)


class OrderCheck:
    """Compares live runs with simulated ones.

    Args:
        plan: What the live runs were made by.
        tokenizer: The fleet's.
        noise_ratio: Figures that differ by less than this share of the larger are tied.
    """

    def __init__(self, plan: DemoPlan, tokenizer: Tokenizer, *, noise_ratio: float) -> None:
        self._plan, self._tokenizer, self._noise_ratio = plan, tokenizer, noise_ratio

    def carry_out(self, summaries: Sequence[Summary], replies: Sequence[Sequence[Reply]]) -> CheckResult:
        """Simulate each policy on the requests that were sent, and compare.

        Args:
            summaries: One a policy.
            replies: Its replies, in the order of their ends.

        Raises:
            NotAlikeError: A request failed, or the runs differ in what they sent.
            RefusedError: The simulated fleet cannot serve what the real one served.
        """
        trace = self._write_trace(replies)
        live = tuple(map(_measured, summaries))
        runs = [self._simulate(trace, summary.policy) for summary in summaries]
        simulated = tuple(_combine(reports, fmean) for reports in runs)
        spreads = tuple(_combine(reports, _spread) for reports in runs)
        agreement = compare(live, simulated, Noise(spreads, self._noise_ratio))
        return CheckResult(live, simulated, spreads, self._noise_ratio, agreement)

    def _write_trace(self, replies: Sequence[Sequence[Reply]]) -> BlockTrace:
        accounts = [_account(run) for run in replies]
        if any(account != accounts[0] for account in accounts):
            raise NotAlikeError("the policies' runs differ in their answers, and so in the prompts that followed")
        plan = self._plan
        answers = {session: [text for text, _ in turns] for session, turns in accounts[0].items()}
        starts_s = draw_starts(len(plan.sessions), plan.arrival_s, plan.seed)
        try:
            trace = TraceWriter(answers, self._encode, block_tokens=plan.page_tokens).write(plan.sessions, starts_s)
        except ValueError as error:
            raise NotAlikeError(str(error)) from error
        counted = {session: [tokens for _, tokens in turns] for session, turns in accounts[0].items()}
        for request in trace.requests:
            tokens = counted[request.session or ""].pop(0)
            if tokens != request.prompt_tokens:
                complaint = (
                    f"{request.request_id}: {request.prompt_tokens} prompt tokens, {tokens} by the engine's count"
                )
                raise NotAlikeError(complaint)
        return trace

    def _encode(self, session: Session, prompt: tuple[Message, ...]) -> list[int]:
        if session.form is PromptForm.TEXT:
            return self._tokenizer.encode(flat_text(prompt))
        return self._tokenizer.encode(self._tokenizer.template.render([message.as_json() for message in prompt]))

    def _simulate(self, trace: BlockTrace, policy: str) -> list[RunReport]:
        chances = (Random(f"jitter/{self._plan.seed}/{run}") for run in range(SIMULATED_RUNS))
        return [simulate_plan(self._plan, jitter(trace, JITTER_S, rng), policy) for rng in chances]


def _account(replies: Sequence[Reply]) -> dict[str, list[tuple[str, int]]]:
    """Answer and prompt tokens of each turn of each session."""
    turns: dict[str, list[tuple[str, int]]] = {}
    for reply in replies:
        if reply.failure is not None:
            raise NotAlikeError(
                f"a request of {reply.session_id} failed, so that the runs are not alike: {reply.failure}"
            )
        turns.setdefault(reply.session_id, []).append((reply.text, reply.prompt_tokens))
    return turns


def _measured(summary: Summary) -> Standing:
    return Standing(
        summary.policy,
        1e3 * (summary.ttft_mean_s or 0.0),
        1e3 * (summary.e2e_mean_s or 0.0),
        summary.cached_ratio or 0.0,
        summary.busiest_over_mean or 0.0,
    )


def _combine(reports: Sequence[RunReport], combine: Callable[[list[float]], float]) -> Standing:
    runs = [
        Standing(each.policy, each.ttft.mean_ms, each.e2e.mean_ms, each.reuse_ratio, each.busiest_share)
        for each in reports
    ]
    return Standing(runs[0].policy, *(combine([run.read(figure) for run in runs]) for figure in Figure))


def _spread(values: list[float]) -> float:
    return max(values) - min(values)
