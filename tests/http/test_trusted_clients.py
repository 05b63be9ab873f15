"""Only a client that the configuration trusts may set the router's own fields, and what the router sets stands."""

import pytest
from pair_engines import SglangEngine, SglangFabric
from proxy_harness import CHAT, in_process

from router.access.keys import hash_key

KEYS = {name: f"{name}-{'k' * 40}" for name in ("plain", "trusted")}
ACCESS = {
    "keys": [{"name": name, "hash": hash_key(key), "trusted": name == "trusted"} for name, key in KEYS.items()]
}  # fmt: skip
HINTS = {"protocol_version": "0.1", "actions": []}


def ask(client, name, headers=None, **fields):
    lines = {"authorization": f"Bearer {KEYS[name]}"} | (headers or {})
    return client.post("/v1/chat/completions", json=CHAT | fields, headers=lines)


@pytest.mark.parametrize(
    "field", ["kv_hints", "kv_hint", "kv_router_hint", "kv_transfer_params", "bootstrap_room", "bootstrap_host"]
)
async def test_G03_a_field_of_the_routers_passes_from_a_trusted_client_alone(engine, field):
    async with in_process([engine.url], access=ACCESS) as client:
        refused = await ask(client, "plain", **{field: HINTS})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)
        assert engine.requests == []
        assert (await ask(client, "trusted", **{field: HINTS})).status_code == 200
        assert engine.body()[field] == HINTS


async def test_G04_a_rank_header_counts_from_a_trusted_client_alone(engine):
    async with in_process([engine.url], access=ACCESS) as client:
        for name, rank in (("plain", "0"), ("trusted", "7")):
            headers = {"X-Data-Parallel-Rank": "7", "x-override-routed-dp-rank": "7"}
            assert (await ask(client, name, headers)).status_code == 200
            assert [line for line in engine.headers() if "rank" in line[0]] == [("x-data-parallel-rank", rank)]


async def test_what_the_router_says_of_a_pair_stands_whoever_asks():
    fabric = SglangFabric()
    pair = [SglangEngine(fabric, role, 2) for role in ("prefill", "decode")]
    for one in pair:
        await one.start()
    try:
        async with in_process([one.url for one in pair], access=ACCESS) as client:
            headers = {"x-data-parallel-rank": "1"}
            answer = await ask(client, "trusted", headers, bootstrap_room=5, bootstrap_host="2.2.2.2", routed_dp_rank=9)
            assert answer.status_code == 200
        assert fabric.violations == []
        assert pair[0].body()["bootstrap_host"] == "127.0.0.1"
        assert pair[0].body()["bootstrap_room"] == pair[1].body()["bootstrap_room"] != 5
    finally:
        for one in pair:
            await one.stop()
