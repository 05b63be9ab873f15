"""How far a rank's part of the index can be believed.

    LOST     batch 0, an empty replay from 0 or a snapshot -> EXACT; a first batch above 0 -> PARTIAL
    EXACT    events gone for good -> PARTIAL; a replay that was not answered -> STALE
    PARTIAL  AllBlocksCleared or a snapshot -> EXACT; a replay that was not answered -> STALE
    STALE    AllBlocksCleared or a snapshot -> EXACT; the whole buffer read again -> EXACT or PARTIAL
    any      restart, worker or connection lost -> LOST
    any      blocks were due and no batch came in time -> STALE until one comes
    any      the source is a mirror that believes itself less -> what the mirror says

Lost removals would leave blocks that are gone. So when events are lost every block of the rank is doubted: it
counts again once the engine stores something below it, which it can only do while the block is there. Credit
of a PARTIAL rank is therefore never too high, and comes back with the conversations that go on.
"""

from collections.abc import Iterable
from enum import StrEnum


class Trust(StrEnum):
    """One word a rank, for scoring and metrics; the best first."""

    #: Every event since the cache was empty has been applied.
    EXACT = "exact"
    #: Some resident blocks are not known or not sure (a late start, a replay under way, events lost for good):
    #: credit is a lower bound.
    PARTIAL = "partial"
    #: Events are missing that the publisher may still have, or that were due: little credit, the less the longer.
    STALE = "stale"
    #: The rank is gone or has said nothing yet: no credit.
    LOST = "lost"


_ORDER = list(Trust)


def find_worst(levels: Iterable[Trust]) -> Trust:
    """The one that is believed least."""
    return max(levels, key=_ORDER.index, default=Trust.EXACT)


def read_trust(word: str) -> Trust:
    """Trust as a mirror says it; a word that is not known means none."""
    try:
        return Trust(word)
    except ValueError:
        return Trust.LOST
