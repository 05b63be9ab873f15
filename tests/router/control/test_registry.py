"""What several sources tell becomes one fleet, told as edits."""

import pytest

from router.config.workers import WorkerConfig
from router.control.registry import (
    MAX_WORKERS,
    Entry,
    Listed,
    Put,
    Registry,
    Removed,
    WorkerAdded,
    WorkerChanged,
    WorkerGone,
)


@pytest.fixture
def registry():
    return Registry(("config", "file"))


def entry(name, port=1, **more):
    flags = {key: more.pop(key) for key in ("ready", "draining") if key in more}
    return Entry(WorkerConfig(id=name, url=f"http://h:{port}", **more), **flags)


def test_D04_whoever_a_list_does_not_name_any_more_is_gone(registry):
    a, b = entry("a", 1), entry("b", 2)
    assert registry.apply(Listed("file", (a, b))) == (WorkerAdded(a), WorkerAdded(b))
    assert registry.apply(Listed("file", (a,))) == (WorkerGone(b),)
    assert registry.apply(Listed("file", (a,))) == ()


def test_D06_a_changed_role_model_or_readiness_is_an_edit(registry):
    before = entry("a")
    registry.apply(Put("file", before))
    for after in (entry("a", dp_size=2), entry("a", dp_size=2, ready=False), entry("a", draining=True)):
        assert registry.apply(Put("file", after)) == (WorkerChanged(before, after),)
        before = after


def test_the_source_that_stands_first_counts_and_the_other_when_it_lets_go(registry):
    first, second = entry("a", 1), entry("a", 2)
    registry.apply(Put("file", second))
    assert registry.apply(Put("config", first)) == (WorkerChanged(second, first),)
    assert [(source, worker) for source, worker, _ in registry.shadowed] == [("file", "a")]
    assert registry.apply(Removed("config", "a")) == (WorkerChanged(first, second),)


def test_one_url_is_one_worker_and_a_new_name_for_it_is_gone_before_it_is_added(registry):
    old, new = entry("old", 1), entry("new", 1)
    registry.apply(Listed("file", (old,)))
    assert registry.apply(Put("file", new)) == ()
    assert "is worker old" in registry.shadowed[0][2]
    assert registry.apply(Listed("file", (new,))) == (WorkerGone(old), WorkerAdded(new))


def test_more_workers_than_are_taken_are_refused_whole(registry):
    registry.apply(Put("file", entry("a")))
    many = tuple(entry(f"w{number}", number % 60_000 + 1) for number in range(MAX_WORKERS + 1))
    with pytest.raises(ValueError, match="at most"):
        registry.apply(Listed("file", many))
    assert list(registry.fleet) == ["a"]
