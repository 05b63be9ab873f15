"""One streamed request through the router, as an agent sends it, and what came back."""

from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct

from simulator.traces.history import flat_text
from simulator.traces.session import Message, PromptForm, Session, Turn

#: Longest failure text kept.
MAX_FAILURE_CHARS = 200


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


class _Stream:
    """Collects the events of one streamed answer."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.first_s: float | None = None
        self.usage: dict[str, Any] = {}
        self.is_done = False
        self.failure: str | None = None

    def take(self, line: bytes, now_s: float) -> None:
        if not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            self.is_done = True
            return
        event = msgspec.json.decode(data)
        if not isinstance(event, dict):
            raise TypeError("an event of the stream is no JSON object")
        if "error" in event:
            self.failure = _error_text(event)
        self.usage = event.get("usage") or self.usage
        for choice in event.get("choices") or ():
            piece = choice.get("text") or (choice.get("delta") or {}).get("content") or ""
            if self.first_s is None and (piece or choice.get("finish_reason")):
                self.first_s = now_s
            self.pieces.append(piece)


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
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)

    async def send(self, session: Session, turn: Turn, prompt: tuple[Message, ...]) -> Reply:
        """Send one turn and read its stream to the end; a failure is a reply too, never an exception."""
        path, body = request_body(session.form, self._model, turn, prompt)
        headers = {"X-Dovecote-Session": session.session_id}
        if session.parent is not None:
            headers["X-Dovecote-Parent"] = session.parent
        start_s = self._clock()
        stream = _Stream()
        answered: dict[str, str] = {}
        try:
            async with self._http.post(self._url + path, json=body, headers=headers, timeout=self._timeout) as response:
                answered = {name.lower(): value for name, value in response.headers.items()}
                await self._read(response, stream)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, TypeError, AttributeError) as error:
            stream.failure = stream.failure or f"{type(error).__name__}: {error}"
        if stream.failure is None and not stream.is_done:
            stream.failure = "the stream ended without [DONE]"
        return _as_reply(session.session_id, stream, answered, start_s, self._clock())

    async def _read(self, response: aiohttp.ClientResponse, stream: _Stream) -> None:
        if response.status != 200:
            raw = await response.read()
            stream.failure = f"HTTP {response.status}: {_error_of_body(raw)}"[:MAX_FAILURE_CHARS]
            return
        async for line in response.content:
            stream.take(line, self._clock())


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


def _as_reply(session_id: str, stream: _Stream, headers: dict[str, str], start_s: float, end_s: float) -> Reply:
    details = stream.usage.get("prompt_tokens_details") or {}
    rank = headers.get("x-dovecote-dp-rank", "")
    has_failed = stream.failure is not None
    return Reply(
        session_id=session_id,
        request_id=headers.get("x-request-id"),
        worker=headers.get("x-dovecote-worker"),
        dp_rank=int(rank) if rank.isdigit() else None,
        text="".join(stream.pieces),
        prompt_tokens=int(stream.usage.get("prompt_tokens") or 0),
        cached_tokens=int(details.get("cached_tokens") or 0),
        output_tokens=int(stream.usage.get("completion_tokens") or 0),
        ttft_s=None if has_failed or stream.first_s is None else stream.first_s - start_s,
        failure=stream.failure,
        e2e_s=None if has_failed else end_s - start_s,
    )


def _error_text(event: dict[str, Any]) -> str:
    error = event["error"]
    text = error.get("message") if isinstance(error, dict) else error
    return str(text)[:MAX_FAILURE_CHARS]


def _error_of_body(raw: bytes) -> str:
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return raw.decode(errors="replace")
    return _error_text(body) if isinstance(body, dict) and "error" in body else raw.decode(errors="replace")
