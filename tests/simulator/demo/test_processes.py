"""Children: a death at the start is told with the last words, and none is left."""

import asyncio
import os
import subprocess
import sys

import pytest

from simulator.demo.processes import ChildEndedError, Children, child_environment
from tests.waiting import PATIENCE_S


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def listening_module(tmp_path):
    """A module that says that it listens, starts a grandchild of its own group and stays."""
    (tmp_path / "stays.py").write_text(
        "import signal, sys, time\n"
        "if 'deaf' in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('listening on http://127.0.0.1:1', flush=True)\n"
        "while True: time.sleep(60)\n"
    )
    return {"PYTHONPATH": str(tmp_path)}


async def test_a_child_that_dies_at_start_is_told_with_its_last_lines():
    async with Children() as children:
        child = await children.start("engine 1", ["no_such_module_anywhere"], {})
        with pytest.raises(ChildEndedError, match=r"(?s)engine 1 ended with exit code 1 .*No module named"):
            await child.wait_listening(PATIENCE_S)


async def test_a_child_that_never_listens_is_told_at_the_deadline(tmp_path):
    (tmp_path / "silent.py").write_text("import time\nwhile True: time.sleep(60)\n")
    async with Children() as children:
        child = await children.start("router", ["silent"], {"PYTHONPATH": str(tmp_path)})
        with pytest.raises(ChildEndedError, match=r"router did not listen within 0\.05 s"):
            await child.wait_listening(0.05)
    assert not is_running(child.pid)


async def test_a_child_that_listens_has_its_address_and_is_gone_afterwards(listening_module):
    async with Children() as children:
        child = await children.start("engine", ["stays"], listening_module)
        await child.wait_listening(PATIENCE_S)
        assert child.url == "http://127.0.0.1:1"
        assert is_running(child.pid)
    assert not is_running(child.pid)


async def test_a_child_that_ignores_sigterm_is_killed(listening_module, monkeypatch):
    monkeypatch.setattr("simulator.demo.processes.STOP_DEADLINE_S", 0.1)
    async with Children() as children:
        child = await children.start("engine", ["stays", "deaf"], listening_module)
        await child.wait_listening(PATIENCE_S)
    assert not is_running(child.pid)


async def test_an_error_inside_leaves_no_child(listening_module):
    pids = []

    async def fail_while_a_child_runs():
        async with Children() as children:
            child = await children.start("engine", ["stays"], listening_module)
            pids.append(child.pid)
            await child.wait_listening(PATIENCE_S)
            raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        await fail_while_a_child_runs()
    assert not is_running(pids[0])


async def test_the_first_death_among_the_children_is_told(listening_module):
    async with Children() as children:
        one = await children.start("one", ["stays"], listening_module)
        two = await children.start("two", ["stays"], listening_module)
        await asyncio.gather(one.wait_listening(PATIENCE_S), two.wait_listening(PATIENCE_S))
        two.kill()
        assert (await children.first_death()).startswith("two ended with exit code -9")


def test_a_child_whose_parent_is_gone_does_not_start(listening_module):
    tethered = [sys.executable, "-m", "simulator.demo.tether", "1", "stays"]
    ended = subprocess.run(
        tethered, check=False, env=child_environment(listening_module), capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert "is gone" in ended.stderr
    assert not ended.stdout


def test_children_find_our_packages_and_write_without_delay():
    environment = child_environment({"EXTRA": "1"})
    assert environment["EXTRA"] == environment["PYTHONUNBUFFERED"] == "1"
    assert environment["PYTHONPATH"]
