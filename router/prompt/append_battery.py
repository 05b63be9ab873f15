"""Which conversations a template only ever appends to, found by trying.

Takes a template, renders a battery of conversations turn by turn both ways, gives the combinations of traits under
which the local way was wrong. A turn with such a combination among its traits, or with a trait that the battery
lacks, is rendered in full. The same template always gives the same: chance is drawn from a fixed seed.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import msgspec

from router.prompt.append import OTHER, ROLES, Appender, Message, RenderSetting, TurnState, turn_traits
from router.prompt.template import ChatTemplate, LimitExceeded, TemplateRefused

_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}},
}
_SECOND_TOOL = {**_TOOL, "function": {**_TOOL["function"], "name": "g"}}
#: A word a message: what the battery's conversations are written in.
_SCRIPTS = (
    "U A U A U", "S U C R A U C R C R A U", "U B R R A U B R R C R U", "S U X R A U X R X R", "U T U T U",
    "U D R D R T U D R A U", "U H U H U", "U P A P U", "U A S U A U", "N A N A N", "S U I R R U", "U A A U", "U U A U",
    "U A R U", "U Z U Z", "U K R K R A U", "V U A U", "V U C R A U", "U D R C R U", "U D R C R A U", "U H C R A U",
    "U T A U", "S U D R A U C R U",
)  # fmt: skip
_RANDOM_CONVERSATIONS = 10
_RANDOM_MESSAGES = 9
#: What may be said after a word.
_REPLIES = {"U": "AACCBDTHXKIU", "R": "RAACDTU", "C": "R", "A": "UUUNP"}
_APPENDED = (1, 2)
#: Traits by which a combination that went wrong is known again; dropping the others only makes it wider.
_TELLING = frozenset({"calls", "tool", "reasoning", "late_system"} | {f"new:{role}" for role in ROLES})


class AppendRules(msgspec.Struct, frozen=True):
    """When a turn may be rendered locally."""

    #: Combinations of traits under which it went wrong.
    wrong: tuple[frozenset[str], ...]
    #: Traits that were tried at all.
    tried: frozenset[str]

    def allow(self, traits: frozenset[str]) -> bool:
        """Whether turns of these traits came out right."""
        return traits <= self.tried and not any(combination <= traits for combination in self.wrong)


NEVER = AppendRules((), frozenset())


def try_template(template: ChatTemplate, appender: Appender, setting: RenderSetting) -> AppendRules:
    """Try a template with the options and the form of a setting."""
    if template.reads_clock:
        return NEVER
    try:
        return _try_conversations(template, appender, setting)
    except LimitExceeded:
        return NEVER


def _try_conversations(template: ChatTemplate, appender: Appender, setting: RenderSetting) -> AppendRules:
    wrong: set[frozenset[str]] = set()
    tried: set[str] = set()
    for messages, tools in _iter_conversations():
        inner = msgspec.structs.replace(setting, tools=None if tools is None else (tools[0],))
        for traits, right in _try_conversation(template, appender, inner, messages, tools):
            tried |= traits if right else set()
            wrong |= set() if right else {traits & _TELLING}
    return AppendRules(_smallest(wrong), frozenset(tried) - {OTHER})


def _try_conversation(
    template: ChatTemplate, appender: Appender, setting: RenderSetting, messages: list[Message], tools: Any
) -> Iterator[tuple[frozenset[str], bool]]:
    """Traits of every turn that would be rendered locally, and whether it came out right."""
    texts = [_render(template, messages[:count], tools, setting) for count in range(len(messages) + 1)]
    for known in range(1, len(messages)):
        before = texts[known]
        settled = None if before is None else _settle(appender, before, messages[:known], setting)
        if before is None or settled is None:
            continue
        rest, state = settled
        kept = before.removesuffix(rest)
        for count in (known + appended for appended in _APPENDED if known + appended <= len(messages)):
            new, full = messages[known:count], texts[count]
            extension = None if full is None else appender.extend(state, new, setting)
            if extension is not None:
                yield turn_traits(state, new), kept + extension.settled + extension.open == full


def _settle(
    appender: Appender, text: str, messages: Sequence[Message], setting: RenderSetting
) -> tuple[str, TurnState] | None:
    opening = appender.open(text, messages, setting)
    return None if opening is None else appender.settle(opening, setting)


def _render(
    template: ChatTemplate, messages: Sequence[Message], tools: Sequence[Any] | None, setting: RenderSetting
) -> str | None:
    try:
        return template.render(messages, tools, setting.options, form=setting.form)
    except LimitExceeded:
        raise
    except TemplateRefused:
        return None


def _smallest(combinations: set[frozenset[str]]) -> tuple[frozenset[str], ...]:
    """Those that contain no other one."""
    kept: list[frozenset[str]] = []
    for combination in sorted(combinations, key=len):
        if not any(smaller <= combination for smaller in kept):
            kept.append(combination)
    return tuple(kept)


def _iter_conversations() -> Iterator[tuple[list[Message], list[Any] | None]]:
    rng = Random(0)
    scripts = [*(script.split() for script in _SCRIPTS), *(_improvise(rng) for _ in range(_RANDOM_CONVERSATIONS))]
    for script in scripts:
        messages = [_say(word, place) for place, word in enumerate(script)]
        yield messages, None
        if "R" in script:
            yield messages, [_TOOL, _SECOND_TOOL]


def _improvise(rng: Random) -> list[str]:
    script = ["S", "U"] if rng.random() < 0.5 else ["U"]
    while len(script) < _RANDOM_MESSAGES:
        last = script[-1]
        kind = "C" if last in "CBDXKI" else "A" if last in "ATH" else "R" if last == "R" else "U"
        script.append(rng.choice(_REPLIES[kind]))
        if script[-1] in "BI":
            script += ["R", "R"]
    return script


def _say(word: str, place: int) -> Message:
    """One message of the battery; the place makes texts differ."""
    text = f" said {place}.\n"
    match word:
        case "U" | "N" | "P" | "Z":
            content: Any = [{"type": "text", "text": text}] if word == "P" else "" if word == "Z" else text
            return {"role": "user", "content": content} | ({"name": "n"} if word == "N" else {})
        case "S" | "V":
            return {"role": "system" if word == "S" else "developer", "content": text}
        case "R":
            return {"role": "tool", "tool_call_id": f"c{place}", "content": text}
        case "A" | "H":
            return {"role": "assistant", "content": f"<think>\nhm {place}\n</think>\n\n{text}" if word == "H" else text}
        case "T":
            return {"role": "assistant", "content": text, "reasoning_content": f"hm {place}"}
        case _:
            return _call(word, place, text)


def _call(word: str, place: int, text: str) -> Message:
    """An answer with tool calls: bare, null content, with text, several, with reasoning."""
    calls = [
        {"id": f"c{place}{number}", "type": "function", "function": {"name": "f", "arguments": f'{{"n": {place}}}'}}
        for number in range(2 if word in ("B", "I") else 1)
    ]
    content = None if word in ("X", "I") else text if word in ("B", "K") else ""
    message = {"role": "assistant", "content": content, "tool_calls": calls}
    return message | ({"reasoning_content": f"hm {place}"} if word == "D" else {})
