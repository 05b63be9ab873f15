"""What engines make of a body of the Responses API before their chat template sees it. Pure.

`instructions` become the first message, items of `input` become messages: a call of a function joins the assistant's
message before it, and so does reasoning; a call's output is a tool's message. Items that only the engine can read
(encrypted reasoning, results of tools that it calls itself) are not converted.
Source: vLLM's `entrypoints/openai/responses/utils.py` (0.32), read in public; SGLang agrees on messages.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

Message = dict[str, Any]
Item = Mapping[str, Any]
_TEXT_PARTS = frozenset({"input_text", "output_text", "text"})


class ResponsesForm(StrEnum):
    """What is known of an engine's way."""

    #: Reasoning joins the answer that it led to.
    VLLM = "vllm"
    #: What becomes of reasoning is not known.
    PLAIN = "plain"


class _UnknownItemError(Exception):
    """An item that engines are not known to take."""


def convert_input(instructions: object, given: object, form: ResponsesForm) -> list[Message] | None:
    """The chat that an engine renders; None where that is not known.

    Args:
        instructions: The body's `instructions`.
        given: The body's `input`.
        form: What the engine does.
    """
    messages: list[Message] = []
    if isinstance(instructions, str) and instructions:
        messages.append({"role": "system", "content": instructions})
    elif instructions:
        return None
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    if not isinstance(given, list):
        return None
    items: list[Message] = []
    try:
        for item in given:
            _add_item(items, item, form)
    except _UnknownItemError:
        return None
    return messages + items


def convert_tools(tools: Iterable[object]) -> list[Message] | None:
    """Tool definitions as a chat has them; None where there are tools of another kind than functions."""
    made = []
    for tool in tools:
        if not isinstance(tool, Mapping) or tool.get("type") != "function":
            return None
        made.append({"type": "function", "function": {name: tool[name] for name in tool if name != "type"}})
    return made


def _add_item(messages: list[Message], item: object, form: ResponsesForm) -> None:
    """Add one item, which may become part of the message before it."""
    if not isinstance(item, Mapping):
        raise _UnknownItemError
    before = messages[-1] if messages and messages[-1].get("role") == "assistant" else None
    match item.get("type", "message"):
        case "message":
            _add_message(messages, before, item)
        case "function_call":
            call = _convert_call(item)
            if before is None:
                messages.append({"role": "assistant", "tool_calls": [call]})
            else:
                before.setdefault("tool_calls", []).append(call)
        case "function_call_output":
            messages.append({"role": "tool", "content": _read_output(item), "tool_call_id": item.get("call_id")})
        case "reasoning" if form is ResponsesForm.VLLM:
            _add_part_of_answer(messages, before, "reasoning", _read_reasoning(item))
        case _:
            raise _UnknownItemError


def _add_message(messages: list[Message], before: Message | None, item: Item) -> None:
    role, content = item.get("role"), item.get("content")
    if item.get("status") in {"in_progress", "incomplete"} or not isinstance(role, str):
        raise _UnknownItemError
    if role != "assistant":
        messages.append({"role": role, "content": content if isinstance(content, str) else _convert_parts(content)})
        return
    text = content if isinstance(content, str) else _read_first_text(content)
    _add_part_of_answer(messages, before, "content", text)


def _add_part_of_answer(messages: list[Message], before: Message | None, name: str, text: str) -> None:
    """To the answer before it, if that has none yet."""
    if before is not None and before.get(name) is None:
        before[name] = text
    else:
        messages.append({"role": "assistant", name: text})


def _read_output(item: Item) -> object:
    output = item.get("output")
    if not output and not isinstance(output, str):
        raise _UnknownItemError
    return output if isinstance(output, str) else _convert_parts(output)


def _read_reasoning(item: Item) -> str:
    """Its text, else its summary; engines take the first part and no other."""
    told = item.get("content") or item.get("summary")
    if item.get("encrypted_content") or item.get("status") in {"in_progress", "incomplete"}:
        raise _UnknownItemError
    return _read_first_text(told)


def _convert_parts(content: object) -> list[Message]:
    if not isinstance(content, list):
        raise _UnknownItemError
    return [_convert_part(part) for part in content]


def _convert_part(part: object) -> Message:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(part, Mapping) and kind in _TEXT_PARTS and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if isinstance(part, Mapping) and kind == "input_image" and isinstance(part.get("image_url"), str):
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    raise _UnknownItemError


def _read_first_text(content: object) -> str:
    """Engines take the first part of an assistant's message and no other."""
    if not content:
        return ""
    first = content[0] if isinstance(content, list) else None
    text = first.get("text") if isinstance(first, Mapping) else None
    if not isinstance(text, str):
        raise _UnknownItemError
    return text


def _convert_call(item: Item) -> Message:
    name, arguments = item.get("name"), item.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, str) or item.get("namespace"):
        raise _UnknownItemError
    function = {"name": name, "arguments": arguments}
    return {"id": item.get("call_id"), "function": function, "type": "function"}
