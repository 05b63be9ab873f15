"""Event sockets of the engines: one thread that feeds the index and keeps its streams whole.

Takes addresses of ranks, gives reuse with trust. Decides nothing about sequence or recovery itself: that is
`prefix_index.RankStream`; here are only sockets, time limits and the lock that matching shares.
"""

from router.events.changes import ChangeLog, Evidence
from router.events.feed import EventFeed
from router.events.table import FeedLimits
from router.fleet.source import RankSource

__all__ = ["ChangeLog", "EventFeed", "Evidence", "FeedLimits", "RankSource"]
