"""Which rank serves: the header's, else the body's, else the least loaded in turn."""

import asyncio

import pytest
from engine_serving import chat_body
from hypothesis import given
from hypothesis import strategies as st

from engine_shim.engine.server.rank_choice import RankChoice
from tests.waiting import eventually

CHAT = "/v1/chat/completions"
RANK = "x-dovecote-dp-rank"


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("path", [CHAT, "/generate", "/v1/completions"])
async def test_the_rank_header_goes_before_the_body(client, rank, path):
    body = chat_body(prompt="x", text="x", routed_dp_rank=1 - rank)
    response = await client.post(path, json=body, headers={"X-Data-Parallel-Rank": str(rank)})
    assert response.headers[RANK] == str(rank)


@pytest.mark.parametrize("field", ["routed_dp_rank", "data_parallel_rank"])
@pytest.mark.parametrize("rank", [0, 1])
async def test_the_body_may_name_the_rank(client, field, rank):
    response = await client.post(CHAT, json=chat_body(**{field: rank}))
    assert response.headers[RANK] == str(rank)


async def test_idle_ranks_take_turns(client):
    ranks = [(await client.post(CHAT, json=chat_body())).headers[RANK] for _ in range(4)]
    assert ranks == ["0", "1", "0", "1"]


async def test_a_busy_rank_is_passed_over(client, gate, service):
    gate.close()
    held = [asyncio.ensure_future(client.post(CHAT, json=chat_body(routed_dp_rank=1))) for _ in range(3)]
    await eventually(lambda: service.hub.requests == (0, 3))
    free = [asyncio.ensure_future(client.post(CHAT, json=chat_body())) for _ in range(3)]
    await eventually(lambda: service.hub.requests == (3, 3))
    gate.open()
    assert [response.headers[RANK] for response in await asyncio.gather(*free)] == ["0", "0", "0"]
    await asyncio.gather(*held)


async def test_choices_of_one_request_are_all_on_one_rank(client, service):
    await client.post(CHAT, json=chat_body(n=4, routed_dp_rank=1))
    assert service.ranks[1].snapshot.counters["finished_requests"] == 4
    assert service.ranks[0].snapshot.counters["finished_requests"] == 0


@given(st.integers(1, 5), st.lists(st.one_of(st.none(), st.integers(0, 4)), max_size=40))
def test_the_chosen_rank_never_has_more_requests_than_another(dp_size, moves):
    choice = RankChoice(dp_size)
    for ended in moves:
        if ended is None:
            rank = choice.choose()
            assert choice.requests[rank] == min(choice.requests)
            choice.reserve(rank, 1)
        elif ended < dp_size and choice.requests[ended]:
            choice.release(ended)
        assert min(choice.requests) >= 0
