"""State inside one engine: requests that name it go to that engine or are refused, and never anywhere else."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from fake_engine import FakeEngine, hanging, running
from keeping_engine import USAGE, KeepingEngine, named
from proxy_harness import CHAT, eventually, in_process, move, on_socket, value

ASKED = {"model": "toy", "input": "hello"}


@asynccontextmanager
async def fleet_of(count=3, dp_size=1, serve=in_process, **sections):
    """A router in front of engines that keep state."""
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(running(KeepingEngine())) for _ in range(count)]
        for engine in engines:
            engine.server_info["dp_size"] = dp_size
        client = await stack.enter_async_context(serve([engine.url for engine in engines], **sections))
        yield client, engines


@pytest.fixture
async def fleet():
    """Three engines, whose router takes turns where nothing holds it back."""
    async with fleet_of(policy={"name": "round_robin"}) as made:
        yield made


async def ask(client, **fields):
    return await client.post("/v1/responses", json=ASKED | fields)


def where(response):
    return response.headers["x-dovecote-worker"], response.headers["x-dovecote-dp-rank"]


def check_error(response, status, code, word=""):
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error["code"] == code
    assert word in error["message"]


def sessions_of(client):
    records = client.router.placer.decisions.find_latest(100)
    return [record.decision.session for record in reversed(records)]


async def begin(client, *, stream=False):
    """A first response, and its id."""
    response = await ask(client, stream=stream)
    assert response.status_code == 200, response.text
    if not stream:
        return response, response.json()["id"]
    line = next(line for line in response.text.splitlines() if line.startswith("data: "))
    return response, json.loads(line.removeprefix("data: "))["response"]["id"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_is_followed_up_on_the_rank_that_keeps_it(stream):
    async with fleet_of(2, dp_size=2, policy={"name": "round_robin"}) as (client, _):
        first, name = await begin(client, stream=stream)
        for _ in range(5):
            follow_up = await ask(client, previous_response_id=name, stream=stream)
            assert follow_up.status_code == 200
            assert where(follow_up) == where(first)
        others = {where(await ask(client)) for _ in range(4)}
        assert len(others) == 4


async def test_a_chain_of_responses_is_one_conversation(fleet):
    client, _ = fleet
    _, first = await begin(client)
    name = first
    for _ in range(3):
        name = (await ask(client, previous_response_id=name)).json()["id"]
    assert sessions_of(client) == [None, first, first, first]


async def test_a_chain_keeps_the_session_that_its_first_request_named(fleet):
    client, _ = fleet
    headers = {"x-dovecote-session": "mine"}
    name = (await client.post("/v1/responses", json=ASKED, headers=headers)).json()["id"]
    name = (await ask(client, previous_response_id=name)).json()["id"]
    await ask(client, previous_response_id=name)
    assert sessions_of(client) == ["mine"] * 3


async def test_the_bytes_and_counts_of_a_response_come_through(fleet):
    client, engines = fleet
    whole = await ask(client)
    assert whole.json()["usage"] == USAGE
    stream = await ask(client, stream=True)
    assert stream.text.count("event: ") == 6
    assert stream.content.endswith(b"\n\n")
    sent = [json.loads(body) for engine in engines for _, body in engine.requests]
    assert sent == [ASKED, ASKED | {"stream": True}]  # nothing was added
    for record in client.router.placer.decisions.find_latest(2):
        assert (record.outcome, record.actual_cached_tokens) == ("done", 4)
    assert value(client.router, "requests_total", outcome="done") == 2
    assert value(client.router, "ttft_seconds_count") == 1


async def test_a_stream_of_a_response_that_ends_early_is_an_error(fleet):
    client, engines = fleet
    for engine in engines:
        engine.stream_end = []
    answer = await ask(client, stream=True)
    assert json.loads(answer.content.rstrip(b"\n").rpartition(b"data: ")[2])["error"]["code"] == "upstream_closed"
    for engine in engines:
        engine.stream_end = [named("response.failed", response={"id": "resp_x", "error": {"message": "no"}})]
    answer = await ask(client, stream=True)
    assert answer.text.rstrip().endswith("}}}")
    assert value(client.router, "requests_total", outcome="error") == 1


async def test_what_no_engine_is_known_to_keep_is_404_and_reaches_none(fleet):
    client, engines = fleet
    check_error(await ask(client, previous_response_id="resp_other"), 404, "state_not_found", "no worker")
    check_error(await client.chat(session_params={"id": "other"}), 404, "state_not_found")
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel")):
        answer = await client.request(method, f"/v1/responses/resp_other{path}")
        check_error(answer, 404, "state_not_found")
    check_error(await client.post("/close_session", json={"session_id": "x"}), 404, "state_not_found")
    assert not any(engine.requests or engine.calls for engine in engines)
    assert value(client.router, "requests_total", outcome="client_error") == 6


async def test_with_one_engine_alone_unknown_state_is_that_engines_to_judge():
    async with fleet_of(1) as (client, _):
        answer = await ask(client, previous_response_id="resp_other")
        assert answer.status_code == 404
        assert answer.json()["error"]["message"] == "Response with id 'resp_other' not found."
        assert (await client.get("/v1/responses/resp_other")).json()["error"]["code"] == 404
        assert (await client.chat(session_params={"id": "s"})).status_code == 400


async def test_B07_state_of_a_worker_that_is_gone_is_410_and_stays_so_when_it_is_back_without_it():
    async with fleet_of(probes={"interval_s": 0.03, "unhealthy_after": 2}) as (client, engines):
        first, name = await begin(client)
        home = engines[int(where(first)[0][1:])]
        home.health_status = 503
        await eventually(lambda: not client.router.fleet.workers[where(first)[0]].is_usable)
        check_error(await ask(client, previous_response_id=name), 410, "state_lost", "gone")
        check_error(await client.get(f"/v1/responses/{name}"), 410, "state_lost")
        home.restart()
        home.health_status = 200
        await eventually(lambda: client.router.fleet.workers[where(first)[0]].is_usable)
        check_error(await ask(client, previous_response_id=name), 410, "state_lost")
        assert sum(len(engine.requests) for engine in engines) == 1
        assert (await ask(client)).status_code == 200


async def test_B07_a_refused_connection_does_not_move_what_rests_on_state():
    async with fleet_of(2, policy={"name": "round_robin"}) as (client, engines):
        (first, name), (_, other) = await begin(client), await begin(client)
        home = where(first)[0]
        worker = client.router.fleet.workers[home]
        move(worker, "http://127.0.0.9:1")
        check_error(await ask(client, previous_response_id=name), 410, "state_lost")
        check_error(await client.get(f"/v1/responses/{name}"), 410, "state_lost")
        assert (await ask(client, previous_response_id=other)).status_code == 200
        assert sum(len(engine.requests) for engine in engines) == 3
        assert value(client.router, "retries_total") == 0


async def test_a_call_about_state_finds_out_that_its_worker_is_gone():
    async with fleet_of(2) as (client, _):
        first, name = await begin(client)
        worker = client.router.fleet.workers[where(first)[0]]
        move(worker, "http://127.0.0.9:1")
        check_error(await client.delete(f"/v1/responses/{name}"), 410, "state_lost")
        assert value(client.router, "worker_healthy", worker=where(first)[0]) == 0


async def test_B07_a_process_that_was_replaced_between_two_probes_keeps_nothing():
    async with fleet_of(2, probes={"interval_s": 0.02}) as (client, engines):
        first, name = await begin(client)
        home = engines[int(where(first)[0][1:])]
        home.restart()
        await eventually(lambda: client.router.placer.pins.look_up(f"response:{name}", 0.0).is_lost)
        check_error(await ask(client, previous_response_id=name), 410, "state_lost")


async def test_B06_a_session_stays_on_the_rank_that_opened_it():
    async with fleet_of(2, dp_size=4, policy={"name": "round_robin"}) as (client, _):
        opened = await client.post("/open_session", json={"capacity_of_str_len": 1_000})
        params = {"id": opened.json(), "rid": None}
        seen = {where(await client.chat(session_params=params)) for _ in range(9)}
        seen |= {where(await client.post("/v1/completions", json=CHAT | {"prompt": "p", "session_params": params}))}
        assert seen == {where(opened)}


async def test_a_session_that_is_closed_is_unknown_from_then_on(fleet):
    client, engines = fleet
    opened = await client.post("/open_session", json={"capacity_of_str_len": 9, "session_id": "s"})
    assert (opened.status_code, opened.json()) == (200, "s")
    again = await client.post("/open_session", json={"capacity_of_str_len": 9, "session_id": "s"})
    assert again.status_code == 400  # of the engine that has it
    assert value(client.router, "kept_states") == 1
    closed = await client.post("/close_session", json={"session_id": "s"})
    assert (closed.status_code, closed.content) == (200, b"")
    assert where(closed) == where(opened)
    assert value(client.router, "kept_states") == 0
    check_error(await client.chat(session_params={"id": "s"}), 404, "state_not_found")
    assert [len(engine.sessions) for engine in engines] == [0, 0, 0]


async def test_two_that_open_a_session_of_one_name_at_once_do_not_get_two():
    async with fleet_of(serve=on_socket, policy={"name": "round_robin"}) as (client, engines):
        body = {"capacity_of_str_len": 9, "session_id": "s"}
        answers = await asyncio.gather(*(client.post("/open_session", json=body) for _ in range(8)))
        assert sorted(answer.status_code for answer in answers) == [200, *[400] * 7]
        assert sum(len(engine.sessions) for engine in engines) == 1


async def test_a_response_that_is_deleted_is_unknown_and_one_that_is_read_or_cancelled_stays(fleet):
    client, engines = fleet
    first, name = await begin(client)
    for _ in range(4):
        read = await client.get(f"/v1/responses/{name}?include=a&starting_after=1")
        assert (read.status_code, read.json()["id"], where(read)) == (200, name, where(first))
    assert (await client.post(f"/v1/responses/{name}/cancel")).json()["id"] == name
    stream = await client.get(f"/v1/responses/{name}?stream=true")
    assert stream.text.startswith("event: response.completed\n")
    home = engines[int(where(first)[0][1:])]
    assert home.calls[0] == ("GET", f"/v1/responses/{name}?include=a&starting_after=1", b"")
    assert (await client.delete(f"/v1/responses/{name}")).json()["deleted"] is True
    check_error(await ask(client, previous_response_id=name), 404, "state_not_found")
    assert len(home.calls) == 7


async def test_an_answer_that_is_not_to_be_kept_pins_nothing(fleet):
    client, _ = fleet
    name = (await ask(client, store=False)).json()["id"]
    assert value(client.router, "kept_states") == 0
    check_error(await ask(client, previous_response_id=name), 404, "state_not_found")
    await client.chat()
    assert value(client.router, "kept_states") == 0


async def test_a_worker_that_takes_nothing_now_is_waited_for():
    async with fleet_of(2, admission=[{"workers": ["w0", "w1"], "max_requests": 2}]) as (client, engines):
        first, name = await begin(client)
        home = engines[int(where(first)[0][1:])]
        for engine in engines:
            engine.script = hanging
        tasks = [asyncio.create_task(client.chat()) for _ in range(2)]
        await eventually(lambda: sum(len(engine.requests) for engine in engines) == 3)
        answer = await ask(client, previous_response_id=name)
        check_error(answer, 503, "overloaded")
        assert answer.headers["retry-after"] == "1"
        assert len(home.responses) == 1
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/responses", ASKED | {"previous_response_id": "x" * 257}, "previous_response_id"),
        ("/v1/responses", ASKED | {"previous_response_id": ""}, "previous_response_id"),
        ("/v1/responses", ASKED | {"previous_response_id": 5}, "previous_response_id"),
        ("/v1/responses", ASKED | {"previous_response_id": "a", "session_params": {"id": "b"}}, "session_params"),
        ("/v1/responses", {"model": "toy"}, "input"),
        ("/v1/responses", {"input": "a"}, "model"),
        ("/v1/responses", ASKED | {"routed_dp_rank": 1, "kv_transfer_params": {}}, "kv_transfer_params"),
        ("/v1/chat/completions", CHAT | {"session_params": "s"}, "session_params"),
        ("/v1/chat/completions", CHAT | {"session_params": {"id": ["s"]}}, "session_params.id"),
        ("/v1/chat/completions", CHAT | {"session_params": {"id": "x" * 257}}, "session_params.id"),
        ("/v1/chat/completions", CHAT | {"session_params": {"id": "s", "x": "y" * 5_000}}, "session_params"),
        ("/open_session", {"session_id": "x" * 257}, "session_id"),
        ("/open_session", {"session_id": {}}, "session_id"),
        ("/open_session", {"model": 1}, "model"),
        ("/open_session", [], None),
        ("/close_session", {}, "session_id"),
        ("/close_session", {"session_id": "x" * 300}, "session_id"),
    ],
)
async def test_names_that_are_none_or_too_long_are_400_and_reach_no_engine(fleet, path, body, param):
    client, engines = fleet
    answer = await client.post(path, json=body)
    check_error(answer, 400, "invalid_request")
    assert answer.json()["error"]["param"] == param
    assert not any(engine.requests or engine.calls for engine in engines)


@pytest.mark.parametrize("name", ["..", "a%2Fb", "a%20b", "x" * 257, "%00", "a?b"])
async def test_an_id_in_a_path_cannot_be_another_path(fleet, name):
    client, engines = fleet
    answer = await client.get(f"/v1/responses/{name}")
    assert answer.status_code in {400, 404}
    assert not any(engine.calls for engine in engines)


async def test_methods_that_make_no_sense_are_405(fleet):
    client, _ = fleet
    for method, path in (
        ("GET", "/v1/responses"),
        ("PUT", "/v1/responses/resp_1"),
        ("GET", "/v1/responses/resp_1/cancel"),
        ("GET", "/open_session"),
    ):
        check_error(await client.request(method, path), 405, "method_not_allowed")


async def test_an_engine_cannot_be_made_to_take_over_a_name_of_another(fleet):
    client, engines = fleet
    first, name = await begin(client)
    for engine in engines:
        engine.respond = lambda _fields: {"id": name, "object": "response"}
    assert where(first) not in {where(await ask(client)) for _ in range(2)}
    for _ in range(3):
        follow_up = await ask(client, previous_response_id=name)
        assert where(follow_up) == where(first)


@pytest.mark.parametrize("name", [None, 7, "", "x" * 300, {"a": 1}])
async def test_an_answer_with_an_odd_name_passes_and_pins_nothing(fleet, name):
    client, engines = fleet
    for engine in engines:
        engine.respond = lambda _fields: {"id": name, "object": "response"}
    for stream in (False, True):
        assert (await ask(client, stream=stream)).status_code == 200
    assert value(client.router, "kept_states") == 0


async def test_names_are_bounded_in_number():
    async with fleet_of(2, sessions={"max_sessions": 4}) as (client, _):
        names = [(await begin(client))[1] for _ in range(6)]
        assert value(client.router, "kept_states") == 4
        check_error(await ask(client, previous_response_id=names[0]), 404, "state_not_found")
        assert (await ask(client, previous_response_id=names[-1])).status_code == 200


async def test_an_engine_without_sessions_says_so_itself():
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(running(FakeEngine())) for _ in range(2)]
        async with in_process([engine.url for engine in engines]) as client:
            assert (await client.post("/open_session", json={})).status_code == 404
            assert value(client.router, "kept_states") == 0


async def test_a_fleet_of_several_models_has_to_be_told_which_one_a_session_is_for():
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(running(KeepingEngine())) for _ in range(2)]
        engines[1].models = ["other"]
        async with in_process([engine.url for engine in engines]) as client:
            answer = await client.post("/open_session", json={"capacity_of_str_len": 9})
            check_error(answer, 400, "invalid_request", "different")
            opened = await client.post("/open_session", json={"capacity_of_str_len": 9, "model": "other"})
            assert where(opened) == ("w1", "0")
            assert json.loads(engines[1].calls[0][2]) == {"capacity_of_str_len": 9}
            check_error(await client.post("/open_session", json={"model": "none"}), 404, "model_not_found")
