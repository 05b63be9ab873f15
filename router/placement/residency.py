"""What ranks are expected to hold soon: prompts placed there whose blocks no event has confirmed yet.

A burst of siblings arrives before the first of them is prefilled. Without this each would see empty caches and compute
the shared head once more, on another rank. A prediction starts with the placement, ends a moment after the first token
(events have confirmed it by then), or at once when the request fails before; it is never counted as confirmed.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import msgspec

from wire.ids import RequestId, Target


class _Prediction(msgspec.Struct, kw_only=True):
    target: Target
    chain_hashes: tuple[int, ...]
    block_tokens: int
    expires_at_s: float


def count_shared_blocks(left: Sequence[int], right: Sequence[int]) -> int:
    """Blocks that two chains share from their start.

    Hashes are chained: equal at one place means equal at all before, so that a bisection finds the end.
    """
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[middle - 1] == right[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low


class PredictedResidency:
    """Predictions by request, the oldest first; bounded in time and number."""

    def __init__(self, *, ttl_s: float, grace_s: float, max_predictions: int) -> None:
        self._predictions: OrderedDict[RequestId, _Prediction] = OrderedDict()
        self._by_head: dict[int, dict[RequestId, _Prediction]] = {}
        self._ttl_s = ttl_s
        self._grace_s = grace_s
        self._max_predictions = max_predictions

    def __len__(self) -> int:
        return len(self._predictions)

    def store(
        self, request_id: RequestId, target: Target, chain_hashes: tuple[int, ...], block_tokens: int, now_s: float
    ) -> None:
        """A prompt was placed and will be resident there."""
        self.withdraw(request_id)
        if not chain_hashes or block_tokens <= 0:
            return
        prediction = _Prediction(
            target=target, chain_hashes=chain_hashes, block_tokens=block_tokens, expires_at_s=now_s + self._ttl_s
        )
        self._predictions[request_id] = prediction
        self._by_head.setdefault(chain_hashes[0], {})[request_id] = prediction
        while len(self._predictions) > self._max_predictions:
            self.withdraw(next(iter(self._predictions)))

    def find(self, chain_hashes: Sequence[int], block_tokens: int, now_s: float) -> dict[Target, int]:
        """Tokens of the chain expected on each rank; only ranks with some."""
        expected: dict[Target, int] = {}
        if not chain_hashes:
            return expected
        for prediction in self._by_head.get(chain_hashes[0], {}).values():
            if prediction.block_tokens == block_tokens and prediction.expires_at_s >= now_s:
                tokens = count_shared_blocks(chain_hashes, prediction.chain_hashes) * block_tokens
                expected[prediction.target] = max(tokens, expected.get(prediction.target, 0))
        return expected

    def confirm(self, request_id: RequestId, now_s: float) -> None:
        """The first token came: events tell from now on, the prediction stays for a grace only."""
        prediction = self._predictions.get(request_id)
        if prediction is not None:
            prediction.expires_at_s = min(prediction.expires_at_s, now_s + self._grace_s)

    def withdraw(self, request_id: RequestId) -> None:
        """The prompt will not be resident after all."""
        prediction = self._predictions.pop(request_id, None)
        if prediction is None:
            return
        head = self._by_head[prediction.chain_hashes[0]]
        del head[request_id]
        if not head:
            del self._by_head[prediction.chain_hashes[0]]

    def forget_targets(self, targets: Iterable[Target]) -> None:
        """Ranks were lost."""
        lost = frozenset(targets)
        for request_id in [name for name, entry in self._predictions.items() if entry.target in lost]:
            self.withdraw(request_id)

    def expire(self, now_s: float) -> int:
        """Drops what is past its time; returns how many."""
        over = [name for name, entry in self._predictions.items() if entry.expires_at_s < now_s]
        for request_id in over:
            self.withdraw(request_id)
        return len(over)

    def check_invariants(self) -> None:
        """Raises AssertionError when the two views of the predictions differ, or there are too many."""
        by_head = sorted(name for head in self._by_head.values() for name in head)
        if by_head != sorted(self._predictions):
            raise AssertionError(f"by head {by_head}, in all {sorted(self._predictions)}")
        if len(self._predictions) > self._max_predictions:
            raise AssertionError(f"{len(self._predictions)} predictions, {self._max_predictions} allowed")
