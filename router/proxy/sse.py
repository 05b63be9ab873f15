"""Reads a streamed answer as it passes: first output, usage, end. Pure.

Takes the pieces as they arrive, cut anywhere, and gives back the bytes to forward: the same ones, but for the
one usage chunk that the router asked for and the client did not. Never decodes text it does not need.
Line ends are LF or CRLF; an event is what ends with an empty line.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from router.proxy.alike import Alike, learn
from router.proxy.kept import is_id
from router.proxy.told_error import SERVER_ERROR, read_abort_status, read_error_status

#: An event longer than this is forwarded unread; no usage chunk is that long.
MAX_EVENT_BYTES = 1 << 20
#: Tokens that can be meant: what is larger is no count, and would only spoil sums and limits.
MAX_COUNT = 1 << 30
#: Forms of events that are learned of one stream as they come: reasoning, answer and tools have one each.
MAX_LESSONS = 8
#: After those one is learned in so many chunks at most: some engines say the second in each event, others never say
#: the same twice.
LESSON_CHUNKS = 16
_EVENT_END = re.compile(rb"\r?\n\r?\n")
#: Fields that engines send as null until there is something to say: the name, and both ways to write that.
_FINISH_REASON, _USAGE = (
    (b'"%b"' % name, b'"%b":null' % name, b'"%b": null' % name) for name in (b"finish_reason", b"usage")
)
#: What a stream may start with: field names of the format, a comment, blank lines.
_STARTS = (b"data", b"event", b"id", b"retry", b":", b"\n", b"\r\n")
#: Events after which a response or message is over.
_TYPED_ENDS = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "message_stop", "error"}
)


class Usage(msgspec.Struct, frozen=True):
    """Token counts of an answer; None where the engine does not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    #: What it says of the prompt without adding what it says of its cache; Anthropic's form has them apart, and not
    #: every engine means them so.
    uncached_tokens: int | None = None
    #: Of the cached tokens those on device, in host memory and in storage, where it says so.
    tiers: tuple[int, int, int] | None = None

    def with_later(self, later: "Usage") -> "Usage":
        """The later counts, and these where it has none."""
        known = {name: value for name, value in msgspec.structs.asdict(later).items() if value is not None}
        return msgspec.structs.replace(self, **known)


def read_usage(value: Any) -> Usage | None:
    """The `usage` of an OpenAI or Anthropic answer, or SGLang's `meta_info`; anything else is None.

    Counts that are no counts are dropped.
    """
    if not isinstance(value, dict):
        return None
    given, made = ("prompt", "completion") if "prompt_tokens" in value else ("input", "output")
    prompt, completion = _count(value.get(f"{given}_tokens")), _count(value.get(f"{made}_tokens"))
    if "cache_read_input_tokens" in value or "cache_creation_input_tokens" in value:
        found, created = _count(value.get("cache_read_input_tokens")), _count(value.get("cache_creation_input_tokens"))
        whole = None if prompt is None else prompt + (found or 0) + (created or 0)
        return Usage(whole, completion, found, prompt)
    details = value.get(f"{given}_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else value.get("cached_tokens")
    return Usage(prompt, completion, _count(cached), tiers=_read_tiers(value.get("cached_tokens_details")))


def _read_tiers(value: Any) -> tuple[int, int, int] | None:
    """SGLang's account of where it found what it had cached; None where it gives none."""
    if not isinstance(value, dict):
        return None
    counts = tuple(_count(value.get(name, 0)) for name in ("device", "host", "storage"))
    return None if None in counts else counts  # type: ignore[return-value]  # three, and none of them None


def sum_usage(usages: Mapping[int, Usage], choices_of_prompt: int) -> Usage:
    """Counts of a request of several answers by their place: each prompt once, as its first answer found it."""
    firsts = [usage for place, usage in usages.items() if place % choices_of_prompt == 0]
    return Usage(
        _sum(usage.prompt_tokens for usage in firsts),
        _sum(usage.completion_tokens for usage in usages.values()),
        _sum(usage.cached_tokens for usage in firsts),
        tiers=_sum_tiers(firsts),
    )


def _sum_tiers(usages: Sequence[Usage]) -> tuple[int, int, int] | None:
    """Where all of them were found; None where it is not known of all."""
    known = [usage.tiers for usage in usages if usage.tiers is not None]
    if not known or len(known) < len(usages):
        return None
    device, host, storage = (sum(counts) for counts in zip(*known, strict=True))
    return device, host, storage


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None


class StreamScanner:
    """State of one stream. `feed` every piece in order, then `finish`."""

    def __init__(
        self,
        *,
        choices: int = 1,
        choices_of_prompt: int = 1,
        drop_usage_chunk: bool = False,
        is_opaque: bool = False,
        untold_status: int = SERVER_ERROR,
    ) -> None:
        """Start before the first byte.

        Args:
            choices: Answers that must end (`n` times prompts) before a missing [DONE] counts as complete.
            choices_of_prompt: Answers to each prompt.
            drop_usage_chunk: Leave out the chunk with empty choices and usage, because the router asked for it.
            is_opaque: The stream is encoded: nothing is read of it, and its end is believed.
            untold_status: What an error stands for that tells neither code nor type.
        """
        #: Whether nothing can be read of this stream.
        self.is_opaque = is_opaque
        #: Whether any output of the model was seen.
        self.has_output = False
        #: Chunks with choices so far; engines send about one a token.
        self.output_chunks = 0
        #: The last usage seen.
        self.usage: Usage | None = None
        #: Whether [DONE] was seen.
        self.is_done = False
        #: The engine's own error event was seen.
        self.has_error = False
        #: What an engine that sent one says of whose fault it was, as a status.
        self.error_status = SERVER_ERROR
        self._untold_status = untold_status
        #: What the engine calls its answer, where it is a response that it may keep.
        self.response_id: str | None = None
        self._is_typed = False
        self._choices = choices
        self._choices_of_prompt = choices_of_prompt
        #: Counts of answers that each tell their own.
        self._usages: dict[int, Usage] = {}
        self._finished: set[int] = set()
        self._drops = drop_usage_chunk and not is_opaque
        #: Start of an event whose end has not come; its first `_sent_bytes` bytes were forwarded already.
        self._tail = b""
        self._sent_bytes = 0
        self._skips_event = False
        #: Form of most events, how often it may still be learned anew at once, and from which chunk on again.
        self._alike: Alike | None = None
        self._lessons = MAX_LESSONS
        self._lesson_chunk = LESSON_CHUNKS

    @property
    def is_complete(self) -> bool:
        """Whether the answer reached its end, by [DONE] or by the finish reasons of all its choices."""
        return self.is_opaque or self.is_done or len(self._finished) >= self._choices

    def to_usage(self) -> Usage:
        """Counts of the answer: as the engine says them, its output tokens else one a chunk."""
        said = self.usage or Usage()
        if said.completion_tokens is not None:
            return said
        return Usage(said.prompt_tokens, self.output_chunks or None, said.cached_tokens)

    def feed(self, piece: bytes) -> bytes:
        """Read one piece; the result is what to forward now, possibly nothing yet."""
        if self.is_opaque:
            return piece
        if self.has_output and not self._tail and piece.endswith(b"\n\n"):
            if self._alike is not None and self._alike.fits(piece, 0, len(piece)):
                self.output_chunks += 1
                return piece
            if self._is_plain(piece):
                self._note_plain(piece)
                return piece
        data, sent = self._tail + piece, self._sent_bytes
        end = _last_event_end(data)
        read = self._read_events(data[:end]) if end else b""
        forward = read + self._hold(data[end:])
        return forward[sent:] if self._drops else piece

    def feed_chunks(self, data: bytes) -> bool:
        """Read what may be chunks with their framing; where not all of it is more of the same, none of it was read."""
        if self._alike is None or self._tail:
            return False
        chunks = self._alike.count_chunks(data)
        self.output_chunks += chunks
        return chunks > 0

    def _note_plain(self, events: bytes) -> None:
        """Further output and nothing else; what is alike need not be looked through again."""
        count = events.count(b"\n\n")
        self.output_chunks += count
        if count == 1:
            self._learn(events)

    def finish(self) -> bytes:
        """The stream ended; the result is what was held back."""
        rest, self._tail = self._tail[self._sent_bytes :], b""
        if rest and not self._skips_event:
            self._read_event(rest)
        return rest if self._drops else b""

    def _hold(self, data: bytes) -> bytes:
        """Keep the start of an event for later, or let it go unread once it is too long; gives what goes now."""
        self._skips_event = self._skips_event or len(data) > MAX_EVENT_BYTES
        if not self._skips_event:
            self._tail, self._sent_bytes = data, 0
            return b""
        # Three bytes are enough to see an event end that is cut in two.
        self._tail = data[-3:]
        self._sent_bytes = len(self._tail)
        return data

    def _is_plain(self, events: bytes) -> bool:
        """Whether these events can only be further output: no end, no usage, no error among them."""
        return (
            _is_null(events, _FINISH_REASON)
            and (b'"usage"' not in events or _is_null(events, _USAGE))
            and b"[DONE]" not in events
            and b'"error"' not in events
            and not (self._is_typed and (b'"response"' in events or b"message_" in events))
        )

    def _read_events(self, events: bytes) -> bytes:
        """Read complete events; gives those to forward."""
        if not self._skips_event and self.has_output and self._is_plain(events):
            self.output_chunks += events.count(b"\n\n") + events.count(b"\n\r\n")
            return events
        kept, kept_start, start = [], 0, 0
        for match in _EVENT_END.finditer(events):
            end = match.end()
            if not self._skips_event and not self._passes(events, start, end):
                event = events[start:end]
                is_usage = self._read_event(event)
                if is_usage and self._drops:
                    # Blank lines before it are of the stream, and pass.
                    kept.append(events[kept_start : end - len(event.lstrip(b"\r\n"))])
                    kept_start = end
            self._skips_event = False
            start = end
        # A third line end in a row ends nothing more, and is passed on.
        return b"".join((*kept, events[kept_start:])) if kept_start else events

    def _passes(self, events: bytes, start: int, end: int) -> bool:
        """Whether an event among several is more of the same; one that is only output shows what that looks like."""
        if not self.has_output:
            return False
        if self._alike is not None and self._alike.fits(events, start, end):
            self.output_chunks += 1
            return True
        if self._may_learn() and self._is_plain(events[start:end]):
            self._learn(events[start:end])
        return False

    def _may_learn(self) -> bool:
        return self._lessons > 0 or self.output_chunks >= self._lesson_chunk

    def _learn(self, event: bytes) -> None:
        if self._may_learn():
            self._lessons = max(0, self._lessons - 1)
            self._lesson_chunk = self.output_chunks + LESSON_CHUNKS
            self._alike = learn(event)

    def _read_event(self, event: bytes) -> bool:
        """Note what an event says; whether it is the usage chunk."""
        data = _event_data(event)
        if data == b"[DONE]":
            self.is_done = True
            return False
        try:
            chunk = msgspec.json.decode(data) if data else None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return False
        return isinstance(chunk, dict) and self._read_chunk(chunk)

    def _read_chunk(self, chunk: dict[str, Any]) -> bool:
        usage = read_usage(chunk.get("usage"))
        if usage is not None and "type" not in chunk:
            self.usage = usage
        if chunk.get("error") is not None:
            self._note_error(
                read_error_status(chunk["error"], has_output=self.has_output, untold_status=self._untold_status)
            )
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            self._read_other(chunk)
            return False
        for choice in choices:
            if isinstance(choice, dict):
                self._read_choice(choice)
        self.output_chunks += bool(choices)
        return not choices and usage is not None

    def _read_other(self, event: dict[str, Any]) -> None:
        """An event of another API than chat and text completions."""
        kind, meta = event.get("type"), event.get("meta_info")
        if isinstance(meta, dict):
            self._read_generated(event, meta)
        elif isinstance(kind, str):
            self._is_typed = True
            self._read_typed(kind, event)

    def _read_generated(self, event: dict[str, Any], meta: dict[str, Any]) -> None:
        """A chunk of SGLang's `/generate`: all of one answer so far, with its counts."""
        index = event.get("index")
        place = index if type(index) is int else 0
        self._usages[place] = read_usage(meta) or Usage()
        self.usage = sum_usage(self._usages, self._choices_of_prompt)
        self.output_chunks += 1
        self.has_output = self.has_output or bool(event.get("text") or event.get("output_ids"))
        if (reason := meta.get("finish_reason")) is not None:
            self._finished.add(place)
            status = read_abort_status(reason, has_output=self.has_output)
            if status is None:
                self.has_output = True
            else:
                self._note_error(status)

    def _note_error(self, status: int) -> None:
        """Of several the engine's own counts."""
        self.error_status = max(status, self.error_status) if self.has_error else status
        self.has_error = True

    def _read_typed(self, kind: str, event: dict[str, Any]) -> None:
        """An event of the Responses or Messages API: named by its type, with the whole object at start or end."""
        whole = event.get("response", event.get("message"))
        if isinstance(whole, dict):
            self.response_id = self.response_id or (whole["id"] if is_id(whole.get("id")) else None)
            self._add_usage(whole.get("usage"))
        if kind == "message_delta":
            self._add_usage(event.get("usage"))
        elif kind.endswith(".delta") or kind == "content_block_delta":
            self.has_output = True
            self.output_chunks += 1
        self.is_done = self.is_done or kind in _TYPED_ENDS
        self.has_error = self.has_error or kind in {"error", "response.failed"}

    def _add_usage(self, value: Any) -> None:
        usage = read_usage(value)
        if usage is not None:
            self.usage = usage if self.usage is None else self.usage.with_later(usage)

    def _read_choice(self, choice: dict[str, Any]) -> None:
        if not self.has_output:
            delta = choice.get("delta")
            said = any(value for name, value in delta.items() if name != "role") if isinstance(delta, dict) else False
            self.has_output = bool(said or choice.get("text") or choice.get("token_ids"))
        if choice.get("finish_reason") is not None:
            self.has_output = True
            index = choice.get("index")
            self._finished.add(index if type(index) is int else 0)


def _is_null(events: bytes, field: tuple[bytes, bytes, bytes]) -> bool:
    """Whether a field is null wherever it stands."""
    name, tight, spaced = field
    return events.count(name) == events.count(tight) + events.count(spaced)


def _last_event_end(data: bytes) -> int:
    """Offset after the last complete event, 0 where none is complete."""
    end = data.rfind(b"\n\n") + 2
    crlf = data.rfind(b"\n\r\n") + 3
    return max(end if end > 1 else 0, crlf if crlf > 2 else 0)


def _event_data(event: bytes) -> bytes:
    """Payload of an event's data lines."""
    if event.startswith(b"data: ") and event.count(b"\n") <= 2:
        return event[6:].strip()
    lines = [line.removeprefix(b"data:").strip() for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)


def looks_like_stream(head: bytes) -> bool:
    """Whether the first bytes of a body can be an event stream."""
    return any(head.startswith(start[: len(head)]) for start in _STARTS)
