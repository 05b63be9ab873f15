"""A rank's stream under any order of messages: live, replayed, ends, failures, lost connections, garbled frames."""

from guided import fuzz, instrumented

with instrumented():
    from engine_shim.engine.publish import EventDialect
    from prefix_index import BlockChain, NaivePrefixIndex, block_hashes
    from prefix_index.stream import RankStream
    from prefix_index.trust import Trust
    from wire import frames
    from wire.block_hash import namespace_seed
    from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch
    from wire.ids import Target, WorkerId

TARGET = Target(WorkerId("w"), 0)
TOKENS = tuple(range(65))
CHAIN = BlockChain(4, tuple(block_hashes(TOKENS, 4, namespace_seed("m"))), len(TOKENS))
ENCODE = EventDialect.VLLM_MAP.encoder()
#: Most batches that one life of the source tells.
LIFE = 16


def payload(seq: int, life: int) -> bytes:
    """What the source tells under a number: block after block of one prompt, the odd one taken back."""
    events = [
        BlockStored(
            block_hashes=(life * 100 + seq + 1,),
            parent_block_hash=life * 100 + seq if seq else None,
            token_ids=TOKENS[4 * seq : 4 * seq + 4],
            block_tokens=4,
        )
    ]
    if seq % 5 == 4:
        events = [BlockRemoved(block_hashes=(life * 100 + seq,))]
    return ENCODE(EventBatch(ts_s=float(life), events=(*events,), dp_rank=0))


SEEDS = [bytes([1, 0, 1, 1, 1, 5, 2, 3, 2, 4, 3, 0, 1, 6]), bytes(range(64)), b"\x07\x00" * 8, b"\x06abc" * 4]


def check(data: bytes) -> None:
    """No order of messages raises, and a new life that is told without a hole is exact."""
    index = NaivePrefixIndex()
    index.attach(TARGET, model="m")
    stream = RankStream(TARGET, index, replay_available=True, max_held=8)
    life = 0
    steps = iter(data)
    for step in steps:
        seq = next(steps, 0) % LIFE
        match step % 8:
            case 0 | 1:
                stream.on_live(frames.encode_live("", seq, payload(seq, life)), 0.0)
            case 2:
                stream.on_replay(frames.encode_replay(seq, payload(seq, life)), 0.0)
            case 3:
                stream.on_replay(frames.encode_replay_end(topic_frame=bool(seq % 2)), 0.0)
            case 4:
                stream.on_replay_failed(0.0)
            case 5:
                stream.on_connected(0.0)
            case 6:
                garbled = [data[at : at + seq] for at in range(0, min(len(data), 40), 9)][: seq % 6]
                (stream.on_live if seq % 2 else stream.on_replay)(garbled, 0.0)
            case _:
                stream.on_lost(0.0)
                life += 1
        index.check_invariants()
        assert index.find_reuse(CHAIN).get(TARGET, 0) % 4 == 0
    stream.on_lost(0.0)
    clear = ENCODE(EventBatch(ts_s=0.0, events=(AllBlocksCleared(),), dp_rank=0))
    stream.on_live(frames.encode_live("", 0, clear), 0.0)
    for seq in range(1, 4):
        stream.on_live(frames.encode_live("", seq, payload(seq - 1, life + 1)), 0.0)
    assert (stream.trust, index.find_reuse(CHAIN)) == (Trust.EXACT, {TARGET: 12})


if __name__ == "__main__":
    fuzz(check, SEEDS)
