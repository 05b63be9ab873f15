"""The command as a user starts it: against endpoints that fail in every way, and against a router with real engines."""

import asyncio
import json
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time

import aiohttp
import pytest
from replay_endpoints import Endpoint, complete, refusal, serve
from replay_traces import conversations, write_agentic

from simulator.demo.fleet import DemoFleet
from simulator.demo.plan import DemoOptions, ForwardName, build_plan
from simulator.demo.processes import Children, child_environment

KEY = "sk-very-secret"


@pytest.fixture
def trace_path(tmp_path):
    return write_agentic(tmp_path / "trace.jsonl", conversations(3, 4))


async def start(path, url, *flags, **env):
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "simulator.replay", "--trace", str(path), "--target", url, *flags),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=child_environment({"COLUMNS": "160", **env}),
    )


async def finish(process):
    """(exit code, stdout, stderr)."""
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def replay(path, url, *flags, **env):
    return await finish(await start(path, url, *flags, **env))


async def test_a_replay_ends_with_tables_and_exit_code_0(trace_path):
    endpoint = Endpoint()
    async with serve(endpoint) as url:
        code, out, err = await replay(trace_path, url)
    assert code == 0, err
    assert "12, 12, 12" in out
    assert "w0" in out
    assert "replay: 12/12 requests, 0 failed" in err
    assert {request.headers["X-Dovecote-Session"] for request in endpoint.requests[1:]} == {"s0", "s1", "s2"}


async def test_json_is_all_there_is_on_standard_output(trace_path):
    async with serve(Endpoint()) as url:
        code, out, _ = await replay(trace_path, url, "--json", "--api", "completions", "--prompt-as", "ids")
    report = json.loads(out)
    assert (code, report["sent"], report["figures"]["complete"], report["sessions"]) == (0, 12, 12, 3)
    assert (report["figures"]["cached_ratio"], report["prompt_as"], report["model"]) == (0.5, "ids", "toy")


async def fail_every_third(request, serial):
    return refusal(500, "engine died") if serial % 3 == 0 else None


@pytest.mark.parametrize(("allowed", "code"), [("0.33", 1), ("0.34", 0)])
async def test_the_exit_code_is_1_where_more_failed_than_allowed(trace_path, allowed, code):
    async with serve(Endpoint(fail_every_third)) as url:
        found, out, err = await replay(trace_path, url, "--max-error-ratio", allowed)
    assert found == code
    assert "http_500" in out
    assert "failed request of 0.0: HTTP 500: engine died" in err


async def test_the_key_travels_with_every_request_and_is_shown_nowhere(trace_path):
    async def refuse(request, serial):
        return refusal(401, f"bad key {request.headers['Authorization']}")

    endpoint = Endpoint(refuse)
    async with serve(endpoint) as url:
        code, out, err = await replay(trace_path, url, "--api-key-env", "MY_KEY", "--concurrency", "1", MY_KEY=KEY)
    assert {request.headers["Authorization"] for request in endpoint.requests} == {f"Bearer {KEY}"}
    assert (code, len(endpoint.bodies)) == (1, 1)
    assert "refused" in out
    assert KEY not in out + err


async def test_a_key_that_the_target_refuses_at_once_ends_it_before_any_request(trace_path):
    endpoint = Endpoint(models_status=401)
    async with serve(endpoint) as url:
        code, out, err = await replay(trace_path, url, "--api-key-env", "MY_KEY", MY_KEY=KEY)
    assert (code, out, endpoint.bodies) == (2, "", [])
    assert "error: " in err
    assert "refuses the key that was sent" in err
    assert KEY not in err


async def test_ctrl_c_ends_it_with_the_report_so_far(trace_path):
    reached, free = asyncio.Event(), asyncio.Event()

    async def answer_two_then_hang(request, serial):
        if serial < 2:
            return complete()
        reached.set()
        await free.wait()
        return None

    async with serve(Endpoint(answer_two_then_hang)) as url:
        process = await start(trace_path, url, "--json", "--concurrency", "1")
        await reached.wait()
        process.send_signal(signal.SIGINT)
        code, out, err = await finish(process)
        free.set()
    report = json.loads(out)
    assert code == 130, err
    assert (report["ending"], report["sent"], report["cancelled"]) == ("interrupted", 3, 1)
    assert report["figures"]["complete"] == 2
    assert "Traceback" not in err


async def busy_at_first(request, serial):
    return refusal(429, "slow down", **{"Retry-After": "0"}) if serial == 0 else None


async def test_a_busy_answer_is_a_failure_or_asked_again(trace_path):
    async with serve(Endpoint(busy_at_first)) as url:
        counted, out, _ = await replay(trace_path, url, "--json")
        assert (counted, json.loads(out)["figures"]["errors"][0]["kind"]) == (1, "http_429")
    async with serve(Endpoint(busy_at_first)) as url:
        honoured, out, _ = await replay(trace_path, url, "--json", "--retries", "1")
        assert (honoured, json.loads(out)["figures"]["retries"]) == (0, 1)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--prompt-ratio", "0"], "--prompt-ratio is 0; expected above 0"),
        (["--prompt-ratio", "nan"], "--prompt-ratio is nan"),
        (["--token-ids", "9:3"], "--token-ids is '9:3'; expected LOW:HIGH"),
        (["--fields", "[1]"], "--fields is no JSON object"),
        (["--header", "nothing"], "--header 'nothing' is no 'Name: value'"),
        (["--api-key-env", "NOT_SET"], "NOT_SET is not set"),
        (["--ca", "missing.pem"], "missing.pem holds no usable certificates"),
    ],
)
async def test_what_cannot_be_used_is_said_with_exit_code_2(trace_path, flags, complaint):
    code, out, err = await replay(trace_path, "http://127.0.0.1:9", *flags)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert complaint in err


async def test_a_trace_of_another_form_and_a_target_that_is_not_there_are_said(tmp_path, trace_path):
    (tmp_path / "odd.jsonl").write_text('{"what": 1}\n')
    code, _, err = await replay(tmp_path / "odd.jsonl", "http://127.0.0.1:9")
    assert (code, "line 1: unknown form" in err) == (2, True)
    code, _, err = await replay(trace_path, "http://127.0.0.1:9")
    assert (code, "cannot be reached" in err) == (2, True)


@pytest.fixture
def certificate(tmp_path):
    """(certificate, key) for 127.0.0.1, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *names]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


async def test_a_certificate_is_checked_unless_told_otherwise(trace_path, certificate):
    cert, key = certificate
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(cert, key)
    async with serve(Endpoint(), ssl=served) as base_url:
        assert base_url.startswith("https:")
        url = re.sub("//[^:]*:", "//127.0.0.1:", base_url)
        code, _, err = await replay(trace_path, url)
        assert (code, "no TLS connection" in err, "--ca FILE" in err) == (2, True, True)
        assert (await replay(trace_path, url, "--ca", str(cert)))[0] == 0
        assert (await replay(trace_path, url, "--insecure"))[0] == 0


@pytest.mark.stack
@pytest.mark.parametrize("api", [["--api", "chat"], ["--api", "completions", "--prompt-as", "ids"]])
async def test_a_router_with_real_engines_serves_the_trace_and_reuses_what_it_shares(tmp_path, api):
    path = write_agentic(tmp_path / "trace.jsonl", conversations(4, 10))
    options = DemoOptions(
        forward=ForwardName.TIMED, replicas=2, sessions=2, turns=3
    )  # fmt: skip
    plan = build_plan(options, lambda text: len(text.split()))
    async with aiohttp.ClientSession() as http, Children() as children:
        fleet = DemoFleet(children, http, plan, time.monotonic)
        await fleet.start_engines()
        router = await fleet.start_router("cache_affinity")
        code, out, err = await replay(path, router.url, "--json", *api)
    report = json.loads(out)
    figures = report["figures"]
    assert code == 0, err
    assert (figures["complete"], figures["failed"], figures["short_answers"]) == (40, 0, 0)
    assert 0.0 < figures["cached_ratio"] <= report["reusable_ratio"] + 0.1
    assert sum(worker["requests"] for worker in figures["workers"]) == 40
    if "ids" in api:
        assert figures["prompt_tokens"] == figures["recorded_prompt_tokens"]
