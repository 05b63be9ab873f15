"""Numbers under which the two engines of an SGLang pair find each other. Pure.

An SGLang prefill worker with several ranks takes the rank `room mod ranks` for given, so that a room says the rank that
was chosen. Laid out as 15 bits of this router, 38 of a count that starts anywhere, 10 that make the rank: no two rooms
of one router are equal, those of two routers differ, none is 0, and all fit into a signed 64-bit number.
Source: SGLang `srt/disaggregation/common/conn.py`.
"""

#: Most ranks of a worker; the stride of the count.
MAX_RANKS = 1_024
_COUNT_BITS, _ROUTER_BITS = 38, 15
_COUNTS = 1 << _COUNT_BITS


class Rooms:
    """Mints rooms, each once."""

    def __init__(self, router_id: int, first: int) -> None:
        """Start counting.

        Args:
            router_id: Tells this router from others; its lowest 15 bits count.
            first: Where the count starts, so that a restarted router does not repeat rooms that still live.
        """
        self._base = (router_id % (1 << _ROUTER_BITS)) * _COUNTS
        self._count = first % _COUNTS

    def mint(self, dp_rank: int, dp_size: int) -> int:
        """A room whose remainder by `dp_size` is `dp_rank`.

        Raises:
            ValueError: There is no such rank.
        """
        if not 0 <= dp_rank < dp_size <= MAX_RANKS:
            raise ValueError(f"rank {dp_rank} of {dp_size}; at most {MAX_RANKS} ranks have rooms")
        # A count of 0 could make room 0, which means none.
        self._count = self._count % (_COUNTS - 1) + 1
        start = (self._base + self._count) * MAX_RANKS
        return start + (dp_rank - start) % dp_size
