"""Answers of `/v1/messages` in Anthropic's shapes. Pure."""

import json
from collections.abc import Sequence
from typing import Any

from engine_shim.engine.server.answer import Answer, Delta, Usage
from engine_shim.engine.server.errors import ApiError
from engine_shim.engine.server.forced_call import ForcedCall

Json = dict[str, Any]
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "abort": "end_turn"}


def usage_json(usage: Usage) -> Json:
    """Anthropic's counts: what was found in the cache stands apart."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
    }


class MessageShape:
    """`message`, whole or in events."""

    def __init__(self, public_id: str, model: str, call: ForcedCall | None) -> None:
        self._id = f"msg_{public_id}"
        self._model = model
        self._call = call
        self._call_id = f"toolu_{public_id}"

    def body(self, answers: Sequence[Answer], usage: Usage) -> Json:
        """The whole answer."""
        answer = answers[0]
        return self._message(usage) | {"content": [self._block(answer.text)]} | self._stop(answer)

    def start(self, usage: Usage) -> list[Json]:
        """Events before the first text."""
        opened = self._message(usage) | {"content": [], "stop_reason": None, "stop_sequence": None}
        events: list[Json] = [{"type": "message_start", "message": opened}]
        block = self._block("") if self._call is None else self._block("") | {"input": {}}
        events.append({"type": "content_block_start", "index": 0, "content_block": block})
        return events if self._call is None else [*events, self._piece(self._call.opening)]

    def delta(self, delta: Delta) -> list[Json]:
        """Events of one output."""
        text = delta.text if self._call is None else self._call.escape(delta.text)
        return [self._piece(text)] if text else []

    def end(self, answer: Answer, usage: Usage) -> list[Json]:
        """Events after the last text."""
        closing = [] if self._call is None else [self._piece(self._call.closing)]
        return [
            *closing,
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": self._stop(answer), "usage": usage_json(usage)},
            {"type": "message_stop"},
        ]

    def error(self, error: ApiError) -> Json:
        """The event that an error is."""
        return error_json(error)

    def _message(self, usage: Usage) -> Json:
        head = {"id": self._id, "type": "message", "role": "assistant", "model": self._model}
        return head | {"usage": usage_json(usage)}

    def _block(self, text: str) -> Json:
        if self._call is None:
            return {"type": "text", "text": text}
        arguments = json.loads(self._call.write(text))
        return {"type": "tool_use", "id": self._call_id, "name": self._call.name, "input": arguments}

    def _piece(self, text: str) -> Json:
        kind, name = ("text_delta", "text") if self._call is None else ("input_json_delta", "partial_json")
        return {"type": "content_block_delta", "index": 0, "delta": {"type": kind, name: text}}

    def _stop(self, answer: Answer) -> Json:
        stopped_by = answer.stop_reason if isinstance(answer.stop_reason, str) else None
        reason = "stop_sequence" if stopped_by is not None else _STOP_REASONS[answer.finish_reason or "stop"]
        return {"stop_reason": reason if self._call is None else "tool_use", "stop_sequence": stopped_by}


def error_json(error: ApiError) -> Json:
    """An error in Anthropic's form."""
    kinds = {400: "invalid_request_error", 404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error"}
    kind = kinds.get(int(error.status), "overloaded_error" if error.status == 503 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}
