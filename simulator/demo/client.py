"""One streamed request through the router, as an agent sends it, and what came back."""

from collections.abc import Callable

import aiohttp
import msgspec
from msgspec import Struct

from simulator.demo.exchange import Exchange, exchange
from simulator.traces.history import flat_text
from simulator.traces.session import Message, PromptForm, Session, Turn


class Reply(Struct, frozen=True):
    """The outcome of one request; token counts are those of the engine's usage block."""

    session_id: str
    #: Given by the router; None when it never answered.
    request_id: str | None
    worker: str | None
    dp_rank: int | None
    text: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    #: From sending to the first piece of text, seconds; None when the request failed.
    ttft_s: float | None
    #: What went wrong; None for a complete answer.
    failure: str | None = None
    #: From sending to the end of the answer, seconds; None when the request failed.
    e2e_s: float | None = None


class AgentClient:
    """Sends turns to one router.

    Args:
        http: Open client session.
        url: Base URL of the router.
        model: Name the fleet serves; the trace's own model names seed the text instead.
        clock: Seconds, monotonic.
        timeout_s: A request that takes longer counts as failed.
    """

    def __init__(
        self, http: aiohttp.ClientSession, url: str, model: str, clock: Callable[[], float], timeout_s: float
    ) -> None:
        self._http, self._url, self._model, self._clock = http, url, model, clock
        self._timeout_s = timeout_s

    async def send(self, session: Session, turn: Turn, prompt: tuple[Message, ...]) -> Reply:
        """Send one turn and read its stream to the end; a failure is a reply too, never an exception."""
        path, body = request_body(session.form, self._model, turn, prompt)
        headers = {"X-Dovecote-Session": session.session_id}
        if session.parent is not None:
            headers["X-Dovecote-Parent"] = session.parent
        made = await exchange(
            self._http,
            self._url + path,
            msgspec.json.encode(body),
            headers,
            clock=self._clock,
            timeout_s=self._timeout_s,
        )
        return _as_reply(session.session_id, made)


def request_body(
    form: PromptForm, model: str, turn: Turn, prompt: tuple[Message, ...]
) -> tuple[str, dict[str, object]]:
    """Path and body of a turn: greedy, of exactly the recorded length, streamed with usage."""
    body: dict[str, object] = {
        "model": model,
        "max_tokens": turn.output_tokens,
        "ignore_eos": True,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if form is PromptForm.TEXT:
        return "/v1/completions", {**body, "prompt": flat_text(prompt)}
    return "/v1/chat/completions", {**body, "messages": [message.as_json() for message in prompt]}


def _as_reply(session_id: str, made: Exchange) -> Reply:
    rank = made.headers.get("x-dovecote-dp-rank", "")
    has_failed = made.failure is not None
    return Reply(
        session_id=session_id,
        request_id=made.headers.get("x-request-id"),
        worker=made.headers.get("x-dovecote-worker"),
        dp_rank=int(rank) if rank.isdigit() else None,
        text="".join(made.pieces),
        prompt_tokens=made.count("prompt_tokens"),
        cached_tokens=made.cached_tokens or 0,
        output_tokens=made.count("completion_tokens"),
        ttft_s=None if has_failed or made.first_s is None else made.first_s - made.start_s,
        failure=None if made.failure is None else made.failure.text,
        e2e_s=None if has_failed else made.end_s - made.start_s,
    )
