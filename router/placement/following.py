"""Tells policies that keep count of active blocks about every request: those that act and those that only score."""

from router.placement.stimuli import RequestArrived
from router.policy.active_blocks import ActiveBlocks
from router.policy.base import Policy
from wire.ids import RequestId, Target


class Following:
    """The counts of the policies in use; a policy that comes in later knows nothing of what is open by then."""

    def __init__(self, *policies: Policy | None) -> None:
        counts = (getattr(policy, "active", None) for policy in policies)
        self._counts = [count for count in counts if isinstance(count, ActiveBlocks)]

    def arrive(self, arrival: RequestArrived) -> None:
        """A request is about to be placed."""
        for count in self._counts:
            count.arrive(arrival.request_id, arrival.chain_hashes, arrival.chain_block_tokens)

    def place(self, request_id: RequestId, target: Target, uncached_tokens: int) -> None:
        """It was placed."""
        for count in self._counts:
            count.place(request_id, target, uncached_tokens)

    def start_decode(self, request_id: RequestId) -> None:
        """Its first token came."""
        for count in self._counts:
            count.start_decode(request_id)

    def end(self, request_id: RequestId) -> None:
        """It is over."""
        for count in self._counts:
            count.end(request_id)
