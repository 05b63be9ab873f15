"""`dovecote doctor` in front of a real engine, and of fakes that each have something wrong."""

import asyncio
import json

import pytest
import zmq
import zmq.asyncio
from engine_process import engine_processes
from fake_engine import FakeEngine, running
from typer.testing import CliRunner

from router import cli
from router.config.fleet import build_fleet_config
from router.doctor import diagnose
from router.doctor.command import examine
from router.doctor.findings import Check, Level
from tests.ports import closed_port
from tests.waiting import PATIENCE_S
from wire.frames import encode_replay, encode_replay_end


@pytest.fixture(autouse=True)
def slow_machine(monkeypatch):
    """Here a late answer tells only of a machine that is busy."""
    monkeypatch.setattr(diagnose, "SLOW_HEALTH_S", PATIENCE_S)
    monkeypatch.setattr(diagnose, "MAX_CLOCK_S", PATIENCE_S)


def fleet(*workers, **sections):
    return build_fleet_config({"workers": list(workers)} | sections, "test")


def bad(findings):
    return {(finding.worker, finding.check): finding for finding in findings if finding.level is not Level.OK}


async def test_a_real_engine_is_sound(tmp_path):
    async with engine_processes(1) as (engine,):
        findings = await examine(fleet({"url": engine.url, "id": "w0"}), PATIENCE_S)
        assert bad(findings) == {}
        assert {finding.check for finding in findings} == set(Check) - {Check.DISCOVERY}
        replays = [finding for finding in findings if finding.check is Check.REPLAY]
        assert [finding.says[:7] for finding in replays] == ["rank 0:", "rank 1:"]
        wrong = await examine(fleet({"url": engine.url, "id": "w0", "dp_size": 4}), PATIENCE_S)
        assert "4 in the configuration and 2" in bad(wrong)["w0", Check.FACTS].says
        path = tmp_path / "fleet.yaml"
        path.write_text(f"workers: [{{url: {engine.url}, id: w0}}]\n")
        command = ["doctor", "--config", str(path), "--json", "--limit-s", str(PATIENCE_S)]
        result = await asyncio.to_thread(CliRunner().invoke, cli.main, command)
        assert result.exit_code == 0
        assert json.loads(result.stdout)["counts"]["problem"] == 0


async def test_a_worker_that_is_not_there_and_one_that_is_bare_are_told(engine):
    with closed_port() as port:
        workers = {"url": f"http://127.0.0.1:{port}", "id": "gone"}, {"url": engine.url, "id": "bare"}
        found = bad(await examine(fleet(*workers), PATIENCE_S))
    assert found["gone", Check.HEALTH].level is Level.PROBLEM
    assert "ConnectError" in found["gone", Check.HEALTH].says
    assert {check for worker, check in found if worker == "bare"} == {Check.EVENTS, Check.PARITY, Check.LOAD}


def test_workers_of_the_command_line_stand_behind_one_flag_or_several():
    with closed_port() as port:
        urls = [f"http://127.0.0.1:{port}", f"http://localhost:{port}"]
        for flags in (
            ["--workers", *urls],
            ["--workers", urls[0], "--workers", urls[1]],
            ["--workers", ",".join(urls)],
        ):
            result = CliRunner().invoke(cli.main, ["doctor", *flags, "--json"])
            named = {finding["worker"] for finding in json.loads(result.stdout)["findings"]}
            assert (result.exit_code, len(named)) == (1, len(urls))


class Publisher:
    """Event sockets of a fake engine."""

    def __init__(self, frames):
        self.context = zmq.asyncio.Context()
        self.pub, self.router = self.context.socket(zmq.PUB), self.context.socket(zmq.ROUTER)
        self.port, self.replay_port = (
            socket.bind_to_random_port("tcp://127.0.0.1") for socket in (self.pub, self.router)
        )
        self.frames = frames

    async def answer(self):
        while True:
            identity, *_ = await self.router.recv_multipart()
            for frames in self.frames:
                await self.router.send_multipart([identity, *frames])

    async def __aenter__(self):
        self.task = asyncio.create_task(self.answer())
        return self

    async def __aexit__(self, *_):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.context.destroy(linger=0)

    def describe(self):
        return {
            "publisher": "zmq", "endpoint_host": "127.0.0.1", "endpoint_port_base": self.port, "block_size": 16,
            "dp_size": 1, "replay_endpoint_host": "127.0.0.1", "replay_endpoint_port_base": self.replay_port,
        }  # fmt: skip


GOOD = b"\x93\xcb" + bytes(8) + b"\x90\x00"
OTHER_RANK = b"\x93\xcb" + bytes(8) + b"\x90\x03"


@pytest.mark.parametrize(
    ("frames", "check", "level", "words"),
    [
        ([encode_replay(0, b"garbage"), encode_replay_end()], Check.REPLAY, Level.PROBLEM, "1 of 1 batches"),
        (
            [encode_replay(0, GOOD), encode_replay(2, GOOD), encode_replay_end()],
            Check.REPLAY,
            Level.WARNING,
            "1 batches",
        ),
        ([encode_replay(5, GOOD), encode_replay_end()], Check.REPLAY, Level.WARNING, "begins at batch 5"),
        ([encode_replay(0, OTHER_RANK), encode_replay_end()], Check.EVENTS, Level.PROBLEM, "tells of ranks 3"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_event_sockets_with_a_defect_are_told(engine, frames, check, level, words):
    async with Publisher(frames) as publisher:
        engine.server_info["kv_events"] = publisher.describe()
        found = bad(await examine(fleet({"url": engine.url, "id": "w0"}), PATIENCE_S))
        assert found["w0", check].level is level
        assert words in found["w0", check].says


async def test_a_replay_that_does_not_end_is_told(engine):
    async with Publisher([encode_replay(0, GOOD)]) as publisher:
        engine.server_info["kv_events"] = publisher.describe()
        found = bad(await examine(fleet({"url": engine.url, "id": "w0"}), 1.0))
        assert found["w0", Check.REPLAY].level is Level.PROBLEM
        assert "does not answer" in found["w0", Check.REPLAY].says


async def test_an_event_port_at_which_nobody_publishes_is_a_problem(engine):
    with closed_port() as port:
        engine.server_info["kv_events"] = {"endpoint_host": "127.0.0.1", "endpoint_port_base": port, "block_size": 16}
        found = bad(await examine(fleet({"url": engine.url, "id": "w0"}), 0.5))
    assert "nobody publishes" in found["w0", Check.EVENTS].says


async def test_a_clock_that_is_off_and_a_count_of_requests_are_told():
    engine = FakeEngine()
    engine.health_headers = {"Date": "Mon, 01 Jan 2024 00:00:00 GMT"}
    engine.server_load = 1
    async with running(engine):
        found = bad(await examine(fleet({"url": engine.url, "id": "w0"}), PATIENCE_S))
    assert "behind" in found["w0", Check.CLOCK].says
    assert "only a count" in found["w0", Check.LOAD].says


async def test_a_source_of_workers_that_does_not_work_is_a_problem(engine, tmp_path):
    discovery = {"kubernetes": [{"service": "engines", "api_url": engine.url, "token_file": str(tmp_path / "none")}]}
    found = bad(await examine(fleet({"url": engine.url, "id": "w0"}, discovery=discovery), 0.5))
    assert "404" in found["fleet", Check.DISCOVERY].says


def test_a_configuration_that_cannot_be_used_is_exit_code_2_and_a_dead_worker_1(tmp_path):
    path = tmp_path / "fleet.yaml"
    path.write_text("workers: []\n")
    assert CliRunner().invoke(cli.main, ["doctor", "--config", str(path)]).exit_code == 2
    with closed_port() as port:
        result = CliRunner().invoke(cli.main, ["doctor", "--workers", f"http://127.0.0.1:{port}"])
    assert result.exit_code == 1
    assert "health" in result.stdout
