"""A policy file that changes is taken whole or refused whole, and the old policy stays."""

import asyncio
import os
import signal

import pytest

from router.config_policy import PolicyConfig, load_policy_config
from router.control.reload import PolicyFile

GOOD = "weights: {wait: 2.0}"


class Applied:
    """Notes what was put into force."""

    def __init__(self):
        self.seen = []
        self.changed = asyncio.Event()

    def __call__(self, acting, shadow):
        self.seen.append((acting.name, None if shadow is None else shadow.name))
        self.changed.set()


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "policy.yaml"
    made.write_text("")
    return made


def write(path, text):
    """As an editor does it: another file in its place."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


async def test_a_changed_file_is_taken_and_an_unchanged_one_is_not_taken_again(path):
    applied = Applied()
    file = PolicyFile(path, PolicyConfig(), applied)
    assert await file.look()
    assert applied.seen == []
    write(path, GOOD)
    assert await file.look()
    assert await file.look()
    assert applied.seen == [("cache_affinity", None)]
    assert file.config == load_policy_config(GOOD, "x")
    assert (file.counts.taken, file.counts.refused) == (1, 0)


@pytest.mark.parametrize("bad", ["weights: {wait: -1}", "name: x", "{", "settings: {x: 1}", "\x00", "workers: []"])
async def test_a_bad_file_changes_nothing_and_is_told_until_it_is_good_again(path, bad):
    applied = Applied()
    write(path, GOOD)
    file = PolicyFile(path, PolicyConfig(), applied)
    assert await file.look()
    write(path, bad)
    assert not await file.look()
    assert not await file.look()
    assert file.config.weights.wait == 2.0
    assert len(applied.seen) == 1
    assert file.problem is not None
    assert str(path) in file.problem or "policy" in file.problem
    assert file.to_json()["problem"] == file.problem
    assert file.counts.refused == 1
    write(path, "name: random")
    assert await file.look()
    assert file.problem is None
    assert applied.seen[-1] == ("random", None)


async def test_a_file_that_vanishes_or_is_no_text_changes_nothing(path):
    applied = Applied()
    file = PolicyFile(path, PolicyConfig(), applied)
    path.unlink()
    assert not await file.look()
    assert "cannot be read" in file.problem
    path.write_bytes(b"\xff\xfe")
    assert not await file.look()
    assert "is not UTF-8 text" in file.problem
    assert applied.seen == []


async def test_a_second_policy_comes_with_the_first(path):
    applied = Applied()
    file = PolicyFile(path, PolicyConfig(), applied)
    write(path, "shadow: {name: overlap_linear, settings: {prefill_load_scale: 4.0}}")
    assert await file.look()
    assert applied.seen == [("cache_affinity", "overlap_linear")]


async def test_without_a_file_there_is_nothing_to_read():
    file = PolicyFile(None, PolicyConfig(), Applied())
    await file.start()
    assert not await file.look(is_asked=True)
    await file.stop()


async def test_the_watch_sees_a_change(path):
    applied = Applied()
    file = PolicyFile(path, PolicyConfig(), applied, poll_s=0.01)
    await file.start()
    write(path, GOOD)
    await asyncio.wait_for(applied.changed.wait(), 30)
    await file.stop()
    assert applied.seen == [("cache_affinity", None)]


async def test_sighup_has_the_file_read_at_once(path):
    applied = Applied()
    file = PolicyFile(path, PolicyConfig(), applied, poll_s=3_600.0)
    await file.start()
    await file.look()
    write(path, GOOD)
    os.kill(os.getpid(), signal.SIGHUP)
    await asyncio.wait_for(applied.changed.wait(), 30)
    await file.stop()
