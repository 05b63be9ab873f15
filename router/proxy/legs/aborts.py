"""Tells engines to give up requests that nobody waits for any more.

A closed connection says so too, but an engine may look at it seconds later while it computes an answer that is not
streamed: SGLang is asked by the request's name. Nobody waits for this; what goes wrong with it is lost.
Source: SGLang `/abort_request`; docs/faults.md C03.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from router.errors import DovecoteError
from router.fleet.rank import RankFacts
from router.fleet.role import Engine
from router.lookout import own_time
from router.proxy.headers import Headers
from router.proxy.upstream import Upstream

ABORT_PATH = "/abort_request"
#: How long an engine may take to answer.
ABORT_S = 2.0
_JSON = [(b"content-type", b"application/json")]


class Background:
    """Tasks that outlive the request they belong to. Belongs to one event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def hold(self, task: "asyncio.Task[None]") -> None:
        """Keep a task until it is over."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End every task."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def abort_on_engine(
    upstream: Upstream, background: Background, facts: RankFacts | None, names: Iterable[str], key: bytes | None
) -> None:
    """Ask an engine to give up what it knows by these names, where it can be asked.

    Args:
        upstream: Connections.
        background: Keeps the question until it is answered.
        facts: The engine.
        names: Of the requests, as the engine knows them.
        key: What its `authorization` line says; None where it wants none.
    """
    if facts is not None and facts.engine is Engine.SGLANG:
        for name in names:
            background.hold(asyncio.get_running_loop().create_task(_ask(upstream, facts.url, name, key)))


async def _ask(upstream: Upstream, url: str, name: str, key: bytes | None) -> None:
    await ask_to_abort(upstream, url, [] if key is None else [(b"authorization", key)], name, limit_s=ABORT_S)


async def ask_to_abort(upstream: Upstream, url: str, headers: Headers, name: str, *, limit_s: float) -> int:
    """Ask one engine and wait for its word.

    Args:
        upstream: Connections.
        url: The engine.
        headers: Lines for it, but for the kind of the body.
        name: Of the request, as the engine knows it.
        limit_s: How long it may take.

    Returns:
        The status that it answered; 0 where it did not.
    """
    status = 0
    with suppress(DovecoteError, TimeoutError):
        async with own_time(limit_s):
            body = msgspec.json.encode({"rid": name})
            exchange = await upstream.open(f"{url}{ABORT_PATH}", [*headers, *_JSON], body)
            try:
                status = exchange.status
                while await exchange.read():
                    continue
            finally:
                exchange.close()
    return status
