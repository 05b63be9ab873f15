"""Sessions become the trace of what their prompts were: shared prefixes, answers, pauses, and who waits for whom."""

import pytest

from simulator.demo.blocks import BlockNames, TraceWriter
from simulator.graph.loop import ClosedLoop
from simulator.graph.request import Trigger, Wait
from simulator.traces.session import AnswerSlot, Message, PromptForm, Session, SubAgent, Turn


def turn(kept, *added, think_s=0.0, output=3):
    return Turn(think_s, "m", kept, added, 10, 5, output)


def user(text):
    return Message("user", text)


def session(name, *turns, agents=(), parent=None):
    return Session(name, parent, PromptForm.CHAT, turns, tuple(agents))


def spell(_, prompt):
    return [ord(letter) for part in prompt for letter in part.content]


def write(sessions, answers, starts_s=None):
    writer = TraceWriter(answers, spell, block_tokens=2)
    return writer.write(sessions, starts_s or [0.0] * len(sessions)).requests


def test_a_block_has_one_id_behind_one_prefix_and_another_behind_another():
    names = BlockNames(2)
    first, again, other = names.find([1, 2, 3, 4]), names.find([1, 2, 3, 4, 5]), names.find([9, 9, 3, 4])
    assert first == again
    assert len(set(first) | set(other)) == 4


def test_prompts_hold_the_answers_of_the_fleet_and_share_what_stays():
    one = session("s", turn(0, user("abcd")), turn(1, AnswerSlot(), user("gh")))
    first, second = write([one], {"s": ["ef", "unused"]})
    assert [first.prompt_tokens, second.prompt_tokens] == [4, 8]
    assert list(second.blocks[:2]) == list(first.blocks)
    assert len(second.blocks) == 4


def test_a_turn_waits_for_the_answer_and_thinks_and_a_session_begins_at_its_time():
    one = session("s", turn(0, user("ab"), think_s=0.25), turn(1, AnswerSlot(), think_s=1.5))
    first, second = write([one], {"s": ["x", "y"]}, [7.0])
    assert (first.not_before_s, first.waits) == (7.25, ())
    assert (second.not_before_s, second.waits) == (0.0, (Wait(0, Trigger.COMPLETION, 1.5),))


def sub_agent(name, *, after, blocking, delay_s=0.5, turns=1):
    return SubAgent(after, delay_s, blocking, session(name, *[turn(0, user("zz"))] * turns, parent="s"))


def test_sub_agents_start_after_the_turn_they_hang_on_and_a_parent_waits_for_those_that_block():
    agents = [sub_agent("s.1", after=0, blocking=True, turns=2), sub_agent("s.2", after=0, blocking=False)]
    one = session("s", turn(0, user("ab")), turn(1, AnswerSlot(), think_s=2.0), agents=agents)
    requests = write([one], {"s": ["x", "y"], "s.1": ["u", "v"], "s.2": ["w"]})
    assert [request.request_id for request in requests] == ["s#0", "s.1#0", "s.1#1", "s.2#0", "s#1"]
    assert [request.parent for request in requests] == [None, "s", "s", "s", None]
    assert requests[1].waits == requests[3].waits == (Wait(0, Trigger.COMPLETION, 0.5),)
    assert requests[4].waits == (Wait(0, Trigger.COMPLETION, 2.0), Wait(2, Trigger.COMPLETION, 2.0))


def test_the_trace_is_a_closed_loop_that_ends():
    agents = [sub_agent("s.1", after=1, blocking=True, turns=0), sub_agent("s.2", after=1, blocking=True)]
    one = session("s", turn(0, user("ab")), turn(1, AnswerSlot()), turn(0, user("q")), agents=agents)
    requests = write([one], {"s": ["x", "y", "z"], "s.2": ["w"]})
    loop = ClosedLoop(requests)
    due = [place for _, place in loop.roots()]
    started = set()
    while due:
        place = due.pop()
        started.add(place)
        due += [later for _, later in loop.start(place, 0.0) + loop.end(place, 1.0)]
    assert len(started) == len(requests)


@pytest.mark.parametrize("answers", [{}, {"s": ["x"]}, {"s": ["x", "y", "z"]}])
def test_a_session_without_its_answers_is_refused(answers):
    with pytest.raises(ValueError, match=r"s: \d answers to 2 requests"):
        write([session("s", turn(0, user("ab")), turn(1, AnswerSlot()))], answers)
