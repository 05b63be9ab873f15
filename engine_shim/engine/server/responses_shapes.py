"""Answers of `/v1/responses` in OpenAI's shapes. Pure."""

from collections.abc import Sequence
from typing import Any

from engine_shim.engine.server.answer import Answer, Delta, Usage
from engine_shim.engine.server.errors import ApiError
from engine_shim.engine.server.forced_call import ForcedCall
from engine_shim.engine.server.protocol import ResponseRequest

Json = dict[str, Any]


class ResponseShape:
    """`response`, whole or in events."""

    def __init__(
        self, public_id: str, created_s: int, model: str, body: ResponseRequest, call: ForcedCall | None
    ) -> None:
        #: What the response is called.
        self.id = f"resp_{public_id}"
        self._call = call
        self._item_id = f"{'msg' if call is None else 'fc'}_{public_id}"
        self._call_id = f"call_{public_id}"
        self._pieces: list[str] = []
        self._events = 0
        self._head: Json = {
            "id": self.id,
            "object": "response",
            "created_at": created_s,
            "model": model,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "parallel_tool_calls": False,
            "previous_response_id": body.previous_response_id,
            "temperature": body.temperature,
            "tool_choice": body.tool_choice or "auto",
            "tools": body.tools or [],
            "top_p": body.top_p,
            "metadata": {},
        }

    def body(self, answers: Sequence[Answer], usage: Usage) -> Json:
        """The whole answer."""
        is_cut = answers[0].finish_reason == "length"
        details = {"reason": "max_output_tokens"} if is_cut else None
        status = "incomplete" if is_cut else "completed"
        done = {"status": status, "incomplete_details": details, "usage": _usage_json(usage)}
        return self._head | done | {"output": [self._item(answers[0].text, "completed")]}

    def start(self, usage: Usage) -> list[Json]:  # noqa: ARG002  (told at the end)
        """Events before the first text."""
        begun = self._head | {"status": "in_progress", "output": [], "usage": None}
        item = self._item("", "in_progress")
        if self._call is None:
            item["content"] = []
        else:
            item["arguments"] = ""
        events = [
            self._event("response.created", response=begun),
            self._event("response.in_progress", response=begun),
            self._event("response.output_item.added", output_index=0, item=item),
        ]
        if self._call is None:
            return [*events, self._of_item("response.content_part.added", content_index=0, part=_part(""))]
        return [*events, self._write(self._call.opening)]

    def delta(self, delta: Delta) -> list[Json]:
        """Events of one output."""
        text = delta.text if self._call is None else self._call.escape(delta.text)
        return [self._write(text)] if text else []

    def end(self, answer: Answer, usage: Usage) -> list[Json]:
        """Events after the last text."""
        response = self.body([answer], usage)
        item = response["output"][0]
        if self._call is None:
            text = answer.text
            events = [
                self._of_item("response.output_text.done", content_index=0, text=text, logprobs=[]),
                self._of_item("response.content_part.done", content_index=0, part=_part(text)),
            ]
        else:
            closing = self._write(self._call.closing)
            arguments = "".join(self._pieces)
            done = "response.function_call_arguments.done"
            events = [closing, self._of_item(done, name=self._call.name, arguments=arguments)]
        kind = f"response.{response['status']}"
        last = self._event("response.output_item.done", output_index=0, item=item)
        return [*events, last, self._event(kind, response=response)]

    def error(self, error: ApiError) -> Json:
        """The event that an error is."""
        return self._event("error", code=str(int(error.status)), message=error.message, param=error.param)

    def _write(self, text: str) -> Json:
        self._pieces.append(text)
        if self._call is None:
            return self._of_item("response.output_text.delta", content_index=0, delta=text, logprobs=[])
        return self._of_item("response.function_call_arguments.delta", delta=text)

    def _item(self, text: str, status: str) -> Json:
        head: Json = {"id": self._item_id, "status": status}
        if self._call is None:
            return head | {"type": "message", "role": "assistant", "content": [_part(text)]}
        call = {"call_id": self._call_id, "name": self._call.name, "arguments": self._call.write(text)}
        return head | {"type": "function_call"} | call

    def _of_item(self, kind: str, **fields: Any) -> Json:
        return self._event(kind, item_id=self._item_id, output_index=0, **fields)

    def _event(self, kind: str, **fields: Any) -> Json:
        number, self._events = self._events, self._events + 1
        return {"type": kind, "sequence_number": number, **fields}


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage_json(usage: Usage) -> Json:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
