"""What the process tests share: sessions that grow turn by turn through a router, and waiting for a condition."""

import asyncio
import time
from functools import partial

from simulator.demo.scrape import MetricsPage
from simulator.traces.session import Message, PromptForm, Session, Turn
from tests.waiting import PATIENCE_S

WORDS = ("parse", "index", "route", "merge", "cache", "token", "queue", "shard", "probe", "drain", "lease", "score")


async def until(condition, what):
    """Ask again until a condition of other processes holds; what it gave."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := await condition()):
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        await asyncio.sleep(0.05)
    return value


async def count_batches(http, url, name):
    """Batches of cache events of each rank, as a metrics page counts them."""
    async with http.get(f"{url}/metrics") as response:
        page = MetricsPage(await response.text())
    return {int(labels["dp_rank"]): int(count) for labels, count in page.samples(name)}


def count_read(worker):
    """Batches that the router has read of each rank, its numbers being from 0."""
    return {rank["dp_rank"]: 0 if rank["last_seq"] is None else rank["last_seq"] + 1 for rank in worker["ranks"]}


async def find_judged(find_decision, replies):
    """Records of the decisions, each once its prediction is judged: a difference waits for events on their way."""

    async def find(request_id):
        record = await find_decision(request_id)
        return record if record["accuracy"] else None

    return [await until(partial(find, reply.request_id), f"{reply.request_id} is judged") for reply in replies]


class GrowingSessions:
    """Sessions with their histories, answers included; a turn that failed leaves its history as it was."""

    def __init__(self, client, count):
        self.client = client
        self.histories = {
            f"session-{number}": [Message("system", f"You work on part {number % 3}. " + " ".join(WORDS) * 8)]
            for number in range(count)
        }

    async def take_turn(self, name, output_tokens):
        history = self.histories[name]
        turns = len(history)
        words = " ".join(WORDS[(turns + place + int(name[8:])) % len(WORDS)] for place in range(40))
        history.append(Message("user", f"step {turns} of {name}: {words}"))
        turn = Turn(
            think_s=0,
            model="dovecote-toy",
            kept_parts=0,
            added=tuple(history),
            prompt_tokens=0,
            new_tokens=0,
            output_tokens=output_tokens,
        )
        session = Session(session_id=name, parent=None, turns=(turn,), form=PromptForm.CHAT)
        reply = await self.client.send(session, turn, tuple(history))
        if reply.failure:
            history.pop()
        else:
            history.append(Message("assistant", reply.text or "(no answer)"))
        return reply

    async def take_turns(self, count, settle=None):
        """So many turns of every session; between two turns of all, whatever has to settle does."""
        replies = []
        for _ in range(count):
            replies += await asyncio.gather(*(self.take_turn(name, 6) for name in self.histories))
            if settle is not None:
                await settle()
        return replies

    async def take_turns_until(self, stop, output_tokens=6):
        """Turns of every session until `stop` is set; those that have begun are finished."""

        async def run(name):
            replies = []
            while not stop.is_set():
                replies.append(await self.take_turn(name, output_tokens))
            return replies

        replies = await asyncio.gather(*map(run, self.histories))
        return [reply for one in replies for reply in one]
