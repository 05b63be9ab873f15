"""Workers of a file: taken whole when it changes, and a bad file leaves what was and does not end that."""

import os
import time

import pytest
from proxy_harness import eventually, in_process, value


def write(path, text):
    """Whole and at once, and old enough to be believed."""
    other = path.with_suffix(".new")
    other.write_text(text)
    past_s = time.time() - 60 - write.calls
    write.calls += 1
    os.utime(other, (past_s, past_s))
    other.replace(path)


write.calls = 0


def listing(*engines):
    entries = ", ".join(f"{{url: {engine.url}, id: f{place}}}" for place, engine in enumerate(engines))
    return f"workers: [{entries}]\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "workers.yaml"


def known(client):
    return set(client.router.fleet.workers)


def problem(client):
    return client.router.fleet.find_problems().get("file")


async def test_workers_of_a_file_come_and_go_with_it(path, engines):
    write(path, listing(engines[0]))
    async with in_process([], discovery={"file": {"path": str(path), "poll_s": 0.02}}) as client:
        assert (await client.chat()).headers["x-dovecote-worker"] == "f0"
        write(path, listing(*engines))
        await eventually(lambda: known(client) == {"f0", "f1"})
        write(path, "workers: []\n")
        await eventually(lambda: not known(client))
        assert (await client.chat()).status_code == 503


@pytest.mark.parametrize(
    "bad",
    [
        "workers: [", "workers: [{url: nothing}]\n", "workers: {}\n", "[]\n", "",
        "workers: [{url: 'http://h:1', x: 1}]\n",
        "workers: [{url: 'http://h:1'}, {url: 'http://h:1'}]\n", "workers: [{url: 'http://h:1', dp_size: '2'}]\n",
    ],
    ids=str,
)  # fmt: skip
async def test_D07_D13_a_bad_file_leaves_what_was_and_the_next_good_one_is_taken(path, engines, bad):
    good = listing(engines[0])
    write(path, good)
    async with in_process([], discovery={"file": {"path": str(path), "poll_s": 0.02}}) as client:
        write(path, bad)
        await eventually(lambda: problem(client) is not None)
        assert str(path) in problem(client)
        assert (await client.chat()).status_code == 200
        write(path, good)
        await eventually(lambda: problem(client) is None)
        assert known(client) == {"f0"}
        write(path, listing(*engines))
        await eventually(lambda: known(client) == {"f0", "f1"})


async def test_D07_a_file_that_fails_while_it_is_applied_leaves_the_one_before(path, engines, monkeypatch):
    write(path, listing(engines[0]))
    async with in_process([], discovery={"file": {"path": str(path), "poll_s": 0.02}}) as client:
        monkeypatch.setattr("router.control.registry.MAX_WORKERS", 1)
        write(path, listing(*engines))
        await eventually(lambda: problem(client) is not None)
        assert known(client) == {"f0"}
        write(path, listing(engines[0]))
        await eventually(lambda: problem(client) is None)
        assert (await client.chat()).headers["x-dovecote-worker"] == "f0"


async def test_a_file_that_is_not_there_is_told_and_taken_when_it_comes(path, engines):
    async with in_process([engines[0].url], discovery={"file": {"path": str(path), "poll_s": 0.02}}) as client:
        assert "cannot be read" in problem(client)
        assert value(client.router, "source_problem", source="file") == 1
        write(path, listing(engines[1]))
        await eventually(lambda: known(client) == {"w0", "f0"})
