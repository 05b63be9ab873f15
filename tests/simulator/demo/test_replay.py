"""The closed loop: answers go into the history, sub-agents start where they hang, pauses are kept."""

import asyncio

from simulator.demo.client import Reply
from simulator.demo.replay import Replay
from simulator.traces.session import AnswerSlot, Message, PromptForm, Session, SubAgent, Turn


def turn(kept, *added, think_s=0.0):
    return Turn(think_s, "m", kept, added, 10, 5, 3)


def chat(session_id, turns, agents=(), parent=None):
    return Session(session_id, parent, PromptForm.CHAT, tuple(turns), tuple(agents))


def user(text):
    return Message("user", text)


class FakeFleet:
    """Answers with a text that names the request; keeps what it was sent, and the pauses asked for."""

    def __init__(self, failing=()):
        self.sent = []
        self.pauses = []
        self._failing = set(failing)

    async def send(self, session, turn, prompt):
        serial = len(self.sent)
        self.sent.append((session.session_id, [part.content for part in prompt]))
        await asyncio.sleep(0)
        failure = "HTTP 503" if serial in self._failing else None
        return Reply(
            session.session_id, str(serial), "w", 0, "" if failure else f"answer {serial}", 10, 5, 3, 0.1, failure
        )

    async def pause(self, seconds):
        self.pauses.append(seconds)
        await asyncio.sleep(0)


def play(sessions, fleet=None):
    fleet = fleet or FakeFleet()
    seen = []
    replies = asyncio.run(Replay(fleet.send, fleet.pause, seen.append).run(sessions, arrival_s=0.5, seed=1))
    assert replies == seen
    return fleet


def test_the_fleets_answer_goes_into_the_next_prompt():
    fleet = play([chat("s", [turn(0, user("a")), turn(1, AnswerSlot(), user("b")), turn(3, AnswerSlot(), user("c"))])])
    assert [prompt for _, prompt in fleet.sent] == [
        ["a"], ["a", "answer 0", "b"], ["a", "answer 0", "b", "answer 1", "c"],
    ]  # fmt: skip


def test_a_session_goes_on_after_a_failed_request():
    session = chat("s", [turn(0, user("a")), turn(1, AnswerSlot(), user("b"))])
    fleet = play([session], FakeFleet(failing={0}))
    assert fleet.sent[1][1] == ["a", "(no answer)", "b"]


def test_a_broken_prefix_drops_what_is_not_kept():
    fleet = play([chat("s", [turn(0, user("head"), user("a")), turn(1, user("b"))])])
    assert fleet.sent[1][1] == ["head", "b"]


def test_think_times_are_waited_for():
    fleet = play([chat("s", [turn(0, user("a")), turn(1, user("b"), think_s=1.25)])])
    assert 1.25 in fleet.pauses


def test_a_sub_agent_starts_after_its_turn_with_a_history_of_its_own():
    child = chat("s.1", [turn(0, user("task"))], parent="s")
    session = chat("s", [turn(0, user("a")), turn(1, user("b"))], [SubAgent(0, 0.5, True, child)])
    fleet = play([session])
    assert fleet.sent == [("s", ["a"]), ("s.1", ["task"]), ("s", ["a", "b"])]


def test_a_parent_does_not_wait_for_an_agent_that_runs_beside_it():
    child = chat("s.1", [turn(0, user(str(n))) for n in range(5)], parent="s")
    session = chat("s", [turn(0, user("a")), turn(1, user("b"))], [SubAgent(0, 0.5, False, child)])
    order = [name for name, _ in play([session]).sent]
    assert order.index("s", 1) < len(order) - 1
    assert order.count("s.1") == 5


def test_sessions_start_one_after_the_other_and_run_side_by_side():
    fleet = play([chat(name, [turn(0, user(name))] * 3) for name in "abc"])
    assert sorted(name for name, _ in fleet.sent) == sorted("aaabbbccc")
    starts = fleet.pauses[:3]
    assert starts[0] == 0.0
    assert starts == sorted(starts)
