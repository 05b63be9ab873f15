"""Predicted against actual reuse for every request of a capture.

The capture's frames run through the real path (decode, sequence, index); for each request the
prediction is taken when it was sent and again after every event that could have met it.
"""

from collections import Counter
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from prefix_index import BlockChain, NaivePrefixIndex, PrefixIndex, block_hashes
from prefix_index.stream import RankStream
from prefix_index.trust import Trust
from router.recordings.capture import Capture, Exchange, Message
from wire.block_hash import namespace_seed
from wire.dialects import decode_batch
from wire.events import BlockStored
from wire.frames import parse_live
from wire.ids import Target, WorkerId
from wire.malformed import Malformed

#: An event that arrived this soon after a request was sent had left the engine before it.
ARRIVAL_TOLERANCE_S = 0.005
_WORKER = WorkerId("capture")
_MODEL = "capture"


class Class(StrEnum):
    """How prediction and engine relate; everything but the last is explained."""

    EXACT = "exact"
    #: An event on the prompt's chain was under way; the engine's number is the prediction at a moment of that span.
    RACED = "raced"
    #: Several answers: the later ones hit what the first one stored.
    CHOICES = "n>1"
    #: The dialect does not say which blocks are salted; a salted prompt gets no credit.
    SALT_BLIND = "salt-blind dialect"
    #: The engine chose the rank: its number is the prediction for one of them.
    UNPINNED = "unpinned"
    #: Events before the capture are missing: the prediction is a lower bound.
    PARTIAL = "partial"
    UNEXPLAINED = "unexplained"


class Verdict(msgspec.Struct, frozen=True):
    """One request's line."""

    number: int
    #: For the rank that served where it is known, else the nearest of the ranks' predictions.
    predicted_tokens: int
    actual_tokens: int
    class_: Class


class CaptureReport(msgspec.Struct, frozen=True):
    """All lines of one capture."""

    name: str
    verdicts: tuple[Verdict, ...]
    uncounted: int

    @property
    def counts(self) -> Counter[Class]:
        """Requests of each class."""
        return Counter(verdict.class_ for verdict in self.verdicts)

    @property
    def is_explained(self) -> bool:
        """True when no request is unexplained."""
        return Class.UNEXPLAINED not in self.counts


class _Watch:
    """One request while events can still meet it: the prediction of every rank over time."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.moments: list[tuple[float, dict[int, int]]] = []
        self.is_partial = False

    def candidates(self, predictions: dict[int, int]) -> set[int]:
        """Predictions for the ranks that may have served."""
        rank = self.exchange.pinned_rank
        return {predictions[rank]} if rank in predictions else set(predictions.values())


class RecordingCheck:
    """One capture against one index."""

    def __init__(self, capture: Capture, index: PrefixIndex | None = None) -> None:
        self._capture = capture
        self._index = NaivePrefixIndex() if index is None else index
        self._streams = {
            socket: RankStream(Target(_WORKER, rank), self._index, replay_available=False)
            for socket, rank in capture.sockets.items()
        }
        for stream in self._streams.values():
            self._index.attach(stream.holder, model=_MODEL)
        self._says_salt = any(_says_salt(message) for message in capture.messages)

    def run(self) -> CaptureReport:
        """Feed the whole capture and judge every request."""
        watches = [_Watch(exchange) for exchange in sorted(self._capture.exchanges, key=lambda each: each.sent_at_s)]
        unsent = list(watches)
        for message in self._capture.messages:
            while unsent and unsent[0].exchange.sent_at_s <= message.at_s:
                self._look(unsent.pop(0), None)
            self._streams[message.socket].on_live(message.frames, message.at_s)
            made_at_s = self._made_at_s(message)
            for watch in watches:
                if watch.moments and made_at_s <= watch.exchange.answered_at_s:
                    self._look(watch, message.at_s)
        for watch in unsent:
            self._look(watch, None)
        ordered = sorted(watches, key=lambda watch: watch.exchange.number)
        return CaptureReport(
            self._capture.name, tuple(self._judge(watch) for watch in ordered), self._capture.uncounted
        )

    def _made_at_s(self, message: Message) -> float:
        if message.engine_s is None:
            return message.at_s
        return message.engine_s + self._capture.latency_floor_s

    def _look(self, watch: _Watch, at_s: float | None) -> None:
        exchange = watch.exchange
        predictions = {stream.holder.dp_rank: 0 for stream in self._streams.values()} or {0: 0}
        for prompt in exchange.prompts:
            for rank, tokens in self._predict(prompt, exchange.cache_salt).items():
                predictions[rank] += tokens
        watch.moments.append((exchange.sent_at_s if at_s is None else at_s, predictions))
        watch.is_partial |= any(stream.trust is Trust.PARTIAL for stream in self._streams.values())

    def _predict(self, prompt: tuple[int, ...], salt: str | None) -> dict[int, int]:
        """Reusable tokens a rank, over all the block sizes in use."""
        seed = namespace_seed(_MODEL, cache_salt=salt)
        chains = [
            BlockChain(block_tokens, tuple(block_hashes(prompt, block_tokens, seed)), len(prompt))
            for block_tokens in sorted(self._index.block_sizes())
        ]
        if not chains:
            return {}
        chain = replace(chains[0], others=tuple(chains[1:]))
        return {holder.dp_rank: tokens for holder, tokens in self._index.find_reuse(chain).items()}

    def _judge(self, watch: _Watch) -> Verdict:
        actual = watch.exchange.cached_tokens
        candidates = watch.candidates(watch.moments[0][1])
        predicted = min(candidates, key=lambda tokens: abs(tokens - actual))
        return Verdict(watch.exchange.number, predicted, actual, self._classify(watch))

    def _classify(self, watch: _Watch) -> Class:
        exchange, actual = watch.exchange, watch.exchange.cached_tokens
        settled_at_s = exchange.sent_at_s + ARRIVAL_TOLERANCE_S
        at_start = set().union(*(watch.candidates(each) for at_s, each in watch.moments if at_s <= settled_at_s))
        later = set().union(*(watch.candidates(each) for at_s, each in watch.moments if at_s > settled_at_s))
        if actual in at_start:
            is_unpinned = exchange.pinned_rank is None and len(self._streams) > 1
            return Class.UNPINNED if is_unpinned else Class.EXACT
        if exchange.choices > 1 and actual in watch.candidates(watch.moments[-1][1]):
            return Class.CHOICES
        if actual in later:
            return Class.RACED
        return self._explain_bound(watch, lowest=max(at_start))

    def _explain_bound(self, watch: _Watch, *, lowest: int) -> Class:
        """Why the engine reused more than predicted."""
        actual = watch.exchange.cached_tokens
        if watch.exchange.cache_salt is not None and not self._says_salt and actual > lowest:
            return Class.SALT_BLIND
        if watch.is_partial and actual > lowest:
            return Class.PARTIAL
        return Class.UNEXPLAINED


def _says_salt(message: Message) -> bool:
    """True when an event names the namespace of its blocks."""
    live = parse_live(message.frames)
    batch = live if isinstance(live, Malformed) else decode_batch(live.payload)
    if isinstance(batch, Malformed):
        return False
    stored = [event for event in batch.events if isinstance(event, BlockStored)]
    return any(event.cache_salt is not None or event.extra_keys is not None for event in stored)
