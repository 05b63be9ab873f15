"""How far a rank's part of the index can be believed.

    LOST     batch 0 -> EXACT; a batch above 0 whose predecessors cannot be had -> PARTIAL
    EXACT    events gone for good -> PARTIAL; a replay that was not answered -> STALE
    PARTIAL  AllBlocksCleared -> EXACT; a replay that was not answered -> STALE
    STALE    AllBlocksCleared -> EXACT; the whole buffer read again -> EXACT or PARTIAL
    any      restart, worker or connection lost -> LOST

Lost removals would leave blocks that are gone. So when events are lost every block of the rank is doubted: it
counts again once the engine stores something below it, which it can only do while the block is there. Credit
of a PARTIAL rank is therefore never too high, and comes back with the conversations that go on.
"""

from enum import StrEnum


class Trust(StrEnum):
    """One word a rank, for scoring and metrics."""

    #: Every event since the cache was empty has been applied.
    EXACT = "exact"
    #: Some resident blocks are not known or not sure (a late start, a replay under way, events lost for good):
    #: credit is a lower bound.
    PARTIAL = "partial"
    #: Events are missing that the publisher may still have: no credit, and a reason to read its buffer again.
    STALE = "stale"
    #: The rank is gone or has said nothing yet: no credit.
    LOST = "lost"
