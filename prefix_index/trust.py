"""How far a rank's part of the index can be believed."""

from enum import StrEnum


class Trust(StrEnum):
    """One word a rank, for scoring and metrics."""

    #: Every event since the cache was empty has been applied.
    EXACT = "exact"
    #: Blocks from before the first event seen may be missing: credit is a lower bound.
    PARTIAL = "partial"
    #: Events were lost and could not be had again: credit may be too high or too low, and ages.
    STALE = "stale"
    #: The rank is gone or has said nothing yet: no credit.
    LOST = "lost"
