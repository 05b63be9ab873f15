"""What ranks are expected to hold soon: prompts placed there whose blocks no event has confirmed yet.

A burst of siblings arrives before the first of them is prefilled. Without this each would see empty caches and compute
the shared head once more, on another rank. A prediction starts with the placement, ends a moment after the first token
(events have confirmed it by then), or at once when the request fails before; it is never counted as confirmed.

A prompt is noted at 1, 2, 4, 8, ... blocks, where its chained hash stands for all before. Those that share most of a
prompt are compared to the block; of the others it is known to the power of two below.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter

import msgspec

from router.placement.places import note
from wire.ids import RequestId, Target

#: Predictions compared with a prompt to the block, the newest of those that share most of it.
MAX_COMPARED = 8


class _Prediction(msgspec.Struct, kw_only=True):
    request_id: RequestId
    target: Target
    chain_hashes: tuple[int, ...]
    block_tokens: int
    #: The chain at each place where it is noted (`router.placement.places`).
    noted: list[int]
    expires_at_s: float
    #: As of a place where it stands alone.
    counts: dict[Target, int]

    def find_latest(self) -> "tuple[_Prediction, ...]":
        """As of a place where it stands alone."""
        return (self,)


class _Place:
    """Predictions that have one block in common, and with it all before."""

    __slots__ = ("counts", "predictions")

    def __init__(self, first: _Prediction) -> None:
        self.predictions: dict[RequestId, _Prediction] = {first.request_id: first}
        #: How many there are by rank.
        self.counts: dict[Target, int] = {first.target: 1}

    def add(self, prediction: _Prediction) -> None:
        self.predictions[prediction.request_id] = prediction
        self.counts[prediction.target] = self.counts.get(prediction.target, 0) + 1

    def remove(self, prediction: _Prediction) -> None:
        del self.predictions[prediction.request_id]
        left = self.counts[prediction.target] - 1
        if left:
            self.counts[prediction.target] = left
        else:
            del self.counts[prediction.target]

    def find_latest(self) -> Iterable[_Prediction]:
        """The newest of them, as many as are compared."""
        return islice(reversed(self.predictions.values()), MAX_COMPARED)


def count_shared_blocks(left: Sequence[int], right: Sequence[int], at_least: int = 0) -> int:
    """Blocks that two chains share from their start, of which `at_least` are known to be.

    Hashes are chained: equal at one place means equal at all before, so that a bisection finds the end.
    """
    low, high = at_least, min(len(left), len(right))
    if low < high and left[low] != right[low]:
        return low
    while low < high:
        middle = (low + high + 1) // 2
        if left[middle - 1] == right[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low


class Expected(Mapping[Target, int]):
    """Tokens of one prompt by rank. Spelled out only when someone asks for all: thousands may share a short head.

    Args:
        compared: Ranks known to the block; each holds at least as much as any of the others.
        levels: Others by how much they hold, the most first, each with those of the levels before. Not to be kept: they
            change with the next prediction.
    """

    __slots__ = ("_all", "_compared", "_levels")

    def __init__(self, compared: dict[Target, int], levels: list[tuple[int, dict[Target, int]]]) -> None:
        self._compared = compared
        self._levels = levels
        self._all: dict[Target, int] | None = None

    def __getitem__(self, target: Target) -> int:
        tokens = self.find(target)
        if not tokens:
            raise KeyError(target)
        return tokens

    def without(self, targets: Container[Target]) -> "Expected":
        """The same but for some ranks."""
        kept = {target: tokens for target, tokens in self.items() if target not in targets}
        return Expected(kept, [(min(kept.values()), kept)] if kept else [])

    def find(self, target: Target) -> int:
        """Tokens on a rank; 0 where there are none."""
        compared = self._compared.get(target)
        if compared is not None:
            return compared
        for tokens, targets in self._levels:
            if target in targets:
                return tokens
        return 0

    def __iter__(self) -> Iterator[Target]:
        return iter(self.spell_out())

    def __len__(self) -> int:
        return len(self._levels[-1][1]) if self._levels else 0

    def spell_out(self) -> Mapping[Target, int]:
        """All ranks with some."""
        if self._all is None:
            self._all = {}
            for tokens, targets in reversed(self._levels):
                self._all.update(dict.fromkeys(targets, tokens))
            self._all.update(self._compared)
        return self._all

    def find_most(self, count: int) -> dict[Target, int]:
        """Up to so many ranks that hold most."""
        most = dict(sorted(self._compared.items(), key=itemgetter(1), reverse=True)[:count])
        for tokens, targets in self._levels:
            if len(most) >= count:
                break
            for target in targets:
                if target not in most:
                    most[target] = tokens
                    if len(most) >= count:
                        break
        return most


NOTHING_EXPECTED = Expected({}, [])


class PredictedResidency:
    """Predictions by request, the oldest first; bounded in time and number."""

    def __init__(self, *, ttl_s: float, grace_s: float, max_predictions: int) -> None:
        self._predictions: OrderedDict[RequestId, _Prediction] = OrderedDict()
        #: By tokens of a block, by place and by the hash there. Most predictions share only the start of a prompt with
        #: others: beyond, each stands for its place itself.
        self._places: dict[int, list[dict[int, _Prediction | _Place]]] = {}
        #: Those whose first token came, with their end, the earliest first; the others end in the order they came in.
        self._confirmed: deque[tuple[float, RequestId]] = deque()
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
            request_id=request_id,
            target=target,
            chain_hashes=chain_hashes,
            block_tokens=block_tokens,
            noted=note(chain_hashes),
            expires_at_s=now_s + self._ttl_s,
            counts={target: 1},
        )
        self._predictions[request_id] = prediction
        self._note(prediction)
        while len(self._predictions) > self._max_predictions:
            self.withdraw(next(iter(self._predictions)))

    def _note(self, prediction: _Prediction) -> None:
        tables = self._places.setdefault(prediction.block_tokens, [])
        while len(tables) < len(prediction.noted):
            tables.append({})
        for places, chain_hash in zip(tables, prediction.noted, strict=False):
            place = places.get(chain_hash)
            if place is None:
                places[chain_hash] = prediction
                continue
            if isinstance(place, _Prediction):
                place = places[chain_hash] = _Place(place)
            place.add(prediction)

    def find(self, chain_hashes: Sequence[int], block_tokens: int, now_s: float) -> "Expected":
        """Tokens of the chain expected on each rank; only ranks with some."""
        if not self._predictions:
            return NOTHING_EXPECTED
        self.expire(now_s)
        levels: list[tuple[int, dict[Target, int]]] = []
        deepest: _Prediction | _Place | None = None
        blocks, length = 1, len(chain_hashes)
        for places in self._places.get(block_tokens, ()):
            place = places.get(chain_hashes[blocks - 1]) if blocks <= length else None
            if place is None:
                break
            # Whoever shares more shares this: only where some are left is there anything to tell.
            if levels and len(levels[-1][1]) == len(place.counts):
                levels.pop()
            levels.append((blocks * block_tokens, place.counts))
            deepest = place
            blocks *= 2
        if deepest is None:
            return NOTHING_EXPECTED
        known = levels[-1][0]
        compared: dict[Target, int] = {}
        for prediction in deepest.find_latest():
            blocks = count_shared_blocks(chain_hashes, prediction.chain_hashes, known // block_tokens)
            if blocks * block_tokens > compared.get(prediction.target, 0):
                compared[prediction.target] = blocks * block_tokens
        return Expected(compared, levels[::-1])

    def confirm(self, request_id: RequestId, now_s: float) -> None:
        """The first token came: events tell from now on, the prediction stays for a grace only."""
        prediction = self._predictions.get(request_id)
        if prediction is not None and now_s + self._grace_s < prediction.expires_at_s:
            prediction.expires_at_s = now_s + self._grace_s
            self._confirmed.append((prediction.expires_at_s, request_id))

    def withdraw(self, request_id: RequestId) -> None:
        """The prompt will not be resident after all."""
        prediction = self._predictions.pop(request_id, None)
        if prediction is None:
            return
        for places, chain_hash in zip(self._places[prediction.block_tokens], prediction.noted, strict=False):
            place = places[chain_hash]
            if isinstance(place, _Place):
                place.remove(prediction)
            if place is prediction or not place.counts:
                del places[chain_hash]

    def forget_targets(self, targets: Iterable[Target]) -> None:
        """Ranks were lost."""
        lost = frozenset(targets)
        for request_id in [name for name, entry in self._predictions.items() if entry.target in lost]:
            self.withdraw(request_id)

    def expire(self, now_s: float) -> int:
        """Drops what is past its time; returns how many."""
        before, confirmed = len(self._predictions), self._confirmed
        while confirmed and confirmed[0][0] < now_s:
            request_id = confirmed.popleft()[1]
            prediction = self._predictions.get(request_id)
            if prediction is not None and prediction.expires_at_s < now_s:
                self.withdraw(request_id)
        while self._predictions:
            request_id, prediction = next(iter(self._predictions.items()))
            if prediction.expires_at_s >= now_s:
                break
            self.withdraw(request_id)
        return before - len(self._predictions)

    def check_invariants(self) -> None:
        """Raises AssertionError when the two views of the predictions differ, or there are too many."""
        standing = [place for tables in self._places.values() for places in tables for place in places.values()]
        places = [[each] if isinstance(each, _Prediction) else each.predictions.values() for each in standing]
        by_place = sorted({prediction.request_id for place in places for prediction in place})
        if by_place != sorted(self._predictions):
            raise AssertionError(f"by place {by_place}, in all {sorted(self._predictions)}")
        for each, predictions in zip(standing, places, strict=True):
            if Counter(prediction.target for prediction in predictions) != each.counts:
                raise AssertionError(f"{each.counts} count {len(predictions)} predictions")
        if len(self._predictions) > self._max_predictions:
            raise AssertionError(f"{len(self._predictions)} predictions, {self._max_predictions} allowed")
