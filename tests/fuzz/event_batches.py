"""Bytes of one event batch: both decoders, and both kinds of index behind a rank's stream."""

from guided import fuzz, instrumented

with instrumented():
    from engine_shim.engine.publish import EventDialect
    from prefix_index import BlockChain, NaivePrefixIndex, block_hashes, make_index
    from prefix_index.stream import RankStream
    from prefix_index.trust import Trust
    from wire.block_hash import namespace_seed
    from wire.dialects import decode_batch
    from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch
    from wire.frames import encode_live
    from wire.ids import Target, WorkerId
    from wire.malformed import Malformed

HOSTILE, OTHER = Target(WorkerId("hostile"), 0), Target(WorkerId("other"), 0)
PROMPT = tuple(range(100, 117))
CHAIN = BlockChain(4, tuple(block_hashes(PROMPT, 4, namespace_seed("m"))), len(PROMPT))
STORED = BlockStored(block_hashes=(1, 2, 3, 4), parent_block_hash=None, token_ids=PROMPT[:16], block_tokens=4)
BATCHES = (
    EventBatch(ts_s=1.0, events=(STORED, BlockRemoved(block_hashes=(4, 9))), dp_rank=0),
    EventBatch(ts_s=2.0, events=(AllBlocksCleared(),)),
    EventBatch(
        ts_s=3.0,
        events=(
            BlockStored(
                block_hashes=(b"\x01" * 32,),
                parent_block_hash=2,
                token_ids=(1, 2),
                block_tokens=2,
                medium="CPU",
                lora_name="a",
                extra_keys=(("k", 3),),
                group_idx=0,
                group_kind="sliding_window",
                window_tokens=8,
            ),
        ),
    ),
)
SEEDS = [dialect.encoder()(batch) for dialect in EventDialect for batch in BATCHES]


def check(data: bytes) -> None:
    """Every answer is a value, no other rank is touched, and a clear mends whatever came before it."""
    batch = decode_batch(data)
    assert isinstance(batch, EventBatch | Malformed)
    for kind in (NaivePrefixIndex, make_index):
        index = kind()
        streams = {}
        for target in (OTHER, HOSTILE):
            index.attach(target, model="m")
            streams[target] = RankStream(target, index, replay_available=False)
            streams[target].on_live(encode_live("", 0, SEEDS[0]), 0.0)
        streams[HOSTILE].on_live(encode_live("", 1, data), 0.0)
        streams[HOSTILE].on_live(encode_live("", 2, data), 0.0)
        index.check_invariants()
        assert index.find_reuse(CHAIN).get(OTHER) == 12
        clear = BATCHES[1]
        streams[HOSTILE].on_live(encode_live("", 3, EventDialect.VLLM_MAP.encoder()(clear)), 0.0)
        assert (streams[HOSTILE].trust, index.block_count(HOSTILE)) == (Trust.EXACT, 0)


if __name__ == "__main__":
    fuzz(check, SEEDS)
