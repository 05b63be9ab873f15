"""A rank's stream on an index, and events in few words."""

from prefix_index import BlockChain, block_hashes
from prefix_index.stream import RankStream
from wire import frames
from wire.block_hash import namespace_seed
from wire.dialects import vllm
from wire.events import BlockStored, EventBatch
from wire.ids import Target

MODEL = "tiny"


def chain(tokens, *, block_tokens=4, salt=None, adapter=None, model=MODEL) -> BlockChain:
    seed = namespace_seed(model, cache_salt=salt, adapter=adapter)
    return BlockChain(block_tokens, tuple(block_hashes(tokens, block_tokens, seed)), len(tokens))


def stored(hashes, parent, tokens, **fields) -> BlockStored:
    defaults = {"block_tokens": len(tokens) // len(hashes) if hashes else 4}
    return BlockStored(
        block_hashes=tuple(hashes), parent_block_hash=parent, token_ids=tuple(tokens), **(defaults | fields)
    )


class Rank:
    """One rank: what it publishes goes through frames, decoder and sequencer into the index."""

    def __init__(self, index, worker="w", dp_rank=0, *, replay=True, version="0.32") -> None:
        self.index, self.version = index, version
        self.target = Target(worker, dp_rank)
        index.attach(self.target, model=MODEL)
        self.stream = RankStream(self.target, index, replay_available=replay)
        self.now_s = 0.0

    def payload(self, *events) -> bytes:
        return vllm.encode_batch(EventBatch(ts_s=1.0, events=events, dp_rank=self.target.dp_rank), self.version)

    def live(self, seq, *events):
        self.now_s += 1
        return self.stream.on_live(frames.encode_live("kv", seq, self.payload(*events)), self.now_s)

    def replay(self, seq, *events):
        topic = "kv" if vllm.replays_with_topic(self.version) else None
        return self.stream.on_replay(frames.encode_replay(seq, self.payload(*events), topic=topic), self.now_s)

    def replay_end(self):
        return self.stream.on_replay(frames.encode_replay_end(), self.now_s)

    def reuse(self, tokens, **namespace) -> int:
        return self.index.find_reuse(chain(tokens, **namespace)).get(self.target, 0)
