"""Sessions and the answers they got, as the trace that the simulator serves: the very prompts, in blocks of ids.

Pure: texts and a tokenizer in, requests with what they wait for out.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence

from simulator.graph.request import BlockRequest, BlockTrace, Trigger, Wait
from simulator.traces.history import History
from simulator.traces.session import Message, Session, SubAgent

#: The ids of a session's prompt, rendered and tokenized as the fleet does it.
Encode = Callable[[Session, tuple[Message, ...]], Sequence[int]]
#: Answers of a session, one a turn, by the session's id.
Answers = Mapping[str, Sequence[str]]


class BlockNames:
    """Ids of blocks of tokens: one for each different block behind each different prefix."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._ids: dict[tuple[int, tuple[int, ...]], int] = {}

    def find(self, token_ids: Sequence[int]) -> "array[int]":
        """The ids of a prompt's full blocks."""
        named = array("I")
        before = -1
        for end in range(self._block_tokens, len(token_ids) + 1, self._block_tokens):
            block = tuple(token_ids[end - self._block_tokens : end])
            before = self._ids.setdefault((before, block), len(self._ids))
            named.append(before)
        return named


class TraceWriter:
    """Collects the requests of one trace, session by session.

    Args:
        answers: What the fleet said.
        encode: Prompt to ids.
        block_tokens: Tokens of a block.
    """

    def __init__(self, answers: Answers, encode: Encode, *, block_tokens: int) -> None:
        self._answers, self._encode, self._block_tokens = answers, encode, block_tokens
        self._names = BlockNames(block_tokens)
        self._requests: list[BlockRequest] = []

    def write(self, sessions: Sequence[Session], starts_s: Sequence[float]) -> BlockTrace:
        """The trace of sessions that begin at these times.

        Raises:
            ValueError: A session has not as many answers as turns.
        """
        for session, start_s in zip(sessions, starts_s, strict=True):
            self._add_session(session, start_s, None)
        return BlockTrace(self._block_tokens, tuple(self._requests))

    def _add_session(self, session: Session, start_s: float, spawned: Wait | None) -> int | None:
        """Add a session and all below it; the place of its last request, None where it has none."""
        answers = self._answers.get(session.session_id, ())
        if len(answers) != len(session.turns):
            raise ValueError(f"{session.session_id}: {len(answers)} answers to {len(session.turns)} requests")
        history, last = History(), None
        waits = [] if spawned is None else [spawned]
        for serial, turn in enumerate(session.turns):
            prompt = history.advance(turn, answers[serial - 1] if serial else None)
            paused = [Wait(wait.place, wait.trigger, wait.pause_s + turn.think_s) for wait in waits]
            not_before_s = 0.0 if paused else start_s + turn.think_s
            last = self._add_request(session, serial, prompt, not_before_s, paused)
            agents = [agent for agent in session.agents if agent.after_turn == serial]
            waits = [Wait(last, Trigger.COMPLETION, 0.0), *self._add_agents(agents, last)]
        return last

    def _add_agents(self, agents: Sequence[SubAgent], parent_place: int) -> list[Wait]:
        """Add sub-agents that a request starts; what its successor waits for."""
        waits = []
        for agent in agents:
            last = self._add_session(agent.session, 0.0, Wait(parent_place, Trigger.COMPLETION, agent.delay_s))
            if agent.blocking and last is not None:
                waits.append(Wait(last, Trigger.COMPLETION, 0.0))
        return waits

    def _add_request(
        self, session: Session, serial: int, prompt: tuple[Message, ...], not_before_s: float, waits: Sequence[Wait]
    ) -> int:
        token_ids = self._encode(session, prompt)
        request = BlockRequest(
            request_id=f"{session.session_id}#{serial}",
            session=session.session_id,
            parent=session.parent,
            blocks=self._names.find(token_ids),
            prompt_tokens=len(token_ids),
            output_tokens=session.turns[serial].output_tokens,
            not_before_s=not_before_s,
            waits=tuple(waits),
        )
        self._requests.append(request)
        return len(self._requests) - 1
