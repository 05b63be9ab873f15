"""Bodies that engines turn into a chat before they render it: the same is done here, so that their prompts are known.

The chat is encoded anew, so that one that goes on with a known conversation begins with the bytes of that one; of a
list that goes on with a known one only what is new is converted. What is not converted is placed by its text, without
exact credit.
"""

from typing import Any

import msgspec
import xxhash

from router.errors import RequestError
from router.fleet.role import Engine
from router.prompt import PromptInput
from router.prompt.anthropic_form import MessagesForm, convert_messages
from router.prompt.anthropic_form import convert_tools as convert_anthropic_tools
from router.prompt.conversion_choice import ConversionChoice
from router.prompt.request import decode_list
from router.prompt.responses_form import ResponsesForm, convert_input
from router.prompt.responses_form import convert_tools as convert_response_tools
from router.proxy.api import Api
from router.proxy.body import RequestBody
from router.proxy.known_chats import KnownChat, KnownChats
from router.proxy.sse import Usage

_FORMS = {Api.MESSAGES.value: tuple(MessagesForm), Api.RESPONSE.value: tuple(ResponsesForm)}
#: What engines of a kind do.
_USUAL = {
    (Api.MESSAGES, Engine.SGLANG): MessagesForm.SGLANG, (Api.RESPONSE, Engine.SGLANG): ResponsesForm.PLAIN,
}  # fmt: skip
#: Members of which the chat is made: what comes first in it, and its list.
_MEMBERS = {Api.MESSAGES: ("system", "messages"), Api.RESPONSE: ("instructions", "input")}
#: Members of a response that change its prompt in ways only the engine knows.
_OPAQUE_RESPONSE_FIELDS = frozenset({"prompt", "conversation"})


def make_choice() -> ConversionChoice:
    """Conversions of every API that has some, none proven yet."""
    return ConversionChoice(_FORMS)


def find_usual_form(api: Api, engine: Engine | None) -> str | None:
    """The form of an engine's kind; None where nothing is known of it."""
    return None if engine is None else _USUAL.get((api, engine))


def is_converted(api: Api) -> bool:
    """Whether engines turn bodies of this form into chats."""
    return api.value in _FORMS


def is_known(body: RequestBody, form: str | None, chats: KnownChats) -> bool:
    """Whether a body goes on with a chat that was made before, so that little of it has to be converted."""
    member = body.get_raw(_MEMBERS[body.api][1])
    return form is not None and member is not None and chats.find(_name_setting(body, form), member) is not None


def convert(body: RequestBody, form: str | None, chats: KnownChats) -> PromptInput:
    """The prompt of a body as its engine makes it; one without exact credit where that is not known.

    Raises:
        RequestError: Messages, items or tools cannot be read.
    """
    obstacle = "conversion" if form is None else _find_obstacle(body)
    if form is None or obstacle is not None:
        return _without_chat(body, obstacle or "conversion")
    tools = _convert_tools(body, form, chats)
    chat = None if tools is None else _convert_chat(body, form, chats)
    if tools is None or chat is None:
        return _without_chat(body, "conversion")
    choice = body.get("tool_choice")
    reasoning = body.get("output_config" if body.api is Api.MESSAGES else "reasoning")
    more = {"reasoning_effort"} if isinstance(reasoning, dict) and reasoning.get("effort") is not None else set()
    is_named = body.api is Api.MESSAGES and isinstance(choice, dict)
    return msgspec.structs.replace(
        body.prompt_input,
        messages_json=chat,
        tools_json=tools or None,
        prompt=None,
        tool_choice=choice.get("type") if is_named else choice,
        has_made_calls=body.api is Api.RESPONSE,
        field_names=body.prompt_input.field_names | more,
    )


def is_as_long(prompt_tokens: int, usage: Usage) -> bool:
    """Whether a prompt has the length that its engine says, which may leave out what it found in its cache."""
    return prompt_tokens in {usage.prompt_tokens, usage.uncached_tokens}


def _name_setting(body: RequestBody, form: str) -> bytes:
    """What has to be equal for two lists to make the same chat, besides themselves."""
    lead = body.get_raw(_MEMBERS[body.api][0])
    salt = body.prompt_input.cache_salt
    named = f"{body.api.value} {form} {salt if isinstance(salt, str) else ''} "
    return named.encode("utf-8", "surrogatepass") + xxhash.xxh3_128_digest(b"" if lead is None else lead)


def _convert_chat(body: RequestBody, form: str, chats: KnownChats) -> bytes | None:
    """Messages of the chat as JSON; None where they are not known."""
    lead_name, name = _MEMBERS[body.api]
    member = body.get_raw(name)
    if member is None or member[0] != ord("["):
        made = _convert_items(body, form, body.get(lead_name), body.get(name))
        return None if made is None else _encode(made)
    setting = _name_setting(body, form)
    found = chats.find(setting, member)
    if found is not None:
        known, appended = found
        more = [] if appended is None else _convert_items(body, form, None, decode_list(appended, name))
        return None if more is None else _go_on(body, setting, known, more, chats)
    made = _convert_items(body, form, body.get(lead_name), decode_list(member, name))
    if made is None:
        return None
    chat = _encode(made)
    chats.keep(setting, member, chat, is_open=_is_open(body.api, made))
    return chat


def _go_on(body: RequestBody, setting: bytes, known: KnownChat, more: list[Any], chats: KnownChats) -> bytes:
    """The chat of a list that goes on with a known one."""
    member = body.get_raw(_MEMBERS[body.api][1])
    if not more or member is None:
        return known.chat + b"]"
    chat = known.chat + (b"," if len(known.chat) > 1 else b"") + _encode(more)[1:]
    chats.keep(setting, member, chat, is_open=_is_open(body.api, more), after=known)
    return chat


def _is_open(api: Api, messages: list[Any]) -> bool:
    """Whether an item that comes next may become part of the last message."""
    return api is Api.RESPONSE and bool(messages) and messages[-1].get("role") == "assistant"


def _convert_items(body: RequestBody, form: str, lead: Any, items: Any) -> list[Any] | None:
    if body.api is Api.MESSAGES:
        return convert_messages(lead, items, MessagesForm(form))
    return convert_input(lead, items, ResponsesForm(form))


def _convert_tools(body: RequestBody, form: str, chats: KnownChats) -> bytes | None:
    """Definitions of the tools as JSON, empty where there are none; None where they are of another kind."""
    raw = body.get_raw("tools")
    if raw is None or raw[0] != ord("["):
        return b""

    def make() -> bytes | None:
        tools = decode_list(raw, "tools")
        is_message = body.api is Api.MESSAGES
        made = convert_anthropic_tools(tools, MessagesForm(form)) if is_message else convert_response_tools(tools)
        return None if made is None else _encode(made) if made else b""

    return chats.find_tools(f"{body.api.value} {form} ".encode(), raw, make)


def _find_obstacle(body: RequestBody) -> str | None:
    """Why the prompt is the engine's alone; None where it is not."""
    if body.api is Api.MESSAGES:
        thinking = body.get("thinking")
        # Turned off in ways of each engine's own, which templates may show.
        is_off = isinstance(thinking, dict) and thinking.get("type") == "disabled"
        return "opaque_field" if is_off else None
    if body.get("previous_response_id") is not None:
        return "engine_state"
    return None if body.prompt_input.field_names.isdisjoint(_OPAQUE_RESPONSE_FIELDS) else "opaque_field"


def _without_chat(body: RequestBody, reason: str) -> PromptInput:
    """What comes first in the prompt first: chunks of its text still tell conversations apart."""
    known = [body.get(name) for name in _MEMBERS[body.api]]
    tools = body.get("tools")
    return msgspec.structs.replace(
        body.prompt_input,
        messages_json=_encode([piece for piece in known if piece is not None]),
        tools_json=_encode(tools) if isinstance(tools, list) and tools else None,
        prompt=None,
        unrenderable=reason,
    )


def _encode(value: list[Any]) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (ValueError, RecursionError) as error:
        raise RequestError("the messages nest too deep") from error
