"""The engine command as a process: flags, the one line it prints, signals, and what it refuses."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
import typer
from engine_serving import chat_body
from typer.testing import CliRunner

from engine_shim.engine.command import engine
from tests.waiting import PATIENCE_S

ROOT = __file__.rpartition("/tests/")[0]
TIMED = ("--forward", "timed", "--port", "0")
#: The command where answers under way have as long as a busy machine needs.
PATIENT = f"""
from engine_shim.engine.command import main
from engine_shim.engine.server import process

process.GRACE_S = {PATIENCE_S}
main()
"""


@pytest.fixture
def start():
    """Starts an engine process; whatever a test leaves running is killed."""
    started = []

    def start_(*flags: str, code: str = "from engine_shim.engine.command import main; main()") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *flags], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start_
    for process in started:
        process.kill()
        process.communicate()


def url_of(process: subprocess.Popen[str]) -> str:
    line = process.stdout.readline()
    assert line.startswith("listening on http://"), process.stderr.read()
    return line.split()[-1]


def post(url: str, body: dict[str, object]):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    return urllib.request.urlopen(request, timeout=PATIENCE_S)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_with_zero_and_its_stream_with_an_error(start, sent):
    process = start(*TIMED, "--timed-decode-step-ms", "20", "--dp-size", "2")
    url = url_of(process)
    with post(f"{url}/v1/chat/completions", chat_body(stream=True, max_tokens=100_000)) as stream:
        assert stream.readline().startswith(b"data: ")
        process.send_signal(sent)
        text = stream.read()
    assert process.wait(timeout=PATIENCE_S) == 0
    assert b'"code":503' in text
    assert b"[DONE]" not in text


def test_a_signal_during_a_long_step_ends_the_process_all_the_same(start):
    process = start(*TIMED, "--timed-decode-step-ms", "60000")
    url = url_of(process)
    with post(f"{url}/v1/completions", {"prompt": "x", "stream": True, "max_tokens": 9}):
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_S) == 0


def test_a_short_answer_under_way_is_finished_after_the_signal(start):
    process = start(*TIMED, "--timed-decode-step-ms", "20", code=PATIENT)
    url = url_of(process)
    with post(f"{url}/v1/completions", {"prompt": "x", "stream": True, "max_tokens": 5}) as stream:
        stream.readline()
        process.send_signal(signal.SIGTERM)
        assert b"[DONE]" in stream.read()
    assert process.wait(timeout=PATIENCE_S) == 0


def test_the_timed_forward_serves_without_importing_torch(start):
    code = (
        "import sys; sys.modules['torch'] = sys.modules['triton'] = sys.modules['numpy'] = None\n"
        "from engine_shim.engine.command import main; main()"
    )
    process = start(*TIMED, "--model", "small", code=code)
    with post(f"{url_of(process)}/v1/completions", {"model": "small", "prompt": "x", "max_tokens": 3}) as response:
        assert json.load(response)["usage"]["completion_tokens"] == 3


def test_the_torch_forward_without_torch_names_the_extra(start):
    code = "import sys; sys.modules['torch'] = None\nfrom engine_shim.engine.command import main; main()"
    process = start("--forward", "torch", "--port", "0", code=code)
    assert process.wait(timeout=PATIENCE_S) == 2
    assert "dovecote[engine]" in process.stderr.read()


def test_the_command_tells_its_flags(command):
    told = command("--help").output
    for flag in ("--dp-size", "--event-dialect", "--kv-events-port-base", "--replay-port-base", "--kv-events-config"):
        assert flag in told


@pytest.fixture
def command():
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(engine)
    return lambda *flags: CliRunner().invoke(app, [*TIMED, *flags])


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--kv-events-config", '{"publisher": "kafka"}'), "kafka"),
        (("--kv-events-config", '{"publisher": "zmq"}', "--kv-events-port-base", "9"), "port"),
        (("--tokenizer", "/nowhere"), "/nowhere"),
        (("--host", "192.0.2.1"), "assign"),
        (("--event-dialect", "morse"), "morse"),
        (("--port", "70000"), "65535"),
        (("--dp-size", "0"), "dp-size"),
    ],
)
def test_flags_that_cannot_work_are_refused_in_words(command, flags, named):
    result = command(*flags)
    assert result.exit_code == 2
    assert named in result.output


def test_a_taken_port_is_refused(command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = command("--port", port)
    assert result.exit_code == 2
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in result.output


def test_a_taken_event_port_is_refused(command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = command("--kv-events-port-base", port)
    assert result.exit_code == 2
    assert port in result.output


def test_a_configuration_of_events_is_followed(start):
    """One process for the module form, the configuration and the numbers it tells."""
    config = json.dumps({"publisher": "zmq", "endpoint": "tcp://*:0", "topic": "kv", "buffer_steps": 7})
    flags = (*TIMED, "--kv-events-config", config, "--page-tokens", "8")
    url = url_of(start(*flags, code="import runpy; runpy.run_module('engine_shim.engine', run_name='__main__')"))
    with urllib.request.urlopen(f"{url}/server_info", timeout=PATIENCE_S) as response:
        events = json.load(response)["kv_events"]
    assert events.pop("endpoint_port_base") > 0
    assert events == {"publisher": "zmq", "endpoint_host": "*", "topic": "kv", "block_size": 8, "dp_size": 1}
