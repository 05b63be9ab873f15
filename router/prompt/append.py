"""What a template makes of messages appended to a known conversation, rendered from a few of its messages alone. Pure.

Takes the state of a known conversation and its new messages, gives the text after the known part's last cut, or
nothing where that cannot be told locally. The few messages are those that templates look back at: the first system
message, the last question, what follows the last answer. Which conversations a template treats so is not believed:
`router.prompt.append_battery` tries, and what fails there is rendered in full.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from router.prompt.added import Cuts
from router.prompt.engine_form import EngineForm
from router.prompt.template import ChatTemplate, TemplateRefused

Message = Mapping[str, Any]
#: Longest run of messages after the last answer that is rendered locally.
MAX_CONTEXT_MESSAGES = 64
#: Cuts at a text's end of which one is where the part ends that stays: a generation prompt has some of its own.
TAIL_CUTS = 8
_FIELDS = frozenset({"role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content", "reasoning"})
#: Roles that the battery tries.
ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
#: How a question begins that templates may take for a tool's result.
_RESPONSES = ("<tool_response>", "\n<tool_response>", " <tool_response>")
#: A trait that no battery covers.
OTHER = "other"


class TurnState(msgspec.Struct, frozen=True):
    """What has to be kept of a conversation to render what is appended to it."""

    context: tuple[Message, ...]
    traits: frozenset[str]
    #: Text between the last cut and the end, generation prompt apart.
    leftover: str
    #: The tool definition that stands for all.
    tools: tuple[Any, ...] | None = None


class Opening(msgspec.Struct, frozen=True):
    """A conversation rendered in full, of which nobody asked yet where the part ends that stays; see `settle`.

    Most conversations end with their first request: what this takes is rendered for those that go on.
    """

    context: tuple[Message, ...]
    traits: frozenset[str]
    #: The text's end, generation prompt and all, from one of its last cuts on.
    tail: str
    #: Whether that is all of the text, and whether it ends with a generation prompt.
    is_whole: bool
    asks: bool
    #: As in `TurnState`.
    tools: tuple[Any, ...] | None = None


class Extension(msgspec.Struct, frozen=True):
    """The text after the last cut of the known part, in two pieces."""

    #: Up to the last cut of the new conversation without its generation prompt.
    settled: str
    #: The rest; may change with the next turn.
    open: str
    state: TurnState


class RenderSetting(msgspec.Struct, frozen=True):
    """What stays the same within a conversation."""

    options: Mapping[str, Any]
    form: EngineForm
    #: One tool definition standing for all; None without tools.
    tools: tuple[Any, ...] | None = None

    def renders_generation(self) -> bool:
        """Whether the generation prompt is wanted."""
        return self.options.get("add_generation_prompt", True) is not False


def read_traits(messages: Sequence[Message], *, has_start: bool) -> frozenset[str]:
    """What about messages a template may treat in its own way.

    Args:
        messages: Consecutive messages.
        has_start: Whether the first one starts the conversation.
    """
    traits: set[str] = set()
    role = None
    for place, message in enumerate(messages):
        before, role = role, message.get("role")
        traits |= _read_message(message)
        if role == "system" and (place or not has_start):
            traits.add("late_system")
        if role == "tool" and before == "tool":
            traits.add("results_in_a_row")
    return frozenset(traits)


def _read_message(message: Message) -> set[str]:
    role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
    traits = {str(role) if role in ROLES else OTHER}
    if any(value is not None and name not in _FIELDS for name, value in message.items()):
        traits.add(OTHER)
    if content is None or isinstance(content, list):
        traits.add("null" if content is None else "parts")
    elif not isinstance(content, str) or (role == "user" and content.startswith(_RESPONSES)):
        traits.add(OTHER)
    if message.get("name") is not None and role != "tool":
        traits.add("name")
    if calls:
        traits |= {"calls"} | ({"many_calls"} if isinstance(calls, list) and len(calls) > 1 else set())
        traits |= {"calls_with_text"} if content else set()
    if message.get("reasoning_content") or message.get("reasoning") or (role == "assistant" and _thinks(content)):
        traits.add("reasoning")
    return traits


def _thinks(content: Any) -> bool:
    if isinstance(content, str):
        return "think" in content and ("<think" in content or "</think" in content)
    parts = content if isinstance(content, list) else ()
    return any(isinstance(part, Mapping) and _thinks(part.get("text")) for part in parts)


def shrink(messages: Sequence[Message]) -> tuple[Message, ...] | None:
    """The messages that templates look back at; None where there are too many."""
    roles = [message.get("role") for message in messages]
    answer = max((place for place, role in enumerate(roles) if role == "assistant"), default=0)
    question = max((place for place, role in enumerate(roles[:answer]) if role == "user"), default=None)
    if len(messages) - answer > MAX_CONTEXT_MESSAGES:
        return None
    kept = {0} if roles and roles[0] in ("system", "developer") else set()
    kept |= set() if question is None else {question}
    return tuple(messages[place] for place in sorted(kept | set(range(answer, len(messages)))))


class Appender:
    """Renders what is appended, for one template and the cuts of its tokenizer."""

    def __init__(self, template: ChatTemplate, cuts: Cuts) -> None:
        self._template = template
        self._cuts = cuts

    def open(self, text: str, messages: Sequence[Message], setting: RenderSetting) -> Opening | None:
        """What is kept of a conversation rendered in full; None where too much of it would have to be.

        Args:
            text: The conversation.
            messages: All of it.
            setting: How it was rendered.
        """
        context = shrink(messages)
        if context is None:
            return None
        cut = self._cuts.find_late(text, TAIL_CUTS)
        traits = read_traits(messages, has_start=True) | ({"tools"} if setting.tools else set())
        return Opening(context, traits, text[cut:], cut == 0, setting.renders_generation(), setting.tools)

    def settle(self, opening: Opening, setting: RenderSetting) -> tuple[str, TurnState] | None:
        """The text behind the part of a conversation that stays, and the state; None where that is unclear.

        Args:
            opening: The conversation.
            setting: How it was rendered.
        """
        plain, asking = self._render_both(opening.context, setting, asks=opening.asks)
        if plain is None or asking is None or not asking.startswith(plain):
            return None
        tail = opening.tail
        end = len(tail) - (len(asking) - len(plain))
        if end < 0 or not tail.endswith(asking[len(plain) :]):
            return None
        cut = self._cuts.find_last(tail[:end])
        leftover = tail[cut:end]
        if (opening.is_whole and cut == 0) or plain[self._cuts.find_last(plain) :] != leftover:
            return None
        return tail[cut:], TurnState(opening.context, opening.traits, leftover, setting.tools)

    def extend(self, state: TurnState, new: Sequence[Message], setting: RenderSetting) -> Extension | None:
        """The new end of a conversation; None where the known part would change or that cannot be told."""
        messages = (*state.context, *new)
        context = shrink(messages)
        before = self._render(state.context, setting, asks=False)
        plain, asking = self._render_both(messages, setting, asks=setting.renders_generation())
        if context is None or before is None or plain is None or asking is None:
            return None
        cut = self._cuts.find_last(before)
        if cut == 0 or before[cut:] != state.leftover:
            return None
        if not (plain.startswith(before[:cut]) and asking.startswith(before[:cut])):
            return None
        last = self._cuts.find_last(plain)
        if last < cut or not asking.startswith(plain[:last]):
            return None
        traits = state.traits | read_traits((messages[len(state.context) - 1], *new), has_start=False)
        return Extension(asking[cut:last], asking[last:], TurnState(context, traits, plain[last:], setting.tools))

    def _render_both(
        self, messages: Sequence[Message], setting: RenderSetting, *, asks: bool
    ) -> tuple[str | None, str | None]:
        """Without the generation prompt, and with it where it is asked for."""
        plain = self._render(messages, setting, asks=False)
        return plain, self._render(messages, setting, asks=True) if asks else plain

    def _render(self, messages: Sequence[Message], setting: RenderSetting, *, asks: bool) -> str | None:
        options = {**setting.options, "add_generation_prompt": asks}
        try:
            return self._template.render(messages, setting.tools, options, form=setting.form)
        except TemplateRefused:
            return None


def turn_traits(state: TurnState | Opening, new: Iterable[Message]) -> frozenset[str]:
    """Traits of a turn: those of the whole conversation, how the known part ends, who speaks in the new one."""
    messages = tuple(new)
    last = state.context[-1].get("role") if state.context else None
    seen = read_traits((*state.context[-1:], *messages), has_start=False)
    return state.traits | seen | {f"after:{last}"} | {f"new:{message.get('role')}" for message in messages}
