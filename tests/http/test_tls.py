"""TLS towards clients and workers, and a port of their own for admins, on real sockets."""

import asyncio
import sys

import httpx
import pytest
from fake_engine import FakeEngine, running
from proxy_harness import on_socket
from test_access import ACCESS, bearer

from router.config.network import ServerTls
from router.tls import ServerCertificate
from tests.certificates import Authority
from tests.waiting import PATIENCE_S


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


async def test_clients_are_served_over_tls(engine, authority):
    cert, key = authority.issue("router")
    tls = ServerCertificate(ServerTls(cert_file=cert, key_file=key)).context
    async with on_socket([engine.url], tls=tls, verify=authority.trusting()) as client:
        assert (await client.chat()).status_code == 200
        async with client.stream("POST", "/v1/chat/completions", json={"stream": True}) as _:
            pass
        with pytest.raises(httpx.HTTPError):
            async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as plain:
                await plain.get(str(client.base_url).replace("https", "http") + "/health")


async def test_a_client_without_a_certificate_is_not_let_in(engine, authority, tmp_path):
    cert, key = authority.issue("router")
    tls = ServerCertificate(ServerTls(cert_file=cert, key_file=key, client_ca_file=authority.ca_file)).context
    stranger = Authority(tmp_path, "stranger")
    async with on_socket([engine.url], tls=tls, verify=authority.trusting(authority.issue("client"))) as client:
        assert (await client.chat()).status_code == 200
        for pair in (None, stranger.issue("stranger")):
            tls = authority.trusting(pair)
            async with httpx.AsyncClient(verify=tls, trust_env=False, timeout=PATIENCE_S) as unknown:
                with pytest.raises((httpx.HTTPError, OSError)):
                    await unknown.get(str(client.base_url) + "/health")


async def test_workers_are_asked_over_tls_and_known_by_their_authority(authority, tmp_path):
    stranger = Authority(tmp_path, "stranger")
    engine, router_pair = FakeEngine(), authority.issue("router")
    shown = {"cert_file": router_pair[0], "key_file": router_pair[1]}
    tls = authority.serving(authority.issue("engine"), asks=True)
    async with running(engine, tls=tls):
        async with on_socket([engine.url], worker_tls=shown | {"ca_file": authority.ca_file}) as client:
            assert (await client.chat()).status_code == 200
        async with on_socket([engine.url], worker_tls=shown | {"insecure": True}) as client:
            assert (await client.chat()).status_code == 200
        for believed in (shown | {"ca_file": stranger.ca_file}, {"ca_file": authority.ca_file}):
            async with on_socket([engine.url], worker_tls=believed) as client:
                assert (await client.chat()).status_code == 503
    assert len(engine.requests) == 2


async def test_admins_are_served_on_a_port_of_their_own(engine, tmp_path, authority):
    cert, key = authority.issue("router")
    config = tmp_path / "fleet.yaml"
    keys = "\n".join(f"    - {entry}" for entry in ACCESS["keys"])
    config.write_text(
        f"listen: {{port: 0, admin_port: 0, tls: {{cert_file: {cert}, key_file: {key}}}}}\n"
        f"workers: [{{url: '{engine.url}'}}]\naccess:\n  keys:\n{keys}\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "router", "serve", "--config", str(config), stdout=asyncio.subprocess.PIPE
    )
    try:
        async with (
            asyncio.timeout(PATIENCE_S),
            httpx.AsyncClient(verify=authority.trusting(), trust_env=False, timeout=PATIENCE_S) as client,
        ):
            main = (await process.stdout.readline()).decode().removeprefix("listening on ").strip()
            admin = (await process.stdout.readline()).decode().removeprefix("admin on ").strip()
            assert main.startswith("https://127.0.0.1:")
            for base, path, role, status in (
                (main, "/v1/workers", "admin", 403), (admin, "/v1/workers", "admin", 200),
                (admin, "/v1/workers", "client", 403), (main, "/v1/models", "client", 200),
                (main, "/metrics", "metrics", 200), (admin, "/metrics", "admin", 200), (admin, "/health", "admin", 200),
            ):  # fmt: skip
                answer = await client.get(base + path, headers=bearer(role))
                assert answer.status_code == status, (base == admin, path, role)
            told = (await client.get(main + "/v1/workers", headers=bearer("admin"))).json()["error"]["message"]
            assert told == "this path is served on the admin port"
    finally:
        process.terminate()
        await process.wait()


async def test_a_file_that_cannot_be_used_ends_the_start(tmp_path, authority):
    cert, _ = authority.issue("a")
    config = tmp_path / "fleet.yaml"
    config.write_text(
        f"workers: [{{url: 'http://a:1'}}]\nlisten: {{port: 0, tls: {{cert_file: {cert}, key_file: missing.pem}}}}\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "router", "serve", "--config", str(config), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert f"error: configuration: listen.tls.key_file: '{tmp_path}/missing.pem': cannot be read" in errors.decode()
