"""How far a rank's part of the index can be believed."""

from enum import StrEnum


class Trust(StrEnum):
    """One word a rank, for scoring and metrics."""

    #: Every event since the cache was empty has been applied.
    EXACT = "exact"
    #: Blocks from before the first event seen, or of a replay under way, may be missing: credit is a lower bound.
    PARTIAL = "partial"
    #: Events were lost between others, or could not be read, and cannot be had again: credit may be too high.
    STALE = "stale"
    #: The rank is gone or has said nothing yet: no credit.
    LOST = "lost"
