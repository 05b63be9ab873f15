"""One streamed request to an OpenAI-compatible endpoint: sent, read to its end, timed; whatever fails has its kind."""

from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct

#: Longest failure text kept, and most bytes read of a body that only explains a failure.
MAX_FAILURE_CHARS = 200
MAX_ERROR_BYTES = 1 << 16


class Failure(Struct, frozen=True):
    """Why an answer is not complete."""

    #: From a closed set, HTTP statuses apart: unreachable, tls, timeout, disconnected, truncated, error_event,
    #: malformed, http_<status>.
    kind: str
    text: str
    #: What a refusal asked for in Retry-After, as it was written; None without one.
    retry_after: str | None = None


class Exchange(Struct):
    """What came back to one request; times are of the clock given, in seconds."""

    start_s: float
    end_s: float = 0.0
    #: Response headers by lower-case name; empty when no answer began.
    headers: dict[str, str] = {}
    pieces: list[str] = []
    #: When pieces of text arrived; empty pieces do not count.
    piece_times_s: list[float] = []
    #: First piece of text or end mark of a choice.
    first_s: float | None = None
    usage: dict[str, Any] = {}
    #: Whether a choice gave its reason to end, and whether the stream gave its own mark.
    is_finished: bool = False
    is_done: bool = False
    failure: Failure | None = None

    def take(self, line: bytes, now_s: float) -> None:
        """Read one line of the stream.

        Raises:
            ValueError, TypeError, AttributeError: It is an event, but not of the known shape.
        """
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
            self.failure = Failure("error_event", _error_text(event))
        usage = event.get("usage")
        self.usage = usage if isinstance(usage, dict) else self.usage
        for choice in event.get("choices") or ():
            self._take_choice(choice, now_s)

    def _take_choice(self, choice: Any, now_s: float) -> None:
        delta = choice.get("delta") or {}
        piece = choice.get("text") or delta.get("content") or ""
        if not isinstance(piece, str):
            raise TypeError("a piece of the answer is no text")
        self.is_finished = self.is_finished or bool(choice.get("finish_reason"))
        has_text = bool(piece or delta.get("reasoning_content") or delta.get("reasoning"))
        if has_text:
            self.piece_times_s.append(now_s)
        if self.first_s is None and (has_text or choice.get("finish_reason")):
            self.first_s = now_s
        self.pieces.append(piece)

    def count(self, name: str) -> int:
        """A token count of the usage block; 0 where it says nothing of the kind."""
        found = self.usage.get(name)
        return found if isinstance(found, int) and found > 0 else 0

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens that the engine had cached, by its own count; None where it does not say."""
        details = self.usage.get("prompt_tokens_details")
        found = details.get("cached_tokens") if isinstance(details, dict) else None
        return found if isinstance(found, int) and found >= 0 else None


async def exchange(
    http: aiohttp.ClientSession,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    clock: Callable[[], float],
    timeout_s: float,
) -> Exchange:
    """Send one request and read its stream to the end; a failure is an exchange too, never an exception.

    Redirects are not followed: what is measured is the target that was named.
    """
    made = Exchange(clock())
    sent_headers = {"Content-Type": "application/json", **headers}
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with http.post(url, data=body, headers=sent_headers, timeout=timeout, allow_redirects=False) as response:
            made.headers = {name.lower(): value for name, value in response.headers.items()}
            await _read(response, made, clock)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, TypeError, AttributeError) as error:
        made.failure = made.failure or Failure(kind_of(error), f"{type(error).__name__}: {error}"[:MAX_FAILURE_CHARS])
    if made.failure is None and not (made.is_done and made.is_finished):
        lacking = "a finish_reason" if made.is_done else "[DONE]"
        made.failure = Failure("truncated", f"the stream ended without {lacking}")
    made.end_s = clock()
    return made


async def _read(response: aiohttp.ClientResponse, made: Exchange, clock: Callable[[], float]) -> None:
    if response.status != 200:
        raw = await read_start(response)
        text = f"HTTP {response.status}: {error_of_body(raw)}"[:MAX_FAILURE_CHARS]
        made.failure = Failure(f"http_{response.status}", text, response.headers.get("Retry-After"))
        return
    async for line in response.content:
        made.take(line, clock())


async def read_start(response: aiohttp.ClientResponse) -> bytes:
    """As much of a body as an explanation may need."""
    raw = b""
    async for piece in response.content.iter_any():
        raw += piece
        if len(raw) >= MAX_ERROR_BYTES:
            response.close()
            break
    return raw[:MAX_ERROR_BYTES]


def kind_of(error: Exception) -> str:
    """The kind of failure that an exception of the HTTP client, or of reading an event, is."""
    if isinstance(error, aiohttp.ClientSSLError | aiohttp.ServerFingerprintMismatch):
        return "tls"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "unreachable"
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, aiohttp.ClientError | OSError):
        return "disconnected"
    return "malformed"


def error_of_body(raw: bytes) -> str:
    """What the body of a refusal says, in whichever of the usual forms."""
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return raw.decode(errors="replace")
    return _error_text(body) if isinstance(body, dict) and "error" in body else raw.decode(errors="replace")


def _error_text(event: dict[str, Any]) -> str:
    error = event["error"]
    text = error.get("message") if isinstance(error, dict) else error
    return str(text)[:MAX_FAILURE_CHARS]
