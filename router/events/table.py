"""Every followed rank and the one index, under one lock.

Requests read reuse, trust and evidence here; the threads of sockets, snapshots and Redis tell here what came. Each
verb holds the lock for one message, or one piece of a snapshot, so that nobody waits for a whole replay.
"""

import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from prefix_index.base import Alternative, BlockChain, PrefixIndex, Reach
from prefix_index.trust import Trust
from router.events.changes import Evidence
from router.events.rank import LEAST_RUN_BYTES, FedRank, Wish
from router.events.turnstile import Turnstile
from router.fleet.source import RankSource
from router.fleet.tiers import ReuseOption
from router.metrics import StreamView
from wire.ids import Target
from wire.snapshot import CHUNK_RECORDS, SnapshotPart, cut_runs

#: How long one hold of the lock for records of a snapshot should last: matching waits no longer than that. The number
#: of records follows from the hold before.
HOLD_S = 0.001
LEAST_RECORDS = 16
#: The same for live messages, which come all the time: a decision takes the lock several times. And most bytes of them.
LIVE_HOLD_S = 0.0003
MAX_RUN_BYTES = 65_536
#: Ranks whose other ways to serve a prompt are looked up, those that hold most of it first: each costs a walk.
MAX_OPTION_RANKS = 32
#: Longest that looking them up may hold up a decision; what would take longer is left out.
OPTIONS_S = 0.005


class FeedLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Times of all ranks."""

    #: Longest wait for the next message of a replay.
    replay_limit_s: float = 5.0
    #: How long a stream that lost events stays so before its buffer is read again.
    retry_pause_s: float = 30.0
    #: How long a rank may be silent about blocks that it must have stored.
    due_limit_s: float = 10.0


class WalkCost:
    """What a walk over a prompt costs, learned from those made."""

    def __init__(self) -> None:
        self._s_per_block = 0.0

    def record(self, took_s: float, blocks: int) -> None:
        """One walk was made."""
        self._s_per_block += (took_s / max(1, blocks) - self._s_per_block) / 4

    def count_within(self, limit_s: float, blocks: int) -> int:
        """Walks that fit into a time; where none does, the memory of dear ones fades, so that it is tried again."""
        one_s = self._s_per_block * max(1, blocks)
        if one_s <= 0:
            return MAX_OPTION_RANKS
        if one_s > limit_s:
            self._s_per_block *= 0.999
        return int(limit_s / one_s)


class FedRanks:
    """The ranks by target. All verbs may be called from any thread."""

    def __init__(
        self,
        index: PrefixIndex,
        limits: FeedLimits,
        *,
        clock: Callable[[], float] = time.monotonic,
        timer: Callable[[], float] = time.thread_time,
    ) -> None:
        """Nobody is followed yet.

        Args:
            index: What ranks hold.
            limits: Times.
            clock: Seconds of events.
            timer: CPU seconds of a thread: that it was held up tells nothing of what a walk costs.
        """
        self._index = index
        self._limits = limits
        self._clock, self._timer = clock, timer
        self._lock = Turnstile()
        self._ranks: dict[Target, FedRank] = {}
        #: Ranks of which more than the device cache counts.
        self._tiered: set[Target] = set()
        self._walks = WalkCost()

    # Who is followed

    def put(self, source: RankSource) -> bool:
        """Follow a rank; False where it is followed from the same place already and stays as it is."""
        with self._lock:
            known = self._ranks.get(source.target)
            if known is not None and known.source == source:
                return False
            if known is not None:
                known.on_lost(self._clock())
            limits = self._limits
            self._ranks[source.target] = FedRank(
                source,
                self._index,
                replay_limit_s=limits.replay_limit_s,
                retry_pause_s=limits.retry_pause_s,
                due_limit_s=limits.due_limit_s,
                before=known,
            )
            self._tiered.discard(source.target)
            return True

    def remove(self, target: Target) -> bool:
        """Forget a rank and what it held; whether it was followed."""
        with self._lock:
            if self._ranks.pop(target, None) is None:
                return False
            self._tiered.discard(target)
            self._index.drop(target)
            return True

    def lose(self, target: Target) -> RankSource | None:
        """A rank's engine is gone: forget what it held. Its source, for sockets to be opened anew."""
        with self._lock:
            rank = self._ranks.get(target)
            if rank is None:
                return None
            rank.on_lost(self._clock())
            rank.is_waiting_for_sockets = True
            return rank.source

    # What requests ask

    def find_reuse(self, chains: Iterable[BlockChain]) -> dict[Target, int]:
        """Tokens of a prompt that each rank can be credited with: the index's, as far as its trust allows.

        Args:
            chains: The prompt in each namespace, one look-up each; other block sizes in their `others`.
        """
        reuse: dict[Target, int] = {}
        now_s = self._clock()
        with self._lock:
            for chain in chains:
                for target, found_tokens in self._index.find_reuse(chain).items():
                    rank = self._ranks.get(target)
                    tokens = 0 if rank is None else rank.find_credit_tokens(found_tokens, chain.block_tokens, now_s)
                    if tokens > reuse.get(target, 0):
                        reuse[target] = tokens
        return reuse

    def find_options(
        self, plain: BlockChain, pairs: BlockChain | None, reuse: dict[Target, int]
    ) -> dict[Target, tuple[ReuseOption, ...]]:
        """Ways to serve a prompt on ranks of which more than the device cache counts; none where credit is reduced.

        Args:
            plain: The prompt.
            pairs: The prompt in the namespace of engines that key their cache by pairs; None where there are none.
            reuse: What `find_reuse` said.

        Cost: a walk over the prompt for each rank, within `OPTIONS_S`; none where one walk takes longer.
        """
        found: dict[Target, tuple[ReuseOption, ...]] = {}
        if not self._tiered:
            return found
        now_s = self._clock()
        with self._lock:
            targets = sorted(self._tiered, key=lambda target: -reuse.get(target, 0))[:MAX_OPTION_RANKS]
        for target in targets[: self._walks.count_within(OPTIONS_S, len(plain.hashes))]:
            with self._lock:
                began_s = self._timer()
                rank = self._ranks.get(target)
                if rank is None or rank.credit_ratio(now_s) < 1:
                    continue
                chain = pairs if rank.source.is_bigram else plain
                ways = () if chain is None else self._index.find_alternatives(chain, target)
            self._walks.record(self._timer() - began_s, len(plain.hashes))
            if ways:
                found[target] = tuple(map(_to_option, ways))
        return found

    def correct(self, target: Target, chain: BlockChain, cached_tokens: int) -> None:
        """An engine's count about a prompt settles what is believed of groups that its events do not tell of."""
        with self._lock:
            rank = self._ranks.get(target)
            if rank is not None and rank.source.layout is not None:
                self._index.correct(target, chain, cached_tokens)

    def has_beliefs(self, target: Target) -> bool:
        """Whether a rank's credit rests on a declared layout."""
        rank = self._ranks.get(target)
        return rank is not None and rank.source.layout is not None

    def find_trust(self, target: Target) -> Trust:
        """Trust of a rank now; LOST for one that is not followed."""
        with self._lock:
            rank = self._ranks.get(target)
            return Trust.LOST if rank is None else rank.trust

    def find_position(self, target: Target) -> int:
        """Number of the rank's next change, for `find_evidence` later."""
        rank = self._ranks.get(target)
        # One look at a number that only grows: nothing to wait for.
        return 0 if rank is None else rank.changes.position

    def find_evidence(self, target: Target, position: int, until_s: float) -> Evidence:
        """What changed on a rank from `position` on and not after `until_s`."""
        with self._lock:
            rank = self._ranks.get(target)
            return Evidence(cleared=True) if rank is None else rank.changes.find_since(position, until_s)

    def expect_blocks(self, target: Target, new_blocks: int, position: int) -> None:
        """A request placed at change `position` made a rank compute so many full blocks: it must tell of them."""
        with self._lock:
            rank = self._ranks.get(target)
            if rank is not None:
                rank.on_served(new_blocks, position, self._clock())

    def block_sizes(self) -> set[int]:
        """Tokens a block, for every size that ranks report."""
        with self._lock:
            return self._index.block_sizes()

    def to_views(self) -> list[StreamView]:
        """Every rank's stream as it is now."""
        with self._lock:
            return [rank.to_view(self._clock()) for _, rank in sorted(self._ranks.items())]

    # What the threads tell

    def on_opened(self, source: RankSource) -> None:
        """The sockets of a rank are open."""
        with self._lock:
            rank = self._ranks.get(source.target)
            if rank is not None and rank.source == source:
                rank.is_waiting_for_sockets = False

    def on_frames(self, target: Target, frames: Sequence[bytes], *, is_replay: bool) -> Wish | None:
        """A message came; what older sockets still deliver is none."""
        with self._lock:
            rank = self._ranks.get(target)
            if rank is None or rank.is_waiting_for_sockets:
                return None
            wish = (rank.on_replay if is_replay else rank.on_live)(frames, self._clock())
            self._note_tiers(target, rank)
            return wish

    def on_live(self, target: Target, messages: Sequence[Sequence[bytes]]) -> tuple[int, Wish | None]:
        """Live messages came: how many of the first were taken in, within some `LIVE_HOLD_S`."""
        with self._lock:
            rank = self._ranks.get(target)
            if rank is None or rank.is_waiting_for_sockets:
                return len(messages), None
            began_s = self._clock()
            taken, wish = rank.on_live_run(cut_messages(messages, rank.bytes_a_hold), began_s)
            took_s = self._clock() - began_s
            self._note_tiers(target, rank)
            if taken > 1:
                rank.bytes_a_hold = max(LEAST_RUN_BYTES, _scale(rank.bytes_a_hold, took_s, LIVE_HOLD_S, MAX_RUN_BYTES))
        return taken, wish

    def on_lag(self, target: Target, *, is_behind: bool) -> None:
        """More messages of a rank were there than are read in one go, or all were read."""
        with self._lock:
            rank = self._ranks.get(target)
            if rank is not None:
                rank.on_lag(self._clock(), is_behind=is_behind)

    def on_connection(self, target: Target, *, lost: bool, stands: bool) -> Wish | None:
        """The connection was lost, or stands (again)."""
        with self._lock:
            rank = self._ranks.get(target)
            if rank is None or rank.is_waiting_for_sockets:
                return None
            if lost:
                rank.on_lost(self._clock())
            return rank.on_connected(self._clock()) if stands else None

    def on_silence(self, target: Target, *, is_silent: bool) -> None:
        """Nothing can be heard of a rank although its engine may live, or it can be heard again."""
        with self._lock:
            rank = self._ranks.get(target)
            if rank is not None:
                rank.on_silence(self._clock(), is_silent=is_silent)

    def on_replay_failed(self, target: Target) -> Wish | None:
        """A replay could not be asked for."""
        with self._lock:
            rank = self._ranks.get(target)
            return None if rank is None else rank.on_replay_failed(self._clock())

    def on_tick(self, target: Target) -> tuple[bool, Wish | None]:
        """Time passed; whether a replay was given up for it."""
        now_s = self._clock()
        with self._lock:
            rank = self._ranks.get(target)
            if rank is None:
                return False, None
            is_overdue = rank.deadline_s is not None and rank.deadline_s <= now_s
            return is_overdue, rank.on_replay_failed(now_s) if is_overdue else rank.find_retry(now_s)

    def on_defect(self, target: Target) -> None:
        """Reading the rank raised: no credit."""
        with self._lock:
            rank = self._ranks.get(target)
            if rank is not None:
                rank.on_lost(self._clock())

    def find(self, target: Target) -> FedRank | None:
        """The rank; to be handed back to `take_snapshot` and nothing else."""
        with self._lock:
            return self._ranks.get(target)

    def take_snapshot(self, rank: FedRank, ticket: int, part: SnapshotPart | None, ask: Callable[[Wish], None]) -> bool:
        """A part of a snapshot, None where it failed; says whether more of it is wanted."""
        start, size = 0, rank.records_a_hold
        end = sum(map(len, part)) if isinstance(part, tuple) else 1
        while start < end:
            piece = cut_runs(part, start, start + size) if isinstance(part, tuple) else part
            with self._lock:
                if self._ranks.get(rank.source.target) is not rank or not rank.wants_snapshot(ticket):
                    return False
                began_s = self._clock()
                wish = rank.on_snapshot(piece, ticket, began_s)
                took_s = self._clock() - began_s
                self._note_tiers(rank.source.target, rank)
            if wish is not None:
                ask(wish)
            start += size
            if isinstance(part, tuple):
                size = max(LEAST_RECORDS, _scale(size, took_s, HOLD_S, CHUNK_RECORDS))
        rank.records_a_hold = size
        return rank.wants_snapshot(ticket)

    def _note_tiers(self, target: Target, rank: FedRank) -> None:
        if rank.is_tiered:
            self._tiered.add(target)


def _scale(size: int, took_s: float, wanted_s: float, most: int) -> int:
    """Size for the next hold: towards what takes the time wanted, at most twice as much at once."""
    return min(int(size * min(2.0, wanted_s / max(took_s, 1e-9))), most)


def cut_messages(messages: Sequence[Sequence[bytes]], size_bytes: int) -> Sequence[Sequence[bytes]]:
    """The first messages within a size, at least one."""
    for count, frames in enumerate(messages):
        size_bytes -= sum(map(len, frames))
        if size_bytes < 0:
            return messages[: max(1, count)]
    return messages


def _to_option(way: Alternative) -> ReuseOption:
    return ReuseOption(
        reach=way.reach.value,
        reuse_tokens=way.reuse_tokens,
        host_tokens=way.load_tokens(Reach.HOST),
        host_bytes=way.load_bytes(Reach.HOST),
        pool_tokens=way.load_tokens(Reach.POOLS),
        pool_bytes=way.load_bytes(Reach.POOLS),
        window_tokens=way.window_tokens,
        replay_tokens=way.replay_tokens,
    )
