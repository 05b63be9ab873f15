"""Bodies of the Responses API as chats for the template, the way vLLM makes them. Pure."""

from typing import Any

from engine_shim.engine.server.errors import bad_request
from engine_shim.engine.server.forced_call import ForcedCall, read_chat_choice
from engine_shim.engine.server.protocol import ResponseRequest

Json = dict[str, Any]


def to_chat(body: ResponseRequest, earlier: list[Json]) -> list[Json]:
    """The messages of a chat.

    Args:
        body: The body.
        earlier: Messages of the response that it goes on from, without their instructions.

    Raises:
        ApiError: There is an item that the template has no place for.
    """
    head: list[Json] = [{"role": "system", "content": body.instructions}] if body.instructions else []
    messages = [*head, *({**message} for message in earlier)]
    if isinstance(body.input, str):
        return [*messages, {"role": "user", "content": body.input}]
    for item in body.input:
        _add_item(messages, item)
    return messages


def to_tools(body: ResponseRequest) -> list[Json] | None:
    """Definitions of the tools, in the form of a chat."""
    for tool in body.tools or ():
        if tool.get("type") != "function":
            raise bad_request("tools may be functions only", "tools")
    inner = [{name: value for name, value in tool.items() if name != "type"} for tool in body.tools or ()]
    return [{"type": "function", "function": function} for function in inner] or None


def to_forced_call(body: ResponseRequest) -> ForcedCall | None:
    """The call that `tool_choice` forces; None where the model is free."""
    choice = body.tool_choice
    if isinstance(choice, dict) and choice.get("type") == "function":
        choice = {"function": {"name": choice.get("name")}}
    return read_chat_choice(choice, to_tools(body))


def _add_item(messages: list[Json], item: Json) -> None:
    before = messages[-1] if messages and messages[-1].get("role") == "assistant" else None
    match item.get("type", "message"):
        case "message":
            messages.append({"role": item.get("role"), "content": item.get("content")})
        case "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"id": item.get("call_id"), "function": function, "type": "function"}
            if before is None:
                messages.append({"role": "assistant", "tool_calls": [call]})
            else:
                before.setdefault("tool_calls", []).append(call)
        case "function_call_output":
            content, call_id = item.get("output"), item.get("call_id")
            messages.append({"role": "tool", "content": content, "tool_call_id": call_id})
        case kind:
            raise bad_request(f"input items of type {kind!r} are not supported", "input")
