"""What was measured beside what is simulated: the same requests, or none; both orders, as tables and as JSON."""

import io
import json

import msgspec
import pytest
from rich.console import Console

from engine_shim.engine.tokenizer import TOY_FOLDER, Tokenizer
from simulator.demo.agreement import Figure, Verdict
from simulator.demo.check import NotAlikeError, OrderCheck
from simulator.demo.client import Reply
from simulator.demo.json_form import describe_as_json
from simulator.demo.plan import DemoOptions, ForwardName, build_plan
from simulator.demo.report import RouterCounters, summarise
from simulator.demo.show import show_check
from simulator.traces.history import History
from simulator.traces.words import block_text

TOKENIZER = Tokenizer(TOY_FOLDER)
OPTIONS = DemoOptions(
    is_slow=True, forward=ForwardName.TIMED, replicas=2, sessions=24, turns=4, time_ratio=0.001, prompt_ratio=1 / 64
)
PLAN = build_plan(OPTIONS, lambda text: len(TOKENIZER.encode(text)))
NO_COUNTERS = RouterCounters(0, 0, {})


def count_prompt(prompt):
    return len(TOKENIZER.encode(TOKENIZER.template.render([message.as_json() for message in prompt])))


def make_replies(ttft_s=0.1):
    """A reply to each turn, as a fleet would give it."""
    replies = []
    for session in (agent for top in PLAN.sessions for agent in top.walk()):
        history, answer = History(), None
        for serial, turn in enumerate(session.turns):
            prompt_tokens = count_prompt(history.advance(turn, answer))
            answer = block_text(f"{session.session_id}/{serial}", turn.output_tokens)
            name, worker = session.session_id, f"engine-{len(replies) % 2 + 1}"
            replies.append(Reply(name, "r", worker, 0, answer, prompt_tokens, 0, 5, ttft_s, None, 2 * ttft_s))
    return replies


REPLIES = make_replies()


def summaries(**ttfts_s):
    return [
        summarise(name, make_replies(ttft_s), ranks=4, router=NO_COUNTERS, wall_s=1.0)
        for name, ttft_s in ttfts_s.items()
    ]


def carry_out(found, replies=None):
    return OrderCheck(PLAN, TOKENIZER, noise_ratio=0.03).carry_out(found, replies or [REPLIES] * len(found))


def test_an_order_that_was_measured_and_comes_out_again_agrees():
    result = carry_out(summaries(round_robin=0.9, cache_affinity=0.1))
    assert [standing.policy for standing in result.simulated] == ["round_robin", "cache_affinity"]
    by_figure = {pair.figure: pair for pair in result.agreement.pairs}
    assert by_figure[Figure.TTFT].verdict is by_figure[Figure.E2E].verdict is Verdict.SAME
    assert by_figure[Figure.TTFT].better == "cache_affinity"
    assert result.agreement.holds


def test_an_order_that_was_measured_the_other_way_round_is_told():
    result = carry_out(summaries(round_robin=0.1, cache_affinity=0.9))
    assert Figure.TTFT in {pair.figure for pair in result.agreement.select(Verdict.OPPOSED)}
    assert not result.agreement.holds
    console = Console(file=io.StringIO(), width=100)
    show_check(console, result)
    text = console.file.getvalue()
    assert "The orders differ" in text
    assert "cache_affinity is better than round_robin simulated, and worse measured" in text
    assert "900" in text


def test_the_same_replies_give_the_same_simulated_figures():
    assert carry_out(summaries(cache_affinity=0.1)).simulated == carry_out(summaries(cache_affinity=0.2)).simulated


def test_the_outcome_is_one_json_object():
    found = summaries(round_robin=0.9, cache_affinity=0.1)
    form = json.loads(describe_as_json(PLAN, found, carry_out(found)))
    assert form["plan"]["sessions"] == 24
    assert form["plan"]["pace"] == {"prefill_tokens_per_s": 4_000.0, "decode_step_ms": 20.0}
    assert [policy["ttft_mean_s"] for policy in form["policies"]] == pytest.approx([0.9, 0.1])
    assert form["simulation"]["agrees"] is True
    assert "simulation" not in json.loads(describe_as_json(PLAN, found, None))


def change_last(**fields):
    return [REPLIES, [*REPLIES[:-1], msgspec.structs.replace(REPLIES[-1], **fields)]]


@pytest.mark.parametrize(
    ("replies", "complaint"),
    [
        (change_last(failure="HTTP 503"), "failed, so that the runs are not alike: HTTP 503"),
        (change_last(text="something else"), "differ in their answers"),
        ([[*REPLIES[:-1], msgspec.structs.replace(REPLIES[-1], prompt_tokens=7)]] * 2, "7 by the engine's count"),
        ([REPLIES[:-1]] * 2, "answers to"),
    ],
)
def test_runs_that_did_not_send_the_same_are_not_compared(replies, complaint):
    with pytest.raises(NotAlikeError, match=complaint):
        carry_out(summaries(round_robin=0.9, cache_affinity=0.1), replies)
