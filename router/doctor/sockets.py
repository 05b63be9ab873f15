"""Whether a rank's event sockets do what they should: connects to both, and reads the whole replay buffer once."""

import contextlib

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from router.doctor.findings import RankSeen
from router.lookout import own_time
from wire.dialects import decode_batch
from wire.event_sources import RankEvents
from wire.events import BlockStored, EventBatch
from wire.frames import MAX_PAYLOAD_BYTES, ReplayEnd, ReplayFrame, encode_replay_request, parse_replay

#: Most batches read of one replay: the buffer of the engines' default holds 10,000.
MAX_BATCHES = 20_000


class ReplaySeen:
    """What a replay held."""

    def __init__(self, dp_rank: int) -> None:
        self._dp_rank = dp_rank
        self.is_complete = False
        self.batches = self.unreadable = 0
        self.seqs: list[int] = []
        self.strangers: set[int] = set()
        self.block_tokens: set[int] = set()

    def take(self, frames: list[bytes]) -> bool:
        """One message; whether more are to come."""
        told = parse_replay(frames)
        if isinstance(told, ReplayEnd):
            self.is_complete = True
            return False
        self.batches += 1
        batch = decode_batch(told.payload) if isinstance(told, ReplayFrame) else told
        if isinstance(told, ReplayFrame):
            self.seqs.append(told.seq)
        if not isinstance(batch, EventBatch) or batch.skipped:
            self.unreadable += 1
        if isinstance(batch, EventBatch):
            if batch.dp_rank not in {None, self._dp_rank}:
                self.strangers.add(int(batch.dp_rank or 0))
            self.block_tokens.update(each.block_tokens for each in batch.events if isinstance(each, BlockStored))
        return self.batches < MAX_BATCHES

    def count_missing(self) -> int:
        """Numbers that lack between the first and the last."""
        return self.seqs[-1] - self.seqs[0] + 1 - len(set(self.seqs)) if self.seqs else 0


async def look_at_sockets(dp_rank: int, events: RankEvents, limit_s: float) -> RankSeen:
    """Look at one rank's sockets.

    Args:
        dp_rank: The rank.
        events: Its addresses.
        limit_s: Longest wait for a connection, and for the next batch of a replay.
    """
    context = zmq.asyncio.Context()
    try:
        # A publisher that connects to its readers is met by a router that runs, not by a look.
        is_connected = events.binds or await _connects(context, events, limit_s)
        replay = ReplaySeen(dp_rank)
        if events.replay_endpoint is not None:
            await _replay(context, events.replay_endpoint, replay, limit_s)
    finally:
        context.destroy(linger=0)
    return RankSeen(
        dp_rank=dp_rank,
        endpoint=events.endpoint,
        is_connected=is_connected,
        replay_endpoint=events.replay_endpoint,
        is_replayed=replay.is_complete,
        batches=replay.batches,
        unreadable=replay.unreadable,
        first_seq=replay.seqs[0] if replay.seqs else None,
        missing=replay.count_missing(),
        strangers=tuple(sorted(replay.strangers)),
        block_tokens=tuple(sorted(replay.block_tokens)),
    )


async def _connects(context: zmq.asyncio.Context, events: RankEvents, limit_s: float) -> bool:
    """Whether a publisher answers at the address: something that only accepts connections does not."""
    with context.socket(zmq.SUB) as socket, contextlib.suppress(TimeoutError, zmq.ZMQError):
        monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        try:
            socket.subscribe(events.topic)
            socket.connect(events.endpoint)
            async with own_time(limit_s):
                await recv_monitor_message(monitor)
            return True
        finally:
            socket.disable_monitor()
            monitor.close(linger=0)
    return False


async def _replay(context: zmq.asyncio.Context, endpoint: str, seen: ReplaySeen, limit_s: float) -> None:
    with context.socket(zmq.DEALER) as socket, contextlib.suppress(TimeoutError, zmq.ZMQError):
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_PAYLOAD_BYTES)
        socket.connect(endpoint)
        await socket.send_multipart(encode_replay_request(0))
        is_more = True
        while is_more:
            async with own_time(limit_s):
                is_more = seen.take(await socket.recv_multipart())
