"""Answers of chat and text completions in the OpenAI shapes, with vLLM's additions. Pure."""

from collections.abc import Sequence

import msgspec

from engine_shim.engine.server.answer import Answer, Delta, Usage
from engine_shim.engine.server.forced_call import ForcedCall

Json = dict[str, object]


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What every body and chunk of one request repeats."""

    public_id: str
    #: Seconds since the epoch.
    created_s: int
    model: str
    return_token_ids: bool


def usage_json(usage: Usage) -> Json:
    """The `usage` object; `cached_tokens` is always a number."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


class ChatShape:
    """`chat.completion` and its chunks."""

    def __init__(self, envelope: Envelope, prompts: Sequence[Sequence[int]], call: ForcedCall | None = None) -> None:
        self._envelope = envelope
        self._prompts = prompts
        #: The call of a tool that each answer is; None where they are texts.
        self._call = call

    def body(self, answers: Sequence[Answer], usage: Usage) -> Json:
        """The whole answer."""
        body = _head(self._envelope, "chatcmpl-", "chat.completion")
        body["choices"] = [self._choice(answer) for answer in answers]
        body["usage"] = usage_json(usage)
        if self._envelope.return_token_ids:
            body["prompt_token_ids"] = self._prompts[0]
        return body

    def first_chunks(self, answers: int) -> list[Json]:
        """Chunks before the first token: the role of each answer."""
        chunks = [
            self._chunk([{"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
            for index in range(answers)
        ]
        if self._envelope.return_token_ids:
            chunks[0]["prompt_token_ids"] = self._prompts[0]
        return chunks

    def chunk(self, delta: Delta, answer: Answer) -> Json:  # noqa: ARG002  (other shapes send the whole text)
        """One output of one answer."""
        piece = {"content": delta.text} if self._call is None else self._call_piece(delta)
        choice: Json = {"index": delta.index, "delta": piece, "finish_reason": self._finish(delta.finish_reason)}
        if delta.finish_reason is not None:
            choice["stop_reason"] = delta.stop_reason
        if self._envelope.return_token_ids:
            choice["token_ids"] = delta.token_ids
        return self._chunk([choice])

    def usage(self, usage: Usage) -> Json:
        """Fields that tell usage."""
        return {"usage": usage_json(usage)}

    def usage_chunk(self, usage: Usage) -> Json:
        """The last chunk, of usage alone."""
        return self._chunk([]) | self.usage(usage)

    def _chunk(self, choices: list[Json]) -> Json:
        return _head(self._envelope, "chatcmpl-", "chat.completion.chunk") | {"choices": choices}

    def _choice(self, answer: Answer) -> Json:
        choice: Json = {
            "index": answer.index,
            "message": {"role": "assistant", **self._message(answer), "refusal": None},
            "logprobs": None,
            "finish_reason": self._finish(answer.finish_reason),
            "stop_reason": answer.stop_reason,
        }
        if self._envelope.return_token_ids:
            choice["token_ids"] = answer.token_ids
        return choice

    def _message(self, answer: Answer) -> Json:
        if self._call is None:
            return {"content": answer.text}
        function = {"name": self._call.name, "arguments": self._call.write(answer.text)}
        return {"content": None, "tool_calls": [self._head_of_call(answer.index) | {"function": function}]}

    def _head_of_call(self, index: int) -> Json:
        return {"id": f"call_{self._envelope.public_id}_{index}", "type": "function"}

    def _call_piece(self, delta: Delta) -> Json:
        """What one output adds to a call: its first piece has the head, its last the end."""
        assert self._call is not None  # noqa: S101  (asked only then)
        text = self._call.escape(delta.text)
        piece: Json = {"index": 0}
        function: Json = {}
        if delta.output_tokens <= 1:
            piece |= self._head_of_call(delta.index)
            function["name"] = self._call.name
            text = self._call.opening + text
        if delta.finish_reason is not None:
            text += self._call.closing
        return {"tool_calls": [piece | {"function": function | {"arguments": text}}]}

    def _finish(self, reason: str | None) -> str | None:
        return reason if reason is None or self._call is None else "tool_calls"


class CompletionShape:
    """`text_completion`, whole or in chunks."""

    def __init__(self, envelope: Envelope, prompts: Sequence[Sequence[int]], choices: int) -> None:
        self._envelope = envelope
        self._prompts = prompts
        self._choices = choices

    def body(self, answers: Sequence[Answer], usage: Usage) -> Json:
        """The whole answer."""
        body = self._chunk([self._choice(answer) for answer in answers])
        body["usage"] = usage_json(usage)
        return body

    def first_chunks(self, answers: int) -> list[Json]:
        """Text completions have none, unless the ids of the prompts were asked for."""
        if not self._envelope.return_token_ids:
            return []
        return [
            self._chunk(
                [
                    {
                        "index": index,
                        "text": "",
                        "finish_reason": None,
                        "prompt_token_ids": self._prompt_of(index),
                        "token_ids": (),
                    }
                ]
            )
            for index in range(answers)
        ]

    def chunk(self, delta: Delta, answer: Answer) -> Json:  # noqa: ARG002  (other shapes send the whole text)
        """One output of one answer."""
        choice: Json = {
            "index": delta.index,
            "text": delta.text,
            "logprobs": None,
            "finish_reason": delta.finish_reason,
        }
        if delta.finish_reason is not None:
            choice["stop_reason"] = delta.stop_reason
        if self._envelope.return_token_ids:
            choice["token_ids"] = delta.token_ids
        return self._chunk([choice])

    def usage(self, usage: Usage) -> Json:
        """Fields that tell usage."""
        return {"usage": usage_json(usage)}

    def usage_chunk(self, usage: Usage) -> Json:
        """The last chunk, of usage alone."""
        return self._chunk([]) | self.usage(usage)

    def _chunk(self, choices: list[Json]) -> Json:
        return _head(self._envelope, "cmpl-", "text_completion") | {"choices": choices}

    def _choice(self, answer: Answer) -> Json:
        choice: Json = {
            "index": answer.index,
            "text": answer.text,
            "logprobs": None,
            "finish_reason": answer.finish_reason,
            "stop_reason": answer.stop_reason,
        }
        if self._envelope.return_token_ids:
            choice["prompt_token_ids"] = self._prompt_of(answer.index)
            choice["token_ids"] = answer.token_ids
        return choice

    def _prompt_of(self, index: int) -> Sequence[int]:
        return self._prompts[index // self._choices]


def _head(envelope: Envelope, prefix: str, kind: str) -> Json:
    return {
        "id": prefix + envelope.public_id,
        "object": kind,
        "created": envelope.created_s,
        "model": envelope.model,
    }
