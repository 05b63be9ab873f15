"""Workers register with an admin's key and from where the configuration allows, and leave again; nobody else does."""

from pathlib import Path

import pytest
from aiohttp import web
from fake_engine import FakeEngine, running
from proxy_harness import CHAT, eventually, in_process

from router.access.keys import hash_key
from router.config.discovery import RegistrationConfig
from router.config.workers import WorkerConfig
from router.control.registrations import Refused, Registrations
from router.control.registry import Registry

KEYS = {role: f"dvk_{role}_{'x' * 40}" for role in ("admin", "client")}
ACCESS = {"keys": [{"name": role, "role": role, "hash": hash_key(key)} for role, key in KEYS.items()]}
ADMIN = {"authorization": f"Bearer {KEYS['admin']}"}
TOY = str(Path(__file__).parents[2] / "engine_shim/engine/tokenizer/toy")
FAST = {"interval_s": 0.03, "unhealthy_after": 3}
HERE = {"hosts": ["127.0.0.1"]}


def open_router(engine, **more):
    given = {"access": ACCESS, "registration": HERE, "probes": FAST, "policy": {"name": "round_robin"}}
    return in_process([engine.url], **given | more)


def register(client, headers=ADMIN, **fields):
    return client.post("/v1/workers", json=fields, headers=headers)


async def known(client):
    return [entry["id"] for entry in (await client.get("/v1/workers", headers=ADMIN)).json()["workers"]]


async def test_a_worker_registers_serves_and_leaves(engines):
    async with open_router(engines[0]) as client:
        answer = await register(client, url=engines[1].url, id="new")
        assert (answer.status_code, answer.json()) == (201, {"id": "new", "url": engines[1].url})
        assert (await register(client, url=engines[1].url, id="new")).status_code == 200
        await eventually(lambda: client.router.fleet.workers["new"].takes_requests)
        chats = [await client.post("/v1/chat/completions", json=CHAT, headers=ADMIN) for _ in range(4)]
        assert {chat.headers["x-dovecote-worker"] for chat in chats} == {"w0", "new"}
        assert (await client.delete("/v1/workers/new", headers=ADMIN)).json() == {"id": "new", "leaving": True}
        await eventually(lambda: "new" not in client.router.fleet.workers)
        assert await known(client) == ["w0"]


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": f"Bearer {KEYS['client']}"}]
)
async def test_G02_without_an_admins_key_nobody_registers_removes_or_drains(engines, headers):
    async with open_router(engines[0]) as client:
        answers = [
            await register(client, headers, url=engines[1].url),
            await client.delete("/v1/workers/w0", headers=headers),
            await client.post("/v1/workers/w0/drain", headers=headers),
            await client.get("/v1/workers", headers=headers),
        ]
        assert {answer.status_code for answer in answers} <= {401, 403}
        assert engines[1].probes == 0
        assert await known(client) == ["w0"]


async def test_G02_a_router_without_keys_takes_nobody_in(engines):
    async with in_process([engines[0].url], registration=HERE) as client:
        answer = await register(client, {}, url=engines[1].url)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "missing_key")
        assert engines[1].probes == 0


async def test_G02_where_the_configuration_allows_no_registration_there_is_none(engines):
    async with open_router(engines[0], registration=None) as client:
        answer = await register(client, url=engines[1].url)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "registration_off")


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "http://169.254.169.254/latest"},
        {"url": "http://[::ffff:169.254.169.254]:80"},
        {"url": "http://localhost:22"},
        {"url": "http://127.1:22"},
        {"url": "http://2130706434:22"},
        {"url": "http://10.0.0.1:30000"},
        {"url": "file:///etc/passwd"},
        {"url": "gopher://10.0.0.1"},
        {"url": "http://user:word@10.0.0.1:1"},
        {"url": "http://10.0.0.1:1", "sidecar": "http://169.254.169.254"},
        {"url": "http://10.0.0.1:1", "api_key_file": "/etc/passwd"},
        {"url": "http://10.0.0.1:1", "events": {"endpoint": "tcp://169.254.169.254:80"}},
        {"url": "http://no-such-host.invalid:1"},
        {"id": "x"},
        {"url": "http://10.0.0.1:1", "zeal": 1},
    ],
    ids=str,
)
async def test_G02_addresses_that_are_not_allowed_are_422_and_nothing_is_asked_of_them(engines, fields):
    registration = {"hosts": ["engine.example"], "cidrs": ["192.168.0.0/16"], "ports": [1, 22, 80, 30_000]}
    async with open_router(engines[0], registration=registration) as client:
        answer = await register(client, **fields)
        assert (answer.status_code, answer.json()["error"]["type"]) == (422, "invalid_request_error")
        assert await known(client) == ["w0"]


async def test_G02_a_worker_that_redirects_its_probes_elsewhere_is_not_followed(engines):
    class Redirecting(FakeEngine):
        def app(self):
            async def elsewhere(_request):
                raise web.HTTPFound(engines[1].url + "/health")

            app = web.Application()
            app.router.add_route("*", "/{tail:.*}", elsewhere)
            return app

    async with running(Redirecting()) as bad, open_router(engines[0]) as client:
        await register(client, url=bad.url, id="bad")
        await eventually(lambda: "302" in (client.router.fleet.workers["bad"].problem or ""))
        assert engines[1].probes == 0
        assert not client.router.fleet.workers["bad"].takes_requests


async def test_G02_event_sockets_of_another_host_are_not_connected_to(engines):
    engines[1].server_info["kv_events"] = {
        "publisher": "zmq", "endpoint_host": "10.9.9.9", "endpoint_port_base": 5_557, "block_size": 16, "dp_size": 1,
        "load_endpoint_port_base": 5_558,
    }  # fmt: skip
    async with open_router(engines[0], tokenizer={"path": TOY}) as client:
        await register(client, url=engines[1].url, id="new")
        await eventually(lambda: client.router.fleet.workers["new"].takes_requests)
        worker = client.router.fleet.workers["new"]
        assert worker.find_events(worker.targets[0]) is None
        assert worker.explain_no_credit() == "its event sockets are at another host than its own"
        assert not client.router.fleet._examiner.sockets._followed


def make(addresses, *, checks_certificates=True, **config):
    taken = []
    registry = Registry(("config", "api"))

    def apply(word):
        taken.append(word)
        registry.apply(word)

    async def resolve(_host, _port):
        return list(addresses)

    allowed = RegistrationConfig(**{"hosts": ["engine.example"], **config})
    registrations = Registrations(
        allowed, registry, apply, find_addresses=resolve, checks_certificates=checks_certificates
    )
    return registrations, taken


async def test_G02_a_name_is_pinned_to_the_address_that_was_looked_at():
    registrations, taken = make(["10.0.0.7"])
    entry = await registrations.add(WorkerConfig(url="http://engine.example:30000"))
    assert entry.config.url == "http://10.0.0.7:30000"
    assert (entry.worker, entry.is_guest) == ("engine.example:30000", True)
    secure = await registrations.add(WorkerConfig(url="https://engine.example:30000", id="tls"))
    assert secure.config.url == "https://engine.example:30000"
    assert len(taken) == 2


async def test_G02_a_name_whose_certificate_nobody_checks_is_pinned_over_https_too():
    registrations, _ = make(["10.0.0.7"], checks_certificates=False)
    entry = await registrations.add(WorkerConfig(url="https://engine.example:30000"))
    assert entry.config.url == "https://10.0.0.7:30000"


async def test_G02_a_name_one_of_whose_addresses_is_not_allowed_is_refused():
    registrations, taken = make(["10.0.0.7", "127.0.0.1"])
    refused = await registrations.add(WorkerConfig(url="http://engine.example:30000"))
    assert isinstance(refused, Refused)
    assert taken == []


async def test_no_more_workers_register_than_may_and_each_address_once():
    registrations, _ = make(["10.0.0.7"], max_workers=2)
    for number in (1, 2):
        await registrations.add(WorkerConfig(url=f"http://engine.example:{number}"))
    assert (await registrations.add(WorkerConfig(url="http://engine.example:3"))).code == "too_many_workers"
    again = await registrations.add(WorkerConfig(url="http://engine.example:1", id="other"))
    assert again.code == "too_many_workers"
    registrations.remove("engine.example:2")
    again = await registrations.add(WorkerConfig(url="http://engine.example:1", id="other"))
    assert again.code == "worker_exists"


async def test_workers_of_the_configuration_are_neither_taken_over_nor_removed(engines):
    async with open_router(engines[0]) as client:
        answer = await register(client, url=engines[1].url, id="w0")
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "worker_exists")
        assert (await client.delete("/v1/workers/w0", headers=ADMIN)).json()["error"]["code"] == "not_registered"
        assert (await client.delete("/v1/workers/x", headers=ADMIN)).status_code == 404


async def test_an_admin_drains_a_worker_and_takes_it_back(engines):
    async with in_process([each.url for each in engines], access=ACCESS) as client:
        assert (await client.post("/v1/workers/w0/drain", headers=ADMIN)).json() == {"id": "w0", "draining": True}
        chats = [await client.post("/v1/chat/completions", json=CHAT, headers=ADMIN) for _ in range(4)]
        assert {chat.headers["x-dovecote-worker"] for chat in chats} == {"w1"}
        assert (await client.delete("/v1/workers/w0/drain", headers=ADMIN)).json()["draining"] is False
        assert (await client.post("/v1/workers/x/drain", headers=ADMIN)).status_code == 404


async def test_a_registration_that_is_too_long_or_no_object_is_refused(engines):
    async with open_router(engines[0]) as client:
        long = await client.post("/v1/workers", content=b"x" * 70_000, headers=ADMIN)
        assert long.status_code == 413
        assert (await client.post("/v1/workers", content=b"[]", headers=ADMIN)).status_code == 400
