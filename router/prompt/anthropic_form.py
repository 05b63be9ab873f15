"""What engines make of a body of Anthropic's Messages API before their chat template sees it. Pure.

vLLM and SGLang answer `/v1/messages` by turning it into a chat; they differ in how texts of a system prompt are joined,
what becomes of a tool's result, and in which order things stand. Each way is a `MessagesForm`. What none of them is
known to render (documents, results of server tools) is not converted.
Source: vLLM's `entrypoints/anthropic/serving.py` (0.32), SGLang's `entrypoints/anthropic/`, both read in public.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from router.prompt.engine_form import ATTRIBUTION

Message = dict[str, Any]
Block = Mapping[str, Any]


class MessagesForm(StrEnum):
    """One way."""

    #: Texts of the system prompt end to end, results of tools as one text, thinking as reasoning.
    VLLM = "vllm"
    #: Texts of the system prompt on lines, results of tools in parts, no thinking.
    SGLANG = "sglang"
    #: The same, results of tools where they stand among the parts of a turn, and empty texts kept.
    SGLANG_ORDERED = "sglang_ordered"


class _UnknownBlockError(Exception):
    """A block that this form is not known to take."""


def convert_messages(system: object, messages: Iterable[object], form: MessagesForm) -> list[Message] | None:
    """The chat that an engine renders; None where that is not known.

    Args:
        system: The body's `system`: a text, text blocks, or None.
        messages: The body's messages.
        form: What the engine does.
    """
    turns = list(messages)
    try:
        made = _convert_system(system, turns, form)
        for turn in turns:
            if not isinstance(turn, Mapping):
                return None
            made += _convert_turn(turn, form)
    except _UnknownBlockError:
        return None
    return made


def convert_tools(tools: Iterable[object], form: MessagesForm) -> list[Message] | None:
    """Tool definitions as a chat has them; None where there are tools of another kind."""
    made = []
    for tool in tools:
        schema = tool.get("input_schema") if isinstance(tool, Mapping) else None
        if not isinstance(tool, Mapping) or not isinstance(schema, Mapping) or tool.get("defer_loading"):
            return None
        description = tool.get("description")
        function: Message = {"name": tool.get("name")}
        if form is not MessagesForm.VLLM:
            function["description"] = description or ""
        elif description is not None:
            function["description"] = description
        is_typed = "type" in schema or form is not MessagesForm.VLLM
        function["parameters"] = schema if is_typed else {**schema, "type": "object"}
        if form is MessagesForm.VLLM and tool.get("strict") is not None:
            function["strict"] = tool["strict"]
        made.append({"type": "function", "function": function})
    return made


def _convert_system(system: object, turns: Sequence[object], form: MessagesForm) -> list[Message]:
    """The first message, where there is one."""
    has_inline = any(isinstance(turn, Mapping) and turn.get("role") == "system" for turn in turns)
    if has_inline and form is not MessagesForm.SGLANG:
        raise _UnknownBlockError  # whether it is moved to the head depends on the template
    if form is MessagesForm.VLLM:
        texts = [system] if isinstance(system, str) else _read_texts(system, leaves_out=ATTRIBUTION)
        joined = "".join(texts)
        return [{"role": "system", "content": joined}] if joined else []
    if isinstance(system, str):
        is_there = bool(system if form is MessagesForm.SGLANG else system.strip())
        return [{"role": "system", "content": system}] if is_there else []
    texts = _read_texts(system)
    return [{"role": "system", "content": "\n".join(texts)}] if texts else []


def _read_texts(blocks: object, *, leaves_out: str | None = None) -> list[str]:
    """Texts of text blocks that are not empty."""
    found = []
    for block in _read_blocks(blocks):
        text = block.get("text") if block.get("type") == "text" else None
        if isinstance(text, str) and text and (leaves_out is None or not text.startswith(leaves_out)):
            found.append(text)
    return found


def _read_blocks(content: object) -> list[Block]:
    if content is None:
        return []
    if not isinstance(content, list) or not all(isinstance(block, Mapping) for block in content):
        raise _UnknownBlockError
    return content


def _convert_turn(turn: Block, form: MessagesForm) -> list[Message]:
    """The messages that one turn becomes: results of tools are messages of their own."""
    content, role = turn.get("content"), turn.get("role")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    builder = _TurnBuilder(role, form)
    for block in _read_blocks(content):
        builder.add(block)
    return builder.finish()


class _TurnBuilder:
    """Collects the blocks of one turn."""

    def __init__(self, role: object, form: MessagesForm) -> None:
        self._role = role
        self._form = form
        self._made: list[Message] = []
        self._parts: list[Message] = []
        self._calls: list[Message] = []
        self._thoughts: list[str] = []

    def add(self, block: Block) -> None:
        """One block, in order."""
        match block.get("type"):
            case "text":
                self._add_text(block.get("text"))
            case "image":
                self._parts.append(_convert_image(block.get("source")))
            case "thinking":
                self._add_thought(block.get("thinking"))
            case "redacted_thinking" if self._form is not MessagesForm.SGLANG_ORDERED:
                pass
            case "tool_use":
                self._calls.append(_convert_call(block))
            case "tool_result" if self._role == "user":
                self._add_result(block)
            case _:
                raise _UnknownBlockError

    def finish(self) -> list[Message]:
        """Everything that the turn becomes."""
        keeps_all = self._form is MessagesForm.SGLANG_ORDERED
        message: Message = {"role": self._role}
        if self._thoughts:
            message["reasoning"] = message["reasoning_content"] = "".join(self._thoughts)
        if self._calls:
            message["tool_calls"] = self._calls
        if self._parts:
            message["content"] = _join_parts(self._parts)
        elif self._role == "user" or (self._form is MessagesForm.SGLANG and not self._calls):
            return self._made
        elif keeps_all and not self._calls:
            message["content"] = ""
        return [*self._made, message]

    def _add_text(self, text: object) -> None:
        if not isinstance(text, str):
            raise _UnknownBlockError
        if text or self._form is MessagesForm.SGLANG_ORDERED:
            self._parts.append({"type": "text", "text": text})

    def _add_thought(self, thought: object) -> None:
        if self._form is MessagesForm.SGLANG_ORDERED:
            raise _UnknownBlockError  # put back into the model's own marks, which only the engine knows
        if self._form is MessagesForm.VLLM and isinstance(thought, str):
            self._thoughts.append(thought)

    def _add_result(self, block: Block) -> None:
        content, images = _convert_result(block.get("content"), self._form)
        if self._form is MessagesForm.SGLANG_ORDERED and self._parts:
            self._made.append({"role": self._role, "content": _join_parts(self._parts)})
            self._parts = []
        self._made.append({"role": "tool", "tool_call_id": block.get("tool_use_id") or "", "content": content})
        if images:
            self._made.append({"role": "user", "content": images})


def _join_parts(parts: list[Message]) -> object:
    """Content of a message: a text alone stands as it is."""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _convert_call(block: Block) -> Message:
    arguments = json.dumps(block.get("input") or {})
    function = {"name": block.get("name") or "", "arguments": arguments}
    return {"id": block.get("id"), "type": "function", "function": function}


def _convert_image(source: object) -> Message:
    if not isinstance(source, Mapping):
        raise _UnknownBlockError
    url = source.get("url")
    if source.get("type") != "url":
        url = f"data:{source.get('media_type', 'image/jpeg')};base64,{source.get('data', '')}"
    return {"type": "image_url", "image_url": {"url": url}}


def _convert_result(content: object, form: MessagesForm) -> tuple[object, list[Message]]:
    """Content of a tool's message, and the images that stand in a message after it."""
    if content is None or isinstance(content, str):
        return content or "", []
    parts: list[Message] = []
    for item in _read_blocks(content):
        if item.get("type") == "image":
            parts.append(_convert_image(item.get("source")))
        elif item.get("type") == "text" and isinstance(item.get("text"), str):
            parts.append({"type": "text", "text": item["text"]})
        else:
            raise _UnknownBlockError
    if form is MessagesForm.VLLM:
        texts = [part["text"] for part in parts if part["type"] == "text"]
        return "\n".join(texts), [part for part in parts if part["type"] != "text"]
    said = [part for part in parts if part["type"] != "text" or part["text"]]
    return _join_parts(said) if said else "", []
