"""Queries reach engines as they came, and no tenant overtakes the others there further than its key may."""

import json

import pytest
from pair_engines import SglangEngine, SglangFabric
from proxy_harness import CHAT, in_process

from router.access.keys import hash_key
from router.proxy.engine_words import MAX_QUERY_FIELDS

KEYS = {name: f"{name}-{'k' * 40}" for name in ("plain", "fast", "trusted")}
_MORE = {"fast": {"max_priority": 3}, "trusted": {"trusted": True}}
ACCESS = {"keys": [{"name": name, "hash": hash_key(key)} | _MORE.get(name, {}) for name, key in KEYS.items()]}
PATH = "/v1/chat/completions"


def by(name):
    return {"authorization": f"Bearer {KEYS[name]}"}


@pytest.mark.parametrize(
    ("name", "said", "told"),
    [
        ("plain", 5, "absent"),
        ("plain", -5, "absent"),
        ("plain", [1, 2], "absent"),
        ("plain", None, None),
        ("fast", 2, 2),
        ("fast", 9, 3),
        ("fast", -(10**30), -3),
        ("fast", [0, 9, -9], [0, 3, -3]),
        ("trusted", 99, 99),
        ("trusted", "any", "any"),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_priority_in_a_body_counts_as_far_as_the_key_may(engine, name, said, told, is_stream):
    async with in_process([engine.url], access=ACCESS) as client:
        body = CHAT | {"priority": said, "stream": is_stream, "seed": 1}
        assert (await client.post(PATH, json=body, headers=by(name))).status_code == 200
        assert engine.body().get("priority", "absent") == told
        assert (engine.body()["seed"], engine.body()["messages"]) == (1, CHAT["messages"])


@pytest.mark.parametrize("said", ["5", 5.0, 1e9, True, {"a": 1}, [1, "2"], [[1]]])
@pytest.mark.parametrize("name", ["plain", "fast"])
async def test_what_an_engine_might_read_as_a_priority_is_refused(engine, name, said):
    async with in_process([engine.url], access=ACCESS) as client:
        refused = await client.post(PATH, json=CHAT | {"priority": said}, headers=by(name))
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "priority")
        assert engine.requests == []


async def test_where_there_are_no_tenants_a_priority_passes_as_it_is(engine):
    async with in_process([engine.url]) as client:
        for said in (99, -99, "5"):
            data = json.dumps(CHAT | {"priority": said}).encode()
            assert (await client.post(PATH, content=data)).status_code == 200
            assert engine.requests[-1][1] == data


QUERY = "api-version=2025-01-01&x=%20%C3%A9&empty="


@pytest.mark.parametrize("is_stream", [False, True])
async def test_the_query_of_a_placed_request_goes_to_the_engine_as_it_came(engine, is_stream):
    async with in_process([engine.url], access=ACCESS) as client:
        answer = await client.post(f"{PATH}?{QUERY}", json=CHAT | {"stream": is_stream}, headers=by("plain"))
        assert answer.status_code == 200
        assert engine.requests[-1][0].raw_path == f"{PATH}?{QUERY}"


async def test_it_goes_to_both_legs_of_a_pair():
    fabric = SglangFabric()
    pair = [SglangEngine(fabric, role) for role in ("prefill", "decode")]
    for one in pair:
        await one.start()
    try:
        async with in_process([one.url for one in pair]) as client:
            assert (await client.post(f"{PATH}?{QUERY}", json=CHAT)).status_code == 200
        assert [one.requests[-1][0].query_string for one in pair] == [pair[0].requests[-1][0].query_string] * 2
        assert all(one.requests[-1][0].raw_path.endswith(f"?{QUERY}") for one in pair)
    finally:
        for one in pair:
            await one.stop()


@pytest.mark.parametrize("query", ["bootstrap_room=5", "a=1&kv_transfer_params", "routed%5Fdp_rank=1"])
async def test_a_field_of_the_routers_in_a_query_is_refused_but_from_a_trusted_client(engine, query):
    async with in_process([engine.url], access=ACCESS) as client:
        refused = await client.post(f"{PATH}?{query}", json=CHAT, headers=by("plain"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")
        assert engine.requests == []
        assert (await client.post(f"{PATH}?{query}", json=CHAT, headers=by("trusted"))).status_code == 200


async def test_a_query_of_too_many_fields_is_refused(engine):
    async with in_process([engine.url]) as client:
        query = "&".join(f"a{number}=1" for number in range(MAX_QUERY_FIELDS + 1))
        assert (await client.post(f"{PATH}?{query}", json=CHAT)).status_code == 400
