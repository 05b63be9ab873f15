"""A policy file that changes is taken whole or refused whole, and the old policy stays."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from router.config.policy import PolicyConfig, load_policy_config
from router.control.reload import PolicyFile
from router.errors import ConfigError
from router.regular_file import MAX_READS, read_still
from tests.waiting import PATIENCE_S, eventually

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
    assert await file.watch.look()
    assert applied.seen == []
    write(path, GOOD)
    assert await file.watch.look()
    assert await file.watch.look()
    assert applied.seen == [("cache_affinity", None)]
    assert file.config == load_policy_config(GOOD, "x")
    assert (file.watch.counts.taken, file.watch.counts.refused) == (1, 0)


@pytest.mark.parametrize("bad", ["weights: {wait: -1}", "name: x", "{", "settings: {x: 1}", "\x00", "workers: []"])
async def test_a_bad_file_changes_nothing_and_is_told_until_it_is_good_again(path, bad):
    applied = Applied()
    write(path, GOOD)
    file = PolicyFile(path, PolicyConfig(), applied)
    assert await file.watch.look()
    write(path, bad)
    assert not await file.watch.look()
    assert not await file.watch.look()
    assert file.config.weights.wait == 2.0
    assert len(applied.seen) == 1
    assert file.watch.problem is not None
    assert str(path) in file.watch.problem or "policy" in file.watch.problem
    assert file.to_json()["problem"] == file.watch.problem
    assert file.watch.counts.refused == 1
    write(path, "name: random")
    assert await file.watch.look()
    assert file.watch.problem is None
    assert applied.seen[-1] == ("random", None)


async def test_a_file_that_vanishes_or_is_no_text_changes_nothing(path):
    applied = Applied()
    file = PolicyFile(path, PolicyConfig(), applied)
    path.unlink()
    assert not await file.watch.look()
    assert "cannot be read" in file.watch.problem
    path.write_bytes(b"\xff\xfe")
    assert not await file.watch.look()
    assert "is not UTF-8 text" in file.watch.problem
    assert applied.seen == []


async def test_a_second_policy_comes_with_the_first(path):
    applied = Applied()
    file = PolicyFile(path, PolicyConfig(), applied)
    write(path, "shadow: {name: overlap_linear, settings: {prefill_load_scale: 4.0}}")
    assert await file.watch.look()
    assert applied.seen == [("cache_affinity", "overlap_linear")]


async def test_without_a_file_there_is_nothing_to_read():
    file = PolicyFile(None, PolicyConfig(), Applied())
    file.watch.start()
    assert not await file.watch.look(is_asked=True)
    await file.watch.stop()


async def test_the_watch_sees_a_change(path):
    applied = Applied()
    file = PolicyFile(path, PolicyConfig(), applied, poll_s=0.01)
    file.watch.start()
    write(path, GOOD)
    await asyncio.wait_for(applied.changed.wait(), PATIENCE_S)
    await file.watch.stop()
    assert applied.seen == [("cache_affinity", None)]


async def test_sighup_has_the_file_read_at_once(path):
    applied = Applied()
    file = PolicyFile(path, PolicyConfig(), applied, poll_s=3_600.0)
    file.watch.start()
    await file.watch.look()
    write(path, GOOD)
    os.kill(os.getpid(), signal.SIGHUP)
    await asyncio.wait_for(applied.changed.wait(), PATIENCE_S)
    await file.watch.stop()


async def test_a_file_that_comes_back_as_it_was_is_taken_as_it_was(path):
    applied = Applied()
    write(path, GOOD)
    file = PolicyFile(path, PolicyConfig(), applied)
    assert await file.watch.look()
    path.unlink()
    assert not await file.watch.look()
    write(path, GOOD)
    assert await file.watch.look()
    assert (file.watch.problem, len(applied.seen)) == (None, 1)


class WrittenTo(type(Path())):
    """A path at which somebody goes on writing whenever it is looked at."""

    def goes_on(self, pieces):
        self.pieces = pieces
        return self

    def stat(self, **more):
        if self.pieces:
            with self.open("a", encoding="utf-8") as file:
                file.write(self.pieces.pop(0))
        return super().stat(**more)


#: Each beginning of it is a good policy of its own.
WHOLE = ["name: cache_affinity\n", "weights:\n  wait: 3.0\n", "  reuse: 2.0\n", "coefficients: {max_copies: 7}\n"]


def test_text_counts_only_where_nobody_wrote_while_it_was_read(path):
    path.write_text(WHOLE[0])
    assert read_still(WrittenTo(path).goes_on(WHOLE[1:3]))[1] == "".join(WHOLE[:3])
    with pytest.raises(ConfigError, match="is being written"):
        read_still(WrittenTo(path).goes_on(["# \n"] * MAX_READS))


async def test_a_file_that_is_being_written_is_left_alone_until_it_stands_still(path):
    applied = Applied()
    path.write_text(WHOLE[0])
    file = PolicyFile(
        WrittenTo(path).goes_on([*WHOLE[1:3], *["# \n"] * 10, WHOLE[3]]),
        PolicyConfig(),
        applied,
        poll_s=3_600.0,
        settle_s=0.001,
    )
    file.watch.start()
    await asyncio.wait_for(applied.changed.wait(), PATIENCE_S)
    await file.watch.stop()
    assert len(applied.seen) == 1
    assert (file.config.weights.reuse, file.config.coefficients.max_copies) == (2.0, 7)
    assert file.watch.counts.refused == 0


async def test_a_file_that_never_stands_still_is_refused_and_the_watch_goes_on(path):
    applied = Applied()
    writer = WrittenTo(path).goes_on(["# \n"] * 1_000)
    file = PolicyFile(writer, PolicyConfig(), applied, poll_s=0.001, settle_s=0.0)
    file.watch.start()
    await eventually(lambda: file.watch.problem is not None)
    assert "is being written" in file.watch.problem
    writer.pieces.clear()
    write(path, GOOD)
    await asyncio.wait_for(applied.changed.wait(), PATIENCE_S)
    await file.watch.stop()
    assert file.watch.problem is None


async def test_a_mounted_configuration_is_followed_through_its_links(tmp_path):
    """As Kubernetes updates a ConfigMap: a new folder, and the link to it swapped."""

    def fill(number, text):
        folder = tmp_path / f"..{number}"
        folder.mkdir()
        (folder / "policy.yaml").write_text(text)
        (tmp_path / "..new").symlink_to(folder.name)
        (tmp_path / "..new").replace(tmp_path / "..data")

    fill(1, "")
    path = tmp_path / "policy.yaml"
    path.symlink_to("..data/policy.yaml")
    applied = Applied()
    file = PolicyFile(path, PolicyConfig(), applied, poll_s=0.001, settle_s=0.001)
    file.watch.start()
    for number, (text, wanted) in enumerate(
        [("name: random", "random"), ("name: rand", None), ("name: round_robin", "round_robin")], start=2
    ):
        applied.changed.clear()
        fill(number, text)
        if wanted is not None:
            await asyncio.wait_for(applied.changed.wait(), PATIENCE_S)
            assert applied.seen[-1] == (wanted, None)
            continue
        await eventually(lambda: file.watch.problem is not None)
        assert file.config.name.value == "random"
    await file.watch.stop()
    assert len(applied.seen) == 2


class Watched(type(Path())):
    """A path that counts how often it is looked at."""

    looks = 0

    def stat(self, **more):
        self.looks += 1
        return super().stat(**more)


async def test_what_was_read_first_is_never_taken_last(path):
    applied = Applied()
    # Longer to parse than all that follows it.
    write(path, "name: random\n" + "# words\n" * 40_000)
    watched = Watched(path)
    file = PolicyFile(watched, PolicyConfig(), applied)
    first = asyncio.create_task(file.watch.look())
    await eventually(lambda: watched.looks == 2)  # before and after it was read
    write(path, GOOD)
    await asyncio.gather(first, file.watch.look(is_asked=True))
    assert file.config.weights.wait == 2.0
    assert applied.seen[-1] == ("cache_affinity", None)


async def test_looks_at_once_end_with_what_stands_there_last(path):
    applied = Applied()
    file = PolicyFile(path, PolicyConfig(), applied)
    for number in range(20):
        looks = []
        for text in ("name: random", "name: round_robin", "name: nobody", f"weights: {{wait: {number + 2}.0}}"):
            write(path, text)
            looks += [asyncio.create_task(file.watch.look(is_asked=True)) for _ in range(3)]
            await asyncio.sleep(0)
        await asyncio.gather(*looks)
        assert file.config.weights.wait == number + 2.0
        assert file.watch.problem is None


async def test_a_defect_in_taking_a_policy_is_told_and_asked_for_again_it_is_tried_again(path):
    fails = [KeyError("broken")]

    def apply(acting, shadow):
        if fails:
            raise fails.pop()

    write(path, GOOD)
    file = PolicyFile(path, PolicyConfig(), apply)
    assert not await file.watch.look()
    assert file.watch.problem == f"{path}: cannot be taken (KeyError); the log has the story"
    assert file.config == PolicyConfig()
    assert not await file.watch.look()
    assert await file.watch.look(is_asked=True)
    assert (file.config.weights.wait, file.watch.problem, file.watch.counts.taken) == (2.0, None, 1)
