"""Which requests run on which rank, which of them can compute what another one reuses, and whose name is whose."""

from router.proxy.prediction import Prediction
from wire.ids import RequestId, Target


class RunningRequests:
    """Requests that are placed and not ended, by rank, so that siblings can be told of each other."""

    def __init__(self) -> None:
        self._by_rank: dict[Target, dict[RequestId, Prediction | None]] = {}
        #: Those of a rank that begin with the same block.
        self._siblings: dict[tuple[Target, tuple[int, ...]], dict[RequestId, Prediction]] = {}
        #: Ids that calls under way go by because their clients said so.
        self._claimed: set[RequestId] = set()

    def claim(self, request_id: RequestId) -> bool:
        """Let a call go by an id; False where another one does, be it placed, waiting for a place or about to."""
        if request_id in self._claimed:
            return False
        self._claimed.add(request_id)
        return True

    def disclaim(self, request_id: RequestId) -> None:
        """The call that goes by it is over."""
        self._claimed.discard(request_id)

    def add(self, target: Target, request_id: RequestId, prediction: Prediction | None) -> None:
        """A request was placed; without a prediction where the rank is not the one that reuses its prompt."""
        self._by_rank.setdefault(target, {})[request_id] = prediction
        head = None if prediction is None else prediction.head
        if prediction is None or head is None:
            return
        siblings = self._siblings.setdefault((target, head), {})
        for other in siblings.values():
            other.add_peer(prediction)
            prediction.add_peer(other)
        siblings[request_id] = prediction

    def remove(self, target: Target, request_id: RequestId) -> None:
        """A request ended."""
        beside = self._by_rank.get(target, {})
        prediction = beside.pop(request_id, None)
        if not beside:
            self._by_rank.pop(target, None)
        head = None if prediction is None else prediction.head
        if head is not None:
            siblings = self._siblings.get((target, head), {})
            siblings.pop(request_id, None)
            if not siblings:
                self._siblings.pop((target, head), None)

    def check_invariants(self) -> None:
        """Raises AssertionError where something is kept of requests that do not run."""
        for (target, _), siblings in self._siblings.items():
            if not siblings or not siblings.keys() <= self._by_rank.get(target, {}).keys():
                raise AssertionError(f"siblings on {target} that do not run: {sorted(siblings)}")
        if not all(self._by_rank.values()):
            raise AssertionError("a rank without requests is kept")

    def count(self) -> dict[Target, int]:
        """Running requests of each rank that has any."""
        return {target: len(beside) for target, beside in self._by_rank.items()}
