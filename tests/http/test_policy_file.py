"""The policy's file from outside: what is wrong with it shows everywhere, and the old policy goes on."""

import asyncio
import os
import socket

import pytest
from proxy_harness import eventually, in_process, value

OLD = "name: least_load"
TURNS = "name: round_robin"
COSTS = "{name: cache_affinity, weights: {wait: 3.0}}"


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "policy.yaml"
    made.write_text(OLD)
    return made


@pytest.fixture
async def served(engines, path):
    """A client of a router that follows the file."""
    async with in_process([engine.url for engine in engines], policy={"file": str(path)}) as client:
        yield client


def write(path, text):
    """As an editor does it: another file in its place."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


def become_folder(path):
    path.unlink()
    path.mkdir()


def become_pipe(path):
    path.unlink()
    os.mkfifo(path)


def become_socket(path):
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def become_endless(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def become_loop(path):
    path.unlink()
    path.symlink_to(path)


def become_bytes(path):
    path.write_bytes(b"\xff\xfe\x00")


BOMB = "a: &a [1, 1]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
)
BAD_FILES = {
    "folder": (become_folder, "no regular file"),
    "pipe": (become_pipe, "no regular file"),
    "socket": (become_socket, "cannot be read"),
    "device": (become_endless, "no regular file"),
    "loop": (become_loop, "cannot be read"),
    "gone": (lambda path: path.unlink(), "cannot be read: No such file"),
    "bytes": (become_bytes, "not UTF-8"),
}
BAD_TEXTS = {
    "nan": ("{weights: {wait: .nan}}", "weights.wait: nan"),
    "infinite": ("{coefficients: {prefill_s_per_token: .inf}}", "coefficients.prefill_s_per_token: inf"),
    "below infinite": ("{coefficients: {decode_step_s: -.inf}}", "coefficients.decode_step_s: -inf"),
    "negative": ("{weights: {reuse: -1.0}}", "weights.reuse: -1.0"),
    "huge": ("{coefficients: {prefill_s_per_token: 1.0e+300}}", "less than or equal to"),
    "huge whole": ("{coefficients: {max_copies: 1" + "0" * 400 + "}}", "coefficients.max_copies"),
    "nan in a knob": ("{name: overlap_linear, settings: {prefill_load_scale: .nan}}", "prefill_load_scale"),
    "nan in the shadow": ("{shadow: {weights: {wait: .nan}}}", "shadow.weights.wait"),
    "unknown key": ("{weigths: {wait: 1.0}}", "did you mean 'weights'"),
    "unknown weight": ("{weights: {waits: 1.0}}", "did you mean 'wait'"),
    "unknown policy": ("{name: cache_afinity}", "did you mean 'cache_affinity'"),
    "text for a number": ("{weights: {wait: 'much'}}", "weights.wait: 'much'"),
    "list for a mapping": ("{weights: [1, 2]}", "weights"),
    "a list": ("[1, 2]", "must be a mapping"),
    "a word": ("cache_affinity", "must be a mapping"),
    "half of a mapping": ("weights: {wait: 2.0", "no valid YAML"),
    "key twice": ("name: random\nname: round_robin", "stands twice"),
    "too deep": ("a: " + "[" * 5_000, "no valid YAML"),
    "too long": ("#" * ((4 << 20) + 1), "longer than"),
    "code": ("!!python/object/apply:os.getcwd []", "no valid YAML"),
    "expands": (BOMB, "policy.yaml"),
    "of the fleet": ("workers: []", "workers"),
}


async def check_refused(client, word, caplog):
    """Told by the answer, the admin API, the metrics and the log; the old policy places."""
    answer = await client.post("/v1/policy/reload")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (422, "policy_refused")
    assert word in error["message"]
    assert len(error["message"]) < 1_000
    told = (await client.get("/v1/policy")).json()
    assert told["problem"].startswith(error["message"].rstrip("…"))
    assert told["policy"]["name"] == "least_load"
    assert value(client.router, "policy_file_refused") == 1
    assert value(client.router, "policy_reloads_total", result="refused") == 1
    assert value(client.router, "policy_reloads_total", result="taken") == 0
    assert sum("policy_refused" in record.getMessage() for record in caplog.records) == 1
    response = await client.chat()
    decision = (await client.get("/v1/decisions/" + response.headers["x-request-id"])).json()["decision"]
    assert decision["policy"] == "least_load"


async def check_taken(client, path):
    """A good file in its place ends it."""
    write(path, TURNS)
    assert (await client.post("/v1/policy/reload")).json()["policy"]["name"] == "round_robin"
    assert value(client.router, "policy_file_refused") == 0
    response = await client.chat()
    decision = (await client.get("/v1/decisions/" + response.headers["x-request-id"])).json()["decision"]
    assert decision["policy"] == "round_robin"


@pytest.mark.parametrize("kind", BAD_TEXTS)
async def test_a_bad_text_is_refused_whole_and_told_everywhere(served, path, caplog, kind):
    text, word = BAD_TEXTS[kind]
    write(path, text)
    await check_refused(served, word, caplog)
    await check_taken(served, path)


@pytest.mark.parametrize("kind", BAD_FILES)
async def test_a_path_that_is_no_file_any_more_is_refused_and_told_everywhere(served, path, caplog, kind):
    become, word = BAD_FILES[kind]
    become(path)
    await check_refused(served, word, caplog)
    if path.is_dir():
        path.rmdir()
    await check_taken(served, path)


async def test_a_hundred_reloads_under_load_never_mix_two_policies(served, path, engines):
    async def reload():
        for number in range(50):
            write(path, COSTS if number % 2 else TURNS)
            answer = await served.post("/v1/policy/reload")
            assert answer.status_code == 200
        write(path, COSTS)
        await asyncio.gather(*(served.post("/v1/policy/reload") for _ in range(50)))

    async def load(client_number):
        seen = []
        # However long the reloads take, all decisions are remembered.
        while not done.is_set() and len(seen) < 1_000:
            name = f"c{client_number}-{len(seen)}"
            response = await served.chat(messages=[{"role": "user", "content": name}], user=name)
            assert response.status_code == 200
            seen.append(response.headers["x-request-id"])
        return seen

    done = asyncio.Event()
    clients = [asyncio.create_task(load(number)) for number in range(4)]
    await reload()
    done.set()
    names = [name for seen in await asyncio.gather(*clients) for name in seen]
    assert len(names) >= 50
    policies = set()
    for name in names:
        decision = (await served.get(f"/v1/decisions/{name}")).json()["decision"]
        policies.add(decision["policy"])
        has_terms = any(entry["terms"] for entry in decision["candidates"])
        assert has_terms == (decision["policy"] == "cache_affinity")
    assert policies - {"least_load"} == {"cache_affinity", "round_robin"}
    told = (await served.get("/v1/policy")).json()
    assert (told["policy"]["name"], told["problem"]) == ("cache_affinity", None)
    assert served.router.placer.policy.name == "cache_affinity"


async def test_a_policy_changed_while_requests_run_leaves_nothing_charged(served, path, engines):
    gate = asyncio.Event()
    usual = engines[0].script

    async def wait(engine, request, body):
        await gate.wait()
        return await usual(engine, request, body)

    for engine in engines:
        engine.script = wait
    tasks = [asyncio.create_task(served.chat(stream=bool(number % 2))) for number in range(6)]
    await eventually(lambda: sum(len(engine.requests) for engine in engines) == 6)
    for text in (TURNS, COSTS, "{name: overlap_linear, shadow: {name: random}}"):
        write(path, text)
        assert (await served.post("/v1/policy/reload")).status_code == 200
    assert len(served.router.placer.ledger.open_requests()) == 6
    gate.set()
    assert [response.status_code for response in await asyncio.gather(*tasks)] == [200] * 6
