"""Bodies that engines turn into a chat before they render it: the same is done here, so that their prompts are known.

The chat is encoded anew, so that one that goes on with a known conversation begins with the bytes of that one and
costs what is new in it. What is not converted is placed by its text, without exact credit.
"""

from typing import Any

import msgspec

from router.errors import RequestError
from router.prompt import PromptInput
from router.prompt.anthropic_form import MessagesForm, convert_messages
from router.prompt.anthropic_form import convert_tools as convert_anthropic_tools
from router.prompt.conversion_choice import ConversionChoice
from router.prompt.responses_form import convert_input
from router.prompt.responses_form import convert_tools as convert_response_tools
from router.proxy.api import Api
from router.proxy.body import RequestBody
from router.proxy.sse import Usage

#: The one conversion of `/v1/responses`.
RESPONSES_FORM = "responses"
_FORMS = {Api.MESSAGES.value: tuple(MessagesForm), Api.RESPONSE.value: (RESPONSES_FORM,)}
#: Members of a response that change its prompt in ways only the engine knows.
_OPAQUE_RESPONSE_FIELDS = frozenset({"prompt", "conversation"})


def make_choice() -> ConversionChoice:
    """Conversions of every API that has some, none proven yet."""
    return ConversionChoice(_FORMS)


def is_converted(api: Api) -> bool:
    """Whether engines turn bodies of this form into chats."""
    return api.value in _FORMS


def convert(body: RequestBody, form: str | None) -> PromptInput:
    """The prompt of a body as its engine makes it; one without exact credit where that is not known.

    Raises:
        RequestError: Messages or tools cannot be read.
    """
    tools = body.get("tools")
    if body.api is Api.MESSAGES:
        messages = body.prompt_input.read_messages()
        made = None if form is None else _convert_messages(body, messages, tools, MessagesForm(form))
        return made or _without_chat(body, [body.get("system"), messages], tools, "conversion")
    given, obstacle = body.prompt_input.prompt, _find_obstacle(body)
    made = None if form is None or obstacle is not None else _convert_response(body, given, tools)
    return made or _without_chat(body, [body.get("instructions"), given], tools, obstacle or "conversion")


def is_as_long(prompt_tokens: int, usage: Usage) -> bool:
    """Whether a prompt has the length that its engine says, which may leave out what it found in its cache."""
    return prompt_tokens in {usage.prompt_tokens, usage.uncached_tokens}


def _convert_messages(body: RequestBody, messages: Any, tools: Any, form: MessagesForm) -> PromptInput | None:
    chat = convert_messages(body.get("system"), messages, form)
    definitions = convert_anthropic_tools(tools, form) if isinstance(tools, list) else []
    if chat is None or definitions is None:
        return None
    choice = body.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else None
    return _as_chat(body, chat, definitions, tool_choice=kind)


def _convert_response(body: RequestBody, given: Any, tools: Any) -> PromptInput | None:
    chat = convert_input(body.get("instructions"), given)
    definitions = convert_response_tools(tools) if isinstance(tools, list) else []
    if chat is None or definitions is None:
        return None
    reasoning = body.get("reasoning")
    more = {"reasoning_effort"} if isinstance(reasoning, dict) and reasoning.get("effort") is not None else set()
    return _as_chat(body, chat, definitions, tool_choice=body.get("tool_choice"), more_fields=more)


def _find_obstacle(body: RequestBody) -> str | None:
    """Why the prompt of a response is the engine's alone; None where it is not."""
    if body.get("previous_response_id") is not None:
        return "engine_state"
    return None if body.prompt_input.field_names.isdisjoint(_OPAQUE_RESPONSE_FIELDS) else "opaque_field"


def _as_chat(
    body: RequestBody, chat: list[Any], tools: list[Any], *, tool_choice: Any, more_fields: set[str] | None = None
) -> PromptInput:
    return msgspec.structs.replace(
        body.prompt_input,
        messages_json=_encode(chat),
        tools_json=_encode(tools) if tools else None,
        prompt=None,
        tool_choice=tool_choice,
        field_names=body.prompt_input.field_names | (more_fields or set()),
    )


def _without_chat(body: RequestBody, known: list[Any], tools: Any, reason: str) -> PromptInput:
    """What comes first in the prompt first: chunks of its text still tell conversations apart."""
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
