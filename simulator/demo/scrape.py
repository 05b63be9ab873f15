"""Read a metrics page in the Prometheus text form. Pure."""

from collections import defaultdict
from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

from simulator.demo.report import RouterCounters

Sample = tuple[dict[str, str], float]


class MetricsPage:
    """The samples of one page by name."""

    def __init__(self, text: str) -> None:
        self._samples: dict[str, list[Sample]] = defaultdict(list)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self._samples[sample.name].append((sample.labels, sample.value))

    def names(self) -> set[str]:
        """Every sample name on the page."""
        return set(self._samples)

    def samples(self, name: str) -> Iterable[Sample]:
        """Labels and value of each sample of this name; none when it is not on the page."""
        return self._samples.get(name, ())

    def total(self, name: str, **labels: str) -> float:
        """Sum over the samples of this name that carry these labels; 0 when there is none."""
        return sum(value for found, value in self.samples(name) if labels.items() <= found.items())


def router_counters(page: MetricsPage) -> RouterCounters:
    """The counters of a router's page that the demo reports."""
    predictions: dict[str, int] = {}
    for labels, value in page.samples("dovecote_router_predictions_total"):
        accuracy = labels.get("accuracy", "?")
        predictions[accuracy] = predictions.get(accuracy, 0) + int(value)
    return RouterCounters(
        predicted_cached_tokens=int(page.total("dovecote_router_predicted_cached_tokens_total")),
        actual_cached_tokens=int(page.total("dovecote_router_actual_cached_tokens_total")),
        predictions=predictions,
    )
