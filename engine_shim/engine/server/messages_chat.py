"""Bodies of Anthropic's Messages API as chats for the template, the way vLLM makes them. Pure."""

import json
from collections.abc import Sequence
from typing import Any

from engine_shim.engine.server.errors import bad_request
from engine_shim.engine.server.forced_call import ForcedCall, force_call
from engine_shim.engine.server.protocol import MessagesRequest

Json = dict[str, Any]


def to_chat(body: MessagesRequest) -> list[Json]:
    """The messages of a chat.

    Raises:
        ApiError: There is a block that the template has no place for.
    """
    turns = [turn for turn in body.messages if turn.get("role") != "system"]
    systems = [body.system, *(turn.get("content") for turn in body.messages if turn.get("role") == "system")]
    text = "".join(_read_text(system, "system") for system in systems if system is not None)
    head: list[Json] = [{"role": "system", "content": text}] if text else []
    return head + [message for turn in turns for message in _convert_turn(turn)]


def to_tools(body: MessagesRequest) -> list[Json] | None:
    """Definitions of the tools, in the form of a chat."""
    return [_convert_tool(tool) for tool in body.tools] if body.tools else None


def to_forced_call(body: MessagesRequest) -> ForcedCall | None:
    """The call that `tool_choice` forces; None where the model is free."""
    choice = body.tool_choice or {}
    match choice.get("type"):
        case None | "auto" | "none":
            return None
        case "any":
            return force_call(to_tools(body), None)
        case "tool":
            return force_call(to_tools(body), str(choice.get("name")))
    raise bad_request("tool_choice.type must be auto, any, tool or none", "tool_choice")


def _convert_tool(tool: Json) -> Json:
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        raise bad_request("a tool must have an input_schema", "tools")
    function: Json = {"name": tool.get("name")}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    function["parameters"] = schema if "type" in schema else {**schema, "type": "object"}
    return {"type": "function", "function": function}


def _convert_turn(turn: Json) -> list[Json]:
    role, content = turn.get("role"), turn.get("content")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    made: list[Json] = []
    message: Json = {"role": role}
    texts = []
    for block in _read_blocks(content, "messages"):
        match block.get("type"):
            case "text":
                texts.append(str(block.get("text", "")))
            case "tool_use":
                message.setdefault("tool_calls", []).append(_convert_call(block))
            case "tool_result" if role == "user":
                result = _read_text(block.get("content") or "", "messages", joined_by="\n")
                made.append({"role": "tool", "tool_call_id": block.get("tool_use_id") or "", "content": result})
            case kind:
                raise bad_request(f"content blocks of type {kind!r} are not supported", "messages")
    parts = [{"type": "text", "text": text} for text in texts if text]
    if parts:
        message["content"] = parts[0]["text"] if len(parts) == 1 else parts
    return made if role == "user" and not parts else [*made, message]


def _convert_call(block: Json) -> Json:
    function = {"name": block.get("name") or "", "arguments": json.dumps(block.get("input") or {})}
    return {"id": block.get("id"), "type": "function", "function": function}


def _read_text(content: Any, param: str, *, joined_by: str = "") -> str:
    if isinstance(content, str):
        return content
    blocks = _read_blocks(content, param)
    if any(block.get("type") != "text" or not isinstance(block.get("text"), str) for block in blocks):
        raise bad_request(f"{param} may hold text blocks only here", param)
    return joined_by.join(block["text"] for block in blocks)


def _read_blocks(content: Any, param: str) -> Sequence[Json]:
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise bad_request("content must be a text or a list of blocks", param)
    return content
