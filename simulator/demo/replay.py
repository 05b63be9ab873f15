"""Send sessions closed-loop: each waits for its answer, thinks, and asks again; sub-agents run beside their parent."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate
from random import Random

from simulator.demo.client import Reply
from simulator.traces.history import History
from simulator.traces.session import Message, Session, Turn

Send = Callable[[Session, Turn, tuple[Message, ...]], Awaitable[Reply]]


def draw_starts(sessions: int, arrival_s: float, seed: int) -> list[float]:
    """When each session starts, seconds after the first: `arrival_s` apart in the mean."""
    rng = Random(f"arrivals/{seed}")
    gaps_s = (rng.expovariate(1.0 / arrival_s) if arrival_s > 0 else 0.0 for _ in range(sessions - 1))
    return list(accumulate(gaps_s, initial=0.0))


class Replay:
    """One run of all sessions against one router.

    Args:
        send: Sends one turn; must not raise.
        sleep: Waits so many seconds.
        on_reply: Called after each reply, in the order of their ends.
    """

    def __init__(
        self, send: Send, sleep: Callable[[float], Awaitable[None]], on_reply: Callable[[Reply], None]
    ) -> None:
        self._send, self._sleep, self._on_reply = send, sleep, on_reply
        self._replies: list[Reply] = []

    async def run(self, sessions: Sequence[Session], *, arrival_s: float, seed: int) -> list[Reply]:
        """Send every turn of every session; the replies in the order of their ends.

        Args:
            sessions: Top sessions; the sub-agents in them are started where they hang.
            arrival_s: Mean time between the starts of two sessions.
            seed: Of the arrival times.
        """
        starts_s = draw_starts(len(sessions), arrival_s, seed)
        async with asyncio.TaskGroup() as group:
            for session, start_s in zip(sessions, starts_s, strict=True):
                group.create_task(self._run_session(session, start_s))
        return self._replies

    async def _run_session(self, session: Session, delay_s: float) -> None:
        history = History()
        answer: str | None = None
        await self._sleep(delay_s)
        async with asyncio.TaskGroup() as agents:
            awaited: list[asyncio.Task[None]] = []
            for place, turn in enumerate(session.turns):
                if awaited:
                    await asyncio.wait(awaited)
                await self._sleep(turn.think_s)
                reply = await self._send(session, turn, history.advance(turn, answer))
                answer = reply.text
                self._replies.append(reply)
                self._on_reply(reply)
                awaited = self._start_agents(agents, session, place)

    def _start_agents(self, group: asyncio.TaskGroup, session: Session, place: int) -> list[asyncio.Task[None]]:
        """Start the sub-agents that hang on this turn; those the parent waits for are returned."""
        awaited = []
        for agent in session.agents:
            if agent.after_turn == place:
                task = group.create_task(self._run_session(agent.session, agent.delay_s))
                if agent.blocking:
                    awaited.append(task)
        return awaited
