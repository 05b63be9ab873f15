"""Which rank takes a request that names none: the one with the fewest requests, in turn where they are equal. Pure."""

from collections.abc import Sequence


class RankChoice:
    """Requests under way on each rank, as this server has handed them out."""

    def __init__(self, dp_size: int) -> None:
        self._requests = [0] * dp_size
        self._next_rank = 0

    @property
    def requests(self) -> Sequence[int]:
        """Requests under way, by rank."""
        return tuple(self._requests)

    def choose(self) -> int:
        """The least loaded rank, the next in turn among equals."""
        dp_size = len(self._requests)
        in_turn = [(self._next_rank + offset) % dp_size for offset in range(dp_size)]
        rank = min(in_turn, key=lambda candidate: self._requests[candidate])
        self._next_rank = (rank + 1) % dp_size
        return rank

    def reserve(self, rank: int, requests: int) -> None:
        """Count requests handed to a rank."""
        self._requests[rank] += requests

    def release(self, rank: int) -> None:
        """Uncount one request that has ended."""
        self._requests[rank] -= 1
