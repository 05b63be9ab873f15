"""Public faults of event streams where users meet them: what engines publish, and what a prompt is worth then.

Each test tells events as engines do and asks the router over HTTP. The same faults have finer tests beside the parts.
"""

import pytest
from proxy_harness import eventually, value
from telling_engine import PROMPT, RawEngine, TellingEngine, blocks, fleet_of, removed

from engine_shim.engine.publish import EventDialect
from prefix_index.trust import Trust
from wire.events import AllBlocksCleared, Medium

PROBES = {"interval_s": 0.03, "unhealthy_after": 3}
OTHER = (*PROMPT[:16], *range(900, 949))


async def test_A01_after_a_repaired_start_no_batch_looks_like_a_gap_again():
    engine = TellingEngine()
    for _ in range(5):
        engine.tell(blocks(1, 2))
    async with fleet_of(engine) as fleet:
        assert await fleet.credit() == {"w0/0": 8}
        asked = engine.publisher.replay_counts.answered
        for last in range(3, 9):
            engine.tell(blocks(last, last))
            assert await fleet.credit() == {"w0/0": 4 * last}
        assert engine.publisher.replay_counts.answered == asked
        assert fleet.view().gaps <= 1


@pytest.mark.parametrize("dialect", list(EventDialect))
async def test_A04_a_router_that_comes_late_has_what_was_told_before_it(dialect):
    engine = TellingEngine(dialect=dialect)
    engine.tell(AllBlocksCleared())
    for number in range(1, 9):
        engine.tell(blocks(number, number))
    async with fleet_of(engine) as fleet:
        assert await fleet.credit() == {"w0/0": 32}


async def test_A05_blocks_whose_parents_rolled_out_of_the_window_count_once_the_parents_are_told():
    engine = TellingEngine(keeps=2)
    engine.tell(blocks(1, 2))
    engine.tell(blocks(3, 3))
    engine.tell(blocks(4, 4))
    async with fleet_of(engine) as fleet:
        assert await fleet.credit(trust=Trust.PARTIAL) == {}
        engine.tell(blocks(1, 2))
        assert await fleet.credit(trust=Trust.PARTIAL) == {"w0/0": 16}


async def test_A06_blocks_below_parents_that_nobody_announced_match_nothing():
    async with fleet_of(TellingEngine(), TellingEngine()) as fleet:
        partial, whole = fleet.engines
        for number in range(300):
            partial.tell(blocks(1, 4, parent=50_000 + number))
        whole.tell(blocks(1, 1))
        assert await fleet.credit() == {"w1/0": 4}
        assert fleet.view().blocks == 0
        partial.tell(removed(1, 2, 3, 4), blocks(1, 4))
        assert await fleet.credit() == {"w0/0": 16, "w1/0": 4}


async def test_A07_engines_with_pages_of_other_sizes_are_compared_in_tokens():
    small, large = TellingEngine(page_tokens=16), TellingEngine(page_tokens=64)
    branch = (*PROMPT[:32], *range(500, 533))
    async with fleet_of(small, large) as fleet:
        large.tell(blocks(1, 1, size=64))
        small.tell(blocks(1, 2, size=16))
        small.tell(blocks(3, 4, size=16), blocks(13, 14, size=16, tokens=(*(0,) * 160, *branch), parent=2))
        assert await fleet.credit() == {"w0/0": 64, "w1/0": 64}
        small.tell(removed(3))
        assert await fleet.credit() == {"w0/0": 32, "w1/0": 64}


async def test_A08_host_blocks_of_a_finer_grain_are_not_counted_as_device_blocks():
    async with fleet_of(TellingEngine(page_tokens=16)) as fleet:
        fleet.engines[0].tell(blocks(1, 1, size=16), blocks(1, 16, medium=Medium.HOST))
        assert await fleet.credit() == {"w0/0": 16}


async def test_A09_a_window_a_host_copy_and_another_adapter_are_no_full_hit():
    async with fleet_of(*(TellingEngine() for _ in range(4))) as fleet:
        window, host, adapter, plain = fleet.engines
        window.tell(blocks(1, 8, group_idx=1, group_kind="sliding_window", window_tokens=8))
        host.tell(blocks(1, 8, medium=Medium.HOST))
        adapter.tell(blocks(1, 8, lora_name="other", lora_id=3))
        plain.tell(blocks(1, 8))
        assert await fleet.credit() == {"w3/0": 32}


@pytest.mark.parametrize("dialect", list(EventDialect))
async def test_A10_every_encoding_of_the_same_events_earns_the_same(dialect):
    async with fleet_of(TellingEngine(dialect=dialect)) as fleet:
        (engine,) = fleet.engines
        engine.tell(AllBlocksCleared(), blocks(1, 6), removed(6))
        engine.tell(blocks(6, 8))
        assert await fleet.credit() == {"w0/0": 32}
        engine.tell(removed(5))
        assert await fleet.credit() == {"w0/0": 16}


async def test_A10_an_event_of_an_unknown_type_costs_itself_and_is_counted():
    first = ["BlockStored", [1, 2], None, list(PROMPT[:8]), 4, None, "GPU"]
    second = ["BlockStored", [3], 2, list(PROMPT[8:12]), 4, None, "GPU"]
    async with fleet_of(RawEngine()) as fleet:
        fleet.engines[0].tell_objects(first, ["BlockMoved", {"to": "tape"}], second)
        assert await fleet.credit() == {"w0/0": 12}
        labels = {"worker": "w0", "dp_rank": "0", "reason": "unknown_type"}
        assert value(fleet.router, "events_skipped_total", **labels) == 1


async def test_A11_what_leaves_the_device_leaves_the_host_copy_known():
    async with fleet_of(TellingEngine()) as fleet:
        (engine,) = fleet.engines
        engine.tell(blocks(1, 4), blocks(1, 4, medium=Medium.HOST), removed(4, 3, 2, 1))
        assert await fleet.credit() == {}
        # The host still has their names: a child on the device finds its parents, and loading back is told.
        engine.tell(blocks(5, 5), blocks(1, 4))
        assert await fleet.credit() == {"w0/0": 20}
        engine.tell(removed(1, 2, 3, 4, medium=Medium.HOST))
        assert await fleet.credit() == {"w0/0": 20}


async def test_A12_a_clear_takes_all_credit_and_a_restart_without_any_event_too():
    engine = TellingEngine()
    engine.server_info["start_time_s"] = 1.0
    async with fleet_of(engine, TellingEngine(), probes=PROBES) as fleet:
        for each in fleet.engines:
            each.tell(blocks(1, 8))
        assert await fleet.credit() == {"w0/0": 32, "w1/0": 32}
        fleet.engines[1].tell(AllBlocksCleared())
        assert await fleet.credit() == {"w0/0": 32}
        life = TellingEngine()
        try:
            engine.server_info |= {"start_time_s": 2.0, "kv_events": life.server_info["kv_events"]}
            await eventually(lambda: fleet.view().blocks == 0)
            assert value(fleet.router, "event_resets_total", worker="w0", dp_rank="0") >= 1
        finally:
            life.publisher.close()


async def test_A14_each_copy_has_its_own_removal():
    async with fleet_of(TellingEngine()) as fleet:
        (engine,) = fleet.engines
        engine.tell(blocks(1, 3))
        engine.tell(blocks(3, 3))
        engine.tell(removed(3))
        assert await fleet.credit() == {"w0/0": 12}
        engine.tell(removed(3))
        assert await fleet.credit() == {"w0/0": 8}
        engine.tell(removed(3), blocks(3, 3))
        assert await fleet.credit() == {"w0/0": 12}
        engine.tell(blocks(3, 3), AllBlocksCleared(), blocks(1, 3), removed(3))
        assert await fleet.credit() == {"w0/0": 8}


async def test_A14_overlapping_chunks_of_an_offload_leave_the_host_copy_until_the_last_removal():
    async with fleet_of(TellingEngine()) as fleet:
        (engine,) = fleet.engines
        host = {"medium": Medium.HOST}
        engine.tell(blocks(1, 3, **host), blocks(2, 4, **host), removed(2, **host))
        engine.tell(blocks(5, 5))
        assert await fleet.credit() == {}
        engine.tell(blocks(1, 4))
        assert await fleet.credit() == {"w0/0": 20}


async def test_A15_an_unknown_hash_in_a_removal_leaves_no_ghosts_behind_it():
    async with fleet_of(TellingEngine(), TellingEngine()) as fleet:
        first, second = fleet.engines
        first.tell(blocks(1, 8))
        second.tell(blocks(1, 8))
        first.tell(removed(77, 8, 78, 7, 79))
        assert await fleet.credit() == {"w0/0": 24, "w1/0": 32}
        assert fleet.view().skipped == {}


async def test_A15_a_rank_with_many_blocks_goes_while_another_comes():
    chain = tuple(range(40_000))
    big, late = TellingEngine(dp_size=2), TellingEngine()
    for rank in range(2):
        for first in range(1, 10_001, 1_000):
            big.tell(blocks(first, first + 999, tokens=chain), rank=rank)
    late.health_status = 503
    async with fleet_of(big, late, probes=PROBES) as fleet:
        await eventually(lambda: (view := fleet.view(0, 1)) is not None and view.blocks == 10_000)
        late.tell(blocks(1, 8))
        late.health_status = 200
        big.server_info["dp_size"] = 1
        await eventually(lambda: fleet.view(0, 1) is None and fleet.view(1) is not None and fleet.view(1).blocks == 8)
        # An engine with other ranks is another process: what it holds is read from its replay once more.
        await eventually(lambda: fleet.view(0, 0).blocks == 10_000)


async def test_A17_tenants_with_salts_find_only_their_own():
    async with fleet_of(TellingEngine(), TellingEngine()) as fleet:
        first, second = fleet.engines
        first.tell(blocks(1, 8, cache_salt="s1"))
        second.tell(blocks(1, 8, cache_salt="s2"))
        assert await fleet.credit(cache_salt="s2") == {"w1/0": 32}
        assert await fleet.credit(cache_salt="s1") == {"w0/0": 32}
        assert await fleet.credit() == {}


async def test_A18_an_image_is_worth_its_own_key_and_another_the_text_before_it():
    def features(key):
        place = {"offset": 10, "length": 6}
        return {"mm_hashes": {"image": [key]}, "mm_placeholders": {"image": [place]}}

    async with fleet_of(TellingEngine()) as fleet:
        keys = (None, None, (("a", 2),), (("a", -2),), None, None, None, None)
        fleet.engines[0].tell(blocks(1, 8, extra_keys=keys))
        assert await fleet.credit(features=features("a")) == {"w0/0": 32}
        assert await fleet.credit(features=features("b")) == {"w0/0": 8}


async def test_A22_what_a_later_rank_stored_is_matched_at_that_rank_and_named_to_the_engine():
    long = tuple(range(4_001))
    async with fleet_of(TellingEngine(dp_size=4)) as fleet:
        (engine,) = fleet.engines
        engine.tell(blocks(1, 1_000, tokens=long), rank=3)
        assert await fleet.credit(long) == {"w0/3": 4_000}
        newest = (await fleet.client.get("/v1/decisions")).json()["decisions"][0]["decision"]
        assert newest["target"] == {"worker": "w0", "dp_rank": 3}
        assert dict(engine.headers())["x-data-parallel-rank"] == "3"


async def test_A26_every_rank_is_heard_at_a_port_of_its_own_as_advertised():
    async with fleet_of(TellingEngine(dp_size=4)) as fleet:
        (engine,) = fleet.engines
        told = engine.server_info["kv_events"]
        assert (told["dp_size"], told["endpoint_port_base"]) == (4, engine.publisher.sockets.live.port_base)
        for rank in range(4):
            engine.tell(blocks(1, 1 + rank), rank=rank)
        assert await fleet.credit() == {f"w0/{rank}": 4 + 4 * rank for rank in range(4)}


async def test_A24_what_a_rank_that_is_gone_still_tells_brings_nothing_back():
    async with fleet_of(TellingEngine(dp_size=2), probes=PROBES) as fleet:
        (engine,) = fleet.engines
        for rank in range(2):
            engine.tell(blocks(1, 8), rank=rank)
        assert await fleet.credit() == {"w0/0": 32, "w0/1": 32}
        engine.server_info["dp_size"] = 1
        await eventually(lambda: fleet.view(0, 1) is None)
        engine.tell(blocks(1, 12), rank=1)
        engine.tell(blocks(9, 9), rank=0)
        await eventually(lambda: fleet.view().blocks == 9)
        assert fleet.view(0, 1) is None
