"""Keys of a file come and go without a restart; a file that cannot be used changes nothing."""

import os
import signal

import pytest
import yaml
from proxy_harness import CHAT, eventually, in_process, value

from router.access.keys import hash_key
from router.errors import ConfigError

NAMES = ("first", "second", "ops", "late")
KEYS = {name: f"{name}-{'k' * 40}" for name in NAMES}
OWN = [{"name": "ops", "hash": hash_key(KEYS["ops"]), "role": "admin"}]


def by(name):
    return {"authorization": f"Bearer {KEYS[name]}"}


def write(path, *names, **more):
    """As an operator's tool does it: beside, then in its place."""
    entries = [{"name": name, "hash": hash_key(KEYS[name])} | more for name in names]
    spare = path.with_suffix(".new")
    spare.write_text(yaml.safe_dump({"keys": entries}))
    spare.replace(path)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "keys.yaml"
    write(file, "first")
    return file


@pytest.fixture
async def client(engine, path):
    async with in_process([engine.url], access={"keys": OWN, "keys_file": str(path)}) as client:
        yield client


async def ask(client, name):
    return (await client.post("/v1/chat/completions", json=CHAT, headers=by(name))).status_code


async def reload(client):
    return await client.post("/v1/keys/reload", headers=by("ops"))


async def test_keys_come_and_go_with_the_file(client, path):
    assert [await ask(client, name) for name in ("first", "second", "ops")] == [200, 401, 200]
    write(path, "second")
    told = await reload(client)
    assert told.status_code == 200
    assert [key["name"] for key in told.json()["keys"]] == ["ops", "second"]
    assert [await ask(client, name) for name in ("first", "second", "ops")] == [401, 200, 200]


async def test_a_change_is_noticed_by_itself_and_at_a_signal(client, path):
    write(path, "first", "late")
    os.kill(os.getpid(), signal.SIGHUP)
    await eventually(lambda: len(client.router.gate.ring) == 3)
    assert await ask(client, "late") == 200


@pytest.mark.parametrize(
    "text",
    ["keys: [", "keys: [{name: x, hash: nonsense}]", "- a", f"keys: [{{name: ops, hash: '{hash_key(KEYS['late'])}'}}]",
     f"keys: [{{name: other, hash: '{hash_key(KEYS['ops'])}'}}]"],
)  # fmt: skip
async def test_a_file_that_cannot_be_used_changes_nothing(client, path, text):
    path.write_text(text)
    refused = await reload(client)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "keys_refused")
    assert value(client.router, "keys_file_refused") == 1
    assert [await ask(client, name) for name in ("first", "ops")] == [200, 200]
    told = (await client.get("/v1/keys", headers=by("ops"))).json()
    assert told["problem"] is not None
    write(path, "second")
    assert (await reload(client)).status_code == 200
    assert value(client.router, "keys_file_refused") == 0
    assert await ask(client, "second") == 200


async def test_a_file_without_keys_shuts_everybody_out_but_those_of_the_configuration(client, path):
    path.write_text("")
    assert (await reload(client)).status_code == 200
    assert [await ask(client, name) for name in ("first", "ops")] == [401, 200]


async def test_a_changed_limit_counts_from_the_next_request_on(client, path):
    assert await ask(client, "first") == 200
    write(path, "first", limits={"requests_per_minute": 1})
    await reload(client)
    assert [await ask(client, "first") for _ in range(2)] == [200, 429]


async def test_keys_are_told_to_admins_without_any_secret(client):
    told = (await client.get("/v1/keys", headers=by("ops"))).text
    assert not any(secret in told for key in KEYS.values() for secret in (key, hash_key(key)))
    assert (await client.get("/v1/keys", headers=by("first"))).status_code == 403


async def test_without_a_file_there_is_nothing_to_read_anew(engine):
    async with in_process([engine.url], access={"keys": OWN}) as client:
        refused = await reload(client)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "no_keys_file")


async def test_a_router_does_not_start_on_a_file_that_cannot_be_used(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        async with in_process(["http://a:1"], access={"keys_file": str(tmp_path / "missing.yaml")}):
            pass
