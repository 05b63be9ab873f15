"""What the router's metrics mean, read from where they are declared: for `docs/metrics.md`.

    python -m router.metrics_docs > docs/metrics.md

The registry of a real router is asked, so that what is not declared there is not told, and what is, is.
"""

import sys
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import Metric

from prefix_index.trust import Trust
from router.admission.rates import RateReason
from router.app import Router
from router.collector import PauseLog
from router.config.fleet import build_fleet_config
from router.control.worker import Standing
from router.fleet.agreement import Disagreement
from router.fleet.breaker import BreakerState
from router.metrics import PREFIX, QueueEnd, RequestOutcome, Tier
from router.placement.accuracy import Accuracy

_HEAD = """# Metrics

Made from the metrics' own words by `python -m router.metrics_docs > docs/metrics.md`; a test holds the two equal, and
another sees each of them move.

`GET /metrics` of a router, for Prometheus. Counters end in `_total`, histograms have `_bucket`, `_sum` and `_count`.
Label values come from the configuration, the fleet and closed lists of words, never from a client: no model, session,
path or request is a label. What to look at first: `docs/operations.md`.
"""

#: Values of each label.
LABELS: dict[str, str] = {
    "worker": "id of a worker of the fleet",
    "dp_rank": "one of its data-parallel ranks",
    "key": "name of a key in `access`",
    "outcome": ", ".join(f"`{word.value}`" for word in RequestOutcome),
    "accuracy": ", ".join(f"`{word.value}`" for word in Accuracy),
    "trust": ", ".join(f"`{word.value}`" for word in Trust),
    "tier": ", ".join(f"`{word.value}`" for word in Tier),
    "end": ", ".join(f"`{word.value}`" for word in QueueEnd),
    "limit": ", ".join(f"`{word.value}`" for word in RateReason),
    "state": ", ".join(f"`{word.value}`" for word in BreakerState),
    "standing": ", ".join(f"`{word.value}`" for word in Standing),
    "source": "`config`, `file`, `api`, and each entry of `discovery.kubernetes`",
    "side": "`predicted`, `actual`",
    "result": "of shadow choices `agreed`, `differed`, `failed`, `skipped`; of files `taken`, `refused`",
    "parity": "`passed`, `partly`, `failed`, `text_only`, `unknown`",
    "kind": "of events their kind in the stream; of disagreement "
    + ", ".join(f"`{word.value}`" for word in Disagreement),
    "reason": "codes of errors (`docs/http.md`), reasons for which events or credit are left out: words of the source",
}


def make_router() -> Router:
    """A router with all that shows metrics, which is never started."""
    router = Router(build_fleet_config({"workers": [{"url": "http://127.0.0.1:1"}]}, "metrics_docs"))
    router.metrics.watch_collector(PauseLog())
    return router


def find_families(router: Router) -> dict[str, tuple[Metric, tuple[str, ...]]]:
    """Every family by its name without the prefix, with the names of its labels."""
    # prometheus_client keeps both to itself, and has no other way to ask for labels that have no value yet.
    collectors = vars(router.metrics.registry)["_collector_to_names"]
    found: dict[str, tuple[Metric, tuple[str, ...]]] = {}
    for collector in collectors:
        for family in collector.collect():
            labels = tuple(_find_labels(family) or _find_labels(collector))
            found[family.name.removeprefix(PREFIX)] = family, labels
    return dict(sorted(found.items()))


def _find_labels(holder: Any) -> tuple[str, ...]:
    return tuple(vars(holder).get("_labelnames", ()))


def render_page() -> str:
    """The whole of `docs/metrics.md`."""
    router = make_router()
    try:
        families = find_families(router)
    finally:
        router.prompts.close()
    return "\n".join([_HEAD, *_tell_families(families), "", *_tell_labels(families), ""])


def _tell_families(families: dict[str, tuple[Metric, tuple[str, ...]]]) -> Iterator[str]:
    yield f"## Families\n\nEach name starts with `{PREFIX}`.\n\n| name | kind | labels | meaning |\n|---|---|---|---|"
    for name, (family, labels) in families.items():
        whole = f"{name}_total" if family.type == "counter" else name
        yield f"| `{whole}` | {family.type} | {', '.join(f'`{each}`' for each in labels)} | {family.documentation} |"


def _tell_labels(families: dict[str, tuple[Metric, tuple[str, ...]]]) -> Iterator[str]:
    used = {label for _, labels in families.values() for label in labels}
    yield "## Labels\n\n| label | values |\n|---|---|"
    for label in sorted(used):
        yield f"| `{label}` | {LABELS[label]} |"


if __name__ == "__main__":
    sys.stdout.write(render_page())
