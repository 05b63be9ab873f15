"""Metrics of how decisions stood up, read at each scrape from the sums that placement keeps."""

from collections.abc import Callable, Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from router.control.watched_file import ReloadCounts
from router.metrics import PREFIX
from router.placement.audit import Audit
from router.placement.placer import Placer
from router.tally import to_family


class AuditCollector(Collector):
    """One router's audit.

    Args:
        placer: Whose decisions.
        reloads: How often the policy's file was taken and refused.
        read_problem: What is wrong with that file now; None where nothing is.
    """

    def __init__(self, placer: Placer, reloads: ReloadCounts, read_problem: Callable[[], str | None]) -> None:
        self._placer = placer
        self._reloads = reloads
        self._read_problem = read_problem

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        audit = self._placer.decisions.audit
        yield from _tell_classes(audit)
        yield to_family(PREFIX + "ttft_ratio", "Actual over predicted time to first token.", audit.ttft_ratio)
        yield to_family(
            PREFIX + "regret_seconds",
            "Seconds by which another rank was cheaper, once the real reuse was known.",
            audit.regret_s,
        )
        yield from _tell_shadow(audit)
        yield from self._tell_policy()

    def _tell_policy(self) -> Iterator[Metric]:
        ignored = self._placer.ignored
        yield CounterMetricFamily(
            PREFIX + "policy_failures", "Choices of a policy that had to be overruled.", value=ignored.failed_choices
        )
        yield CounterMetricFamily(
            PREFIX + "clock_jumps", "Stimuli whose time was no number or leapt.", value=self._placer.clock.jumps
        )
        reloads = CounterMetricFamily(
            PREFIX + "policy_reloads", "Changes of the policy's file, by what became of them.", labels=("result",)
        )
        reloads.add_metric(("taken",), self._reloads.taken)
        reloads.add_metric(("refused",), self._reloads.refused)
        yield reloads
        yield GaugeMetricFamily(
            PREFIX + "policy_file_refused",
            "1 while the policy's file as it stands is refused and an older policy acts.",
            value=float(self._read_problem() is not None),
        )


def _tell_classes(audit: Audit) -> Iterator[Metric]:
    tokens = CounterMetricFamily(
        PREFIX + "audited_cached_tokens", "Cached tokens of classed responses.", labels=("accuracy", "side")
    )
    errors = CounterMetricFamily(
        PREFIX + "audited_error_tokens", "Absolute differences of these.", labels=("accuracy",)
    )
    seconds = CounterMetricFamily(
        PREFIX + "audited_ttft_seconds", "Times to first token of classed responses.", labels=("accuracy", "side")
    )
    timed = CounterMetricFamily(
        PREFIX + "audited_first_tokens", "Classed responses whose first token was seen.", labels=("accuracy",)
    )
    for accuracy, sums in audit.classes.items():
        tokens.add_metric((accuracy.value, "predicted"), sums.predicted_tokens)
        tokens.add_metric((accuracy.value, "actual"), sums.actual_tokens)
        errors.add_metric((accuracy.value,), sums.error_tokens)
        seconds.add_metric((accuracy.value, "predicted"), sums.predicted_ttft_s)
        seconds.add_metric((accuracy.value, "actual"), sums.actual_ttft_s)
        timed.add_metric((accuracy.value,), sums.timed_responses)
    yield from (tokens, errors, seconds, timed)


def _tell_shadow(audit: Audit) -> Iterator[Metric]:
    choices = CounterMetricFamily(
        PREFIX + "shadow_choices", "Choices of the second policy, by how they relate to the first.", labels=("result",)
    )
    for result in ("agreed", "differed", "failed", "skipped"):
        choices.add_metric((result,), getattr(audit.shadow, result))
    yield choices
    yield to_family(
        PREFIX + "shadow_excess_seconds",
        "Seconds that the second policy's choice costs more by the acting policy's figures.",
        audit.shadow_excess_s,
    )
