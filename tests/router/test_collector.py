"""The oldest generation is collected where nobody waits for it, and pauses are told."""

import asyncio
import subprocess
import sys

import pytest

from router.collector import LEAST_S, MIDDLE, MOST_S, NEVER, YOUNGEST, IdleCollector, PauseLog
from router.metrics import RouterMetrics
from tests.waiting import PATIENCE_S


class Process:
    """What a collector looks at, and what it did."""

    def __init__(self):
        self.now_s, self.running, self.aged, self.collected_at = 0.0, 0, 0, []
        self.collector = IdleCollector(
            lambda: self.running,
            count_aged=lambda: self.aged,
            collect=lambda: self.collected_at.append(self.now_s),
            clock=lambda: self.now_s,
        )

    def look(self, at_s, *, running=0, aged=1):
        self.now_s, self.running = at_s, running
        self.aged += aged
        return self.collector.look()


@pytest.fixture
def process():
    return Process()


def test_it_collects_where_no_request_runs(process):
    assert not process.look(LEAST_S - 1.0)
    assert process.look(LEAST_S)
    assert not process.look(LEAST_S + 1.0)
    assert process.look(2 * LEAST_S)
    assert process.collected_at == [LEAST_S, 2 * LEAST_S]


def test_while_requests_run_it_waits_but_not_for_ever(process):
    assert not process.look(MOST_S - 1.0, running=3)
    assert process.look(MOST_S, running=3)
    assert not process.look(MOST_S + LEAST_S, running=1)
    assert process.look(MOST_S + LEAST_S, running=0)


def test_a_process_in_which_nothing_grew_old_is_left_alone(process):
    assert process.look(LEAST_S)
    assert not process.look(MOST_S * 10, aged=0)
    assert process.look(MOST_S * 10, aged=1)


async def test_it_looks_by_itself_until_it_is_stopped(monkeypatch):
    monkeypatch.setattr("router.collector.LOOK_S", 0.0)
    collected = asyncio.Event()
    steps = iter(range(10**9))
    collector = IdleCollector(
        lambda: 0, count_aged=lambda: next(steps), collect=collected.set, clock=lambda: next(steps) * LEAST_S
    )
    collector.start()
    await asyncio.wait_for(collected.wait(), PATIENCE_S)
    await collector.stop()
    collected.clear()
    await asyncio.sleep(0)
    assert not collected.is_set()


def test_pauses_are_counted_from_start_to_stop():
    times = iter([0.5, 1.0, 1.004, 5.0, 5.3])
    log = PauseLog(lambda: next(times))
    # The first one began before there was a log.
    for phase in ("stop", "start", "stop", "start", "stop"):
        log(phase, {"generation": 0})
    assert log.longest_s == pytest.approx(0.3)
    assert sum(log.pauses_s.counts) == 2
    metrics = RouterMetrics()
    metrics.watch_collector(log)
    page = metrics.to_text().decode()
    assert 'dovecote_router_collector_pause_seconds_bucket{le="0.005"} 1.0' in page
    assert "dovecote_router_collector_pause_seconds_count 2.0" in page


def test_the_interpreter_never_collects_the_oldest_by_itself_and_young_ones_less_often():
    code = (
        "import gc; from router.collector import keep_for_good, leave_oldest_alone, PauseLog;"
        "keep_for_good(); leave_oldest_alone();"
        f"assert gc.get_threshold() == ({YOUNGEST}, {MIDDLE}, {NEVER});"
        "assert gc.get_freeze_count() > 1_000;"
        "log = PauseLog(); gc.callbacks.append(log);"
        "oldest = gc.get_stats()[2]['collections'];"
        "kept = [[n] for n in range(300_000)];"
        "assert gc.get_stats()[2]['collections'] == oldest;"
        "assert sum(log.pauses_s.counts) > 50;"
        "gc.collect();"
        "assert gc.get_stats()[2]['collections'] == oldest + 1"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
