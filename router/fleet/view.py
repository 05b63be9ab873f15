"""The fleet as placement knows it: each rank's facts, its last load report with its age, what it was given of late."""

from collections.abc import Iterable

import msgspec

from router.fleet.ages import ReuseAges
from router.fleet.load import OwnLoad, ReportedLoad, bound_count
from router.fleet.rank import RankFacts
from router.fleet.recent import RecentWork
from wire.ids import Target

#: Seconds for which work given to a rank is remembered.
RECENT_MEMORY_S = 60.0
#: Seconds for which a model is known though its last worker left: one that is replaced takes as long to load.
MODEL_MEMORY_S = 600.0
#: Models that are known so.
MAX_GONE_MODELS = 1_000


class Rank:
    """One rank: facts, report and memory."""

    def __init__(self, facts: RankFacts, *, memory_s: float) -> None:
        self.facts = facts
        self.report: ReportedLoad | None = None
        self.recent = RecentWork(memory_s=memory_s)
        self.ages = ReuseAges()

    def find_capacity_tokens(self) -> int | None:
        """Size of its KV cache: the report's figure, else the facts'."""
        if self.report is not None and self.report.capacity_tokens:
            return self.report.capacity_tokens
        return self.facts.capacity_tokens

    def find_resident_tokens(self) -> int:
        """Tokens in use or cached: what it reports, or what was sent there, whichever is more; at most its capacity."""
        used_tokens = 0 if self.report is None else self.report.used_tokens or 0
        resident_tokens = max(used_tokens, self.recent.filled_tokens)
        capacity_tokens = self.find_capacity_tokens()
        return resident_tokens if capacity_tokens is None else min(resident_tokens, capacity_tokens)


class Fleet:
    """All ranks, in the order in which discovery lists them."""

    def __init__(self, *, memory_s: float = RECENT_MEMORY_S) -> None:
        self._ranks: dict[Target, Rank] = {}
        self._memory_s = memory_s
        #: Models whose last rank left, and until when they are known.
        self._gone_models: dict[str, float] = {}
        #: Work of all ranks of late.
        self.recent = RecentWork(memory_s=memory_s)

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, target: object) -> bool:
        return target in self._ranks

    def replace(self, ranks: Iterable[RankFacts], now_s: float = 0.0) -> tuple[Target, ...]:
        """Takes the whole fleet anew; returns the ranks that vanished. One that comes back later starts empty."""
        before = self._ranks
        gone_models = dict.fromkeys(self.find_models(), now_s + MODEL_MEMORY_S)
        self._ranks = {}
        for facts in ranks:
            rank = before.get(facts.target)
            if rank is None:
                rank = Rank(facts, memory_s=self._memory_s)
            rank.facts = facts
            self._ranks[facts.target] = rank
        known = {name: until_s for name, until_s in self._gone_models.items() if now_s < until_s} | gone_models
        served = frozenset(self.find_models())
        self._gone_models = dict([each for each in known.items() if each[0] not in served][-MAX_GONE_MODELS:])
        return tuple(target for target in before if target not in self._ranks)

    def find(self, target: Target) -> Rank | None:
        """A rank, None where it is not of the fleet."""
        return self._ranks.get(target)

    def ranks(self) -> Iterable[Rank]:
        """Every rank."""
        return self._ranks.values()

    def find_serving(self, model: str | None) -> list[Rank]:
        """Ranks that serve a model, available or not."""
        return [rank for rank in self._ranks.values() if model is None or model in rank.facts.models]

    def is_awaited(self, model: str | None, now_s: float) -> bool:
        """Whether nobody serves a model any more, and somebody did until a short while ago."""
        return model is not None and now_s < self._gone_models.get(model, now_s)

    def find_models(self) -> tuple[str, ...]:
        """Every model that a rank serves, available or not."""
        return tuple(dict.fromkeys(name for rank in self._ranks.values() for name in rank.facts.models))


class ReportedCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one report as they came, before they are bounded."""

    running_requests: int
    waiting_requests: int
    waiting_tokens: int | None
    used_tokens: int | None
    capacity_tokens: int | None


def build_report(counts: ReportedCounts, *, own: OwnLoad, now_s: float, s_per_token: float = 0.0) -> ReportedLoad:
    """A report as it is kept: every count bounded, and what this router had there set beside it.

    Args:
        counts: As they came.
        own: What this router had there.
        now_s: When.
        s_per_token: Seconds of prefill that a queued token takes, as known then.
    """
    report = ReportedLoad(
        reported_at_s=now_s,
        running_requests=bound_count(counts.running_requests) or 0,
        waiting_requests=bound_count(counts.waiting_requests) or 0,
        waiting_tokens=bound_count(counts.waiting_tokens),
        used_tokens=bound_count(counts.used_tokens),
        capacity_tokens=bound_count(counts.capacity_tokens),
        own=own,
        s_per_token=s_per_token,
    )
    if report.foreign_requests() or report.foreign_waiting_tokens(1):
        return report
    return msgspec.structs.replace(report, has_foreign=False)
