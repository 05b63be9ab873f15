"""Each defect of an engine is named with what to change; a sound one gets no word but that it is."""

import msgspec
import pytest
from rich.console import Console

from router.control.facts import WorkerFacts
from router.control.loads import LoadSource
from router.doctor.diagnose import diagnose
from router.doctor.findings import Check, Level, RankSeen, WorkerSeen
from router.doctor.show import print_table, to_json

RANK = RankSeen(
    dp_rank=0, endpoint="tcp://h:5557", is_connected=True, replay_endpoint="tcp://h:5657", is_replayed=True, batches=3,
    first_seq=0, block_tokens=(16,),
)  # fmt: skip
SOUND = WorkerSeen(
    worker="w0", url="http://h:1", health_s=0.01, facts=WorkerFacts(models=("m",), block_tokens=16), ranks=(RANK,),
    parity="passed", load=LoadSource.LOADS, clock_ahead_s=0.0,
)  # fmt: skip


def change(**fields):
    return msgspec.structs.replace(SOUND, **fields)


def rank(**fields):
    return change(ranks=(msgspec.structs.replace(RANK, **fields),))


def bad(*workers):
    return [(finding.check, finding.level) for finding in diagnose(workers) if finding.level is not Level.OK]


def test_a_sound_worker_is_fine_in_every_way():
    findings = diagnose([SOUND])
    assert {finding.level for finding in findings} == {Level.OK}
    assert {finding.check for finding in findings} == set(Check) - {Check.DISCOVERY}
    assert not any(finding.change for finding in findings)


@pytest.mark.parametrize(
    ("seen", "check", "level", "words"),
    [
        (change(health_problem="/health: ConnectError"), Check.HEALTH, Level.PROBLEM, "ConnectError"),
        (change(health_s=1.5), Check.HEALTH, Level.WARNING, "1500 ms"),
        (change(facts=None), Check.FACTS, Level.PROBLEM, "says nothing"),
        (change(refused="worker w0: dp_size is 4 in the configuration"), Check.FACTS, Level.PROBLEM, "dp_size is 4"),
        (change(ranks=(), no_events="it publishes no cache events"), Check.EVENTS, Level.WARNING, "publishes no"),
        (change(is_switched_off=True), Check.EVENTS, Level.WARNING, "switched off"),
        (rank(is_connected=False), Check.EVENTS, Level.PROBLEM, "nobody publishes at tcp://h:5557"),
        (rank(strangers=(1,)), Check.EVENTS, Level.PROBLEM, "tells of ranks 1"),
        (rank(block_tokens=(32,)), Check.EVENTS, Level.WARNING, "blocks of 32"),
        (rank(replay_endpoint=None), Check.REPLAY, Level.WARNING, "no replay socket"),
        (rank(is_replayed=False), Check.REPLAY, Level.PROBLEM, "tcp://h:5657 does not answer"),
        (rank(unreadable=2), Check.REPLAY, Level.PROBLEM, "2 of 3 batches"),
        (rank(missing=1), Check.REPLAY, Level.WARNING, "1 batches are missing"),
        (rank(first_seq=7), Check.REPLAY, Level.WARNING, "begins at batch 7"),
        (change(parity="failed"), Check.PARITY, Level.PROBLEM, "ids of prompts differ"),
        (change(parity="unknown"), Check.PARITY, Level.WARNING, "cannot be compared"),
        (change(no_tokenizer="no tokenizer: none"), Check.PARITY, Level.WARNING, "no tokenizer"),
        (change(load=None), Check.LOAD, Level.WARNING, "tells no load"),
        (change(load=LoadSource.COUNT), Check.LOAD, Level.WARNING, "only a count"),
        (change(clock_ahead_s=-30.0), Check.CLOCK, Level.WARNING, "30 s behind"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_defect_is_named_with_what_to_change(seen, check, level, words):
    (finding,) = [each for each in diagnose([seen]) if each.level is not Level.OK]
    assert (finding.check, finding.level) == (check, level)
    assert words in finding.says
    assert finding.change


def test_a_sidecar_has_what_a_replay_lacks():
    seen = msgspec.structs.replace(rank(first_seq=7), has_sidecar=True)
    assert bad(seen) == []


def test_equal_models_in_blocks_of_different_sizes_and_an_empty_fleet_are_told():
    other = change(worker="w1", facts=WorkerFacts(models=("m",), block_tokens=32), ranks=(
        msgspec.structs.replace(RANK, block_tokens=(32,)),))  # fmt: skip
    assert bad(SOUND, other) == [(Check.FACTS, Level.WARNING)]
    assert bad() == [(Check.DISCOVERY, Level.PROBLEM)]


def test_what_is_printed_names_worker_and_change_and_takes_no_markup_from_engines(capsys):
    findings = diagnose([change(refused="[bold]no[/bold]")])
    print_table(findings, Console(width=200), shows_all=False)
    out = capsys.readouterr().out
    assert "[bold]no[/bold]" in out
    assert "1 workers: 1 problems, 0 warnings" in out
    assert to_json(findings)["counts"] == {"ok": 6, "warning": 0, "problem": 1}
