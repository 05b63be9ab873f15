"""How a worker tells its load: pushed over a socket, or asked for, in one of three forms. Values only.

What was told last is kept with the time it was taken, so that its age can be shown and counted.
"""

from enum import StrEnum

import msgspec

from wire.load import LoadReport


class LoadSource(StrEnum):
    """Where a load report came from, the best first."""

    #: SGLang's load socket: pushed as it changes.
    SOCKET = "socket"
    #: SGLang's `/v1/loads`, or a sidecar's.
    LOADS = "loads"
    #: vLLM's `/metrics`.
    METRICS = "metrics"
    #: vLLM's `/load`: a count of requests and nothing else.
    COUNT = "count"


class TakenLoad(msgspec.Struct, frozen=True):
    """One report."""

    report: LoadReport
    taken_s: float
    source: LoadSource


class WorkerLoads(msgspec.Struct):
    """The last report of each rank of one worker."""

    by_rank: dict[int, TakenLoad] = {}
    #: Form in which it answers when asked; None before it was asked, and where it answers in none.
    asked: LoadSource | None = None
    #: It answered in none when it was asked last.
    is_mute: bool = False

    def record(self, report: LoadReport, taken_s: float, source: LoadSource) -> None:
        """A report came."""
        self.by_rank[report.dp_rank] = TakenLoad(report, taken_s, source)

    def is_pushed(self, ranks: int, now_s: float, *, fresh_s: float) -> bool:
        """Whether the socket of every rank told something of late, so that nobody need be asked."""
        taken = [self.by_rank.get(rank) for rank in range(ranks)]
        return all(
            each is not None and each.source is LoadSource.SOCKET and now_s - each.taken_s <= fresh_s for each in taken
        )
