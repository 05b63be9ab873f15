"""Whole runs: the real router on simulated ranks serves everything, the same for the same seed."""

import json
from array import array

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from router.errors import ConfigError
from router.policy.catalogue import build_policy
from simulator.fleet.command import simulate as command
from simulator.fleet.models import EngineName, FleetPlan
from simulator.fleet.policies import parse_policy
from simulator.fleet.run import RunSettings, simulate
from simulator.fleet.simulation import RefusedError
from simulator.graph.request import BlockRequest, BlockTrace, Trigger, Wait

app = typer.Typer()
app.command()(command)


def make_trace(*, sessions=12, turns=6, first_blocks=40, grown_blocks=4):
    """Sessions that grow, two of them sharing each head; a turn follows a second after the answer before it."""
    requests = []
    for turn in range(turns):
        for session in range(sessions):
            own = [10_000 * (session + 1) + place for place in range(first_blocks + turn * grown_blocks)]
            waits = (Wait(len(requests) - sessions, Trigger.COMPLETION, 1.0),) if turn else ()
            requests.append(
                BlockRequest(
                    request_id=f"{session}.{turn}",
                    session=str(session),
                    output_tokens=100 + session,
                    blocks=array("I", [session // 2 * 10 + place for place in range(8)] + own),
                    prompt_tokens=64 * (8 + len(own)),
                    not_before_s=0.0 if turn else 0.3 * session,
                    waits=waits,
                )
            )
    return BlockTrace(64, tuple(requests))


PLAN = FleetPlan(workers=3, cache_blocks=400)
EVERY_POLICY = [
    "cache_affinity", "round_robin", "random", "least_load", "power_of_two", "session_hash", "prefix_threshold",
    "overlap_linear", "weighted_scores",
]  # fmt: skip


@pytest.mark.parametrize("engine", list(EngineName))
@pytest.mark.parametrize("name", EVERY_POLICY)
def test_every_policy_serves_the_whole_trace_and_leaves_nothing_charged(name, engine):
    plan = msgspec.structs.replace(PLAN, engine=engine)
    report = simulate(make_trace(), plan, build_policy(name))
    assert report.requests == 72
    assert 0.0 <= report.reuse_ratio < 1.0
    assert 0.0 < report.ttft.p50_ms <= report.ttft.p99_ms <= report.e2e.p99_ms


def test_the_same_seed_gives_the_same_bytes():
    def run(seed):
        return msgspec.json.encode(
            simulate(make_trace(), PLAN, build_policy("random"), settings=RunSettings(seed=seed))
        )

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_affinity_reuses_what_round_robin_does_not_and_answers_sooner():
    # Prompts of a length that is worth going back for.
    trace, plan = make_trace(first_blocks=300), msgspec.structs.replace(PLAN, cache_blocks=2_400)
    spread, kept = (simulate(trace, plan, build_policy(name)) for name in ("round_robin", "cache_affinity"))
    assert kept.reuse_ratio > spread.reuse_ratio + 0.15
    assert kept.ttft.mean_ms < spread.ttft.mean_ms


def test_one_rank_reuses_all_that_was_ever_sent_and_the_router_predicts_it():
    plan = FleetPlan(workers=1, cache_blocks=4_096)
    trace = make_trace(sessions=2)
    report = simulate(trace, plan, build_policy("round_robin"))
    seen, held = set(), 0
    for request in trace.requests:
        fresh = next((place for place, name in enumerate(request.blocks) if name not in seen), len(request.blocks))
        held += min(fresh, len(request.blocks) - 1)
        seen.update(request.blocks)
    assert report.reuse_ratio == pytest.approx(held * 64 / sum(each.prompt_tokens for each in trace.requests), abs=0.05)
    assert report.exact_predictions_ratio > 0.9


def test_a_prompt_larger_than_a_cache_is_told_and_not_lost():
    with pytest.raises(RefusedError, match=r"0\.0: .*the pool of 4 pages"):
        simulate(make_trace(), FleetPlan(workers=2, cache_blocks=4), build_policy("round_robin"))


def test_knobs_of_a_baseline_come_with_its_name():
    assert parse_policy("overlap_linear:prefill_load_scale=4").name == "overlap_linear"


def test_a_policy_file_is_a_policy(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("name: cache_affinity\nweights: {decode: 2.0}\n")
    assert parse_policy(str(path)).name == "cache_affinity"
    path.write_text("name: cache_affinity\nweights: {decoding: 2.0}\n")
    with pytest.raises(ConfigError, match="decode"):
        parse_policy(str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        parse_policy(str(tmp_path / "none.yaml"))


def write_trace(tmp_path):
    rows = [{"schema": "dynamo.agentic_mooncake", "version": 2, "block_size": 64}]
    rows += [
        {"request_id": str(place), "session_id": str(place % 2), "input_length": 640, "output_length": 9,
         "hash_ids": [place % 2 * 100 + block for block in range(10)], "not_before_ms": 500 * place}
        for place in range(8)
    ]  # fmt: skip
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def test_the_command_prints_a_table_or_one_json_object(tmp_path):
    path = write_trace(tmp_path)
    table = CliRunner().invoke(app, [path, "--workers", "2"])
    assert table.exit_code == 0
    assert "round_robin" in table.output
    shown = [CliRunner().invoke(app, [path, "--workers", "2", "--policy", "session_hash", "--json"]) for _ in range(2)]
    assert shown[0].stdout == shown[1].stdout
    (run,) = json.loads(shown[0].stdout)["runs"]
    assert (run["policy"], run["requests"], run["reuse_ratio"]) == ("session_hash", 8, 0.675)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--policy", "best"], "valid here: cache_affinity"),
        (["--policy", "overlap_linear:scale=4"], "valid here: prefill_load_scale"),
        (["--policy", "overlap_linear:prefill_load_scale"], "a setting looks like key=value"),
        (["--cache-blocks", "5"], "the pool of 5 pages"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_line(tmp_path, arguments, complaint):
    result = CliRunner().invoke(app, [write_trace(tmp_path), *arguments])
    assert result.exit_code == 2
    assert complaint in result.output


def test_a_missing_trace_is_said_in_one_line(tmp_path):
    result = CliRunner().invoke(app, [str(tmp_path / "none.jsonl")])
    assert (result.exit_code, "cannot be read" in result.output) == (2, True)
