"""Turns that go on with a known conversation: found, rendered locally, tokenized from the last cut on.

Sits between the prompter and its parts: which templates may be rendered locally (`append_battery`), what is known
(`conversations`), ids (`tokenizer`). Now and then a local rendering is compared with the full one; a difference ends
local rendering for that template, with a line in the log.
"""

import json
import logging
import threading
from array import array
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import msgspec
import xxhash

from router.prompt.append import Appender, Extension, RenderSetting, TurnState, turn_traits
from router.prompt.append_battery import NEVER, AppendRules, try_template
from router.prompt.conversations import ConversationStore, KnownPart, Messages, TokenRun, TurnEnd
from router.prompt.engine_form import EngineForm
from router.prompt.native import Json, find_roles
from router.prompt.prefixes import read_appended
from router.prompt.request import PromptInput, decode_list
from router.prompt.template import ChatTemplate, TemplateRefused
from router.prompt.tokenizer import TextEncoder

_log = logging.getLogger("dovecote.prompt")
#: Sets of template options whose rules are kept; requests with yet others are rendered in full.
MAX_OPTION_SETS = 16
#: Chats of no more bytes and messages cost half as much rendered anew as gone on with: the ids of what was tokenized
#: before are known by its text. From twice as many messages on it is the other way round.
FEW_BYTES = 16 << 10
FEW_MESSAGES = 8
#: One local rendering in so many is compared with the full one.
CHECK_EVERY = 256


class Lookup(msgspec.Struct, frozen=True):
    """A request's messages, looked for among known conversations."""

    messages: Messages
    #: The known turn that they go on from; None where all of them are new.
    turn: TurnEnd | None


class TurnRenderer:
    """Local rendering for one template and tokenizer. Safe in several threads."""

    def __init__(self, template: ChatTemplate | None, tokenizer: TextEncoder, conversations: ConversationStore) -> None:
        self._template = template
        self._tokenizer = tokenizer
        self._conversations = conversations
        self._appender = Appender(template, tokenizer.cuts) if template is not None and tokenizer.cuts else None
        self._rules: dict[tuple[EngineForm, str], AppendRules] = {}
        self._lock = threading.Lock()
        self._turn_numbers = count(1)
        self._is_trusted = True

    def try_out(self, options: Mapping[str, Any], form: EngineForm) -> AppendRules:
        """The rules for one set of options, found once; 0.3 s the first time, so off the event loop."""
        if self._appender is None or self._template is None or not self._is_trusted:
            return NEVER
        name = form, _name_options(options)
        known = self._rules.get(name)
        if known is not None:
            return known
        with self._lock:
            known = self._rules.get(name)
            if known is None and len(self._rules) < MAX_OPTION_SETS:
                known = self._rules[name] = try_template(self._template, self._appender, RenderSetting(options, form))
        return known or NEVER

    def look_up(self, request: PromptInput) -> Lookup | None:
        """What is known of a request's messages; None where it is of a kind that is always rendered in full."""
        if self._appender is None or request.messages_json is None or request.continues or not self._is_trusted:
            return None
        if request.add_special_tokens is True or _is_short(request.messages_json, request.tools_json):
            return None
        messages = self._conversations.read(_name_setting(request), request.messages_json)
        return Lookup(messages, self._conversations.find(messages))

    def is_check_due(self) -> bool:
        """Counts a turn; whether its local rendering is the one to be compared with the full one."""
        return next(self._turn_numbers) % CHECK_EVERY == 0

    def go_on(
        self, turn: TurnEnd, messages: Messages, request: PromptInput, form: EngineForm, *, checks: bool
    ) -> TokenRun | None:
        """Ids of a turn from those of an earlier one and its new messages; None where it must be rendered in full.

        Args:
            turn: The earlier one.
            messages: Those of the request.
            request: The request.
            form: What the engines do to messages.
            checks: Whether to compare with the full rendering, which takes as long as that.

        Raises:
            RequestError: The new messages cannot be read.
        """
        options = request.read_options()
        rules = self._rules.get((form, _name_options(options)))
        if self._appender is None or rules is None:
            return None
        appended = read_appended(messages.member, turn.length)
        new = [] if appended is None else decode_list(appended, "messages")
        if not all(isinstance(each, Mapping) for each in new) or not rules.allow(turn_traits(turn.known.state, new)):
            return None
        setting = RenderSetting(options, form, turn.known.state.tools)
        try:
            made = self._extend(self._appender, turn, new, setting, request if checks else None)
        except ValueError:
            return None
        if made is None:
            return None
        run, known = made
        self._conversations.put(messages, run, known, after=turn)
        return run

    def _extend(
        self, appender: Appender, turn: TurnEnd, new: Sequence[Mapping[str, Any]], setting: RenderSetting,
        checked: PromptInput | None,
    ) -> tuple[TokenRun, KnownPart] | None:  # fmt: skip
        settled = self._settle(appender, turn, setting)
        if settled is None:
            return None
        state, kept_tokens = settled
        extension = appender.extend(state, new, setting)
        if extension is None:
            return None
        if checked is not None and not self._check(turn.run.ids[:kept_tokens], checked, extension, setting.form):
            return None
        more = self._tokenizer.encode(extension.settled)
        run = turn.run.extend(kept_tokens, more + self._tokenizer.encode(extension.open))
        return run, KnownPart(extension.state, kept_tokens + len(more))

    def _settle(self, appender: Appender, turn: TurnEnd, setting: RenderSetting) -> tuple[TurnState, int] | None:
        """The state of a known turn and its tokens up to the last cut; None where that is unclear."""
        known = turn.known
        if isinstance(known.state, TurnState):
            return known.state, known.tokens
        settled = appender.settle(known.state, setting)
        if settled is None:
            return None
        rest, state = settled
        # What is cut apart is tokenized apart.
        tokens = known.tokens - len(self._tokenizer.encode(rest))
        turn.known = KnownPart(state, tokens)
        return state, tokens

    def start(
        self, text: str, messages: Sequence[Mapping[str, Any]], request: PromptInput, form: EngineForm,
        lookup: Lookup | None,
    ) -> TokenRun:  # fmt: skip
        """Ids of a conversation rendered in full, which is then known.

        Raises:
            ValueError: The text has no UTF-8 form, or the tokenizer fails on it.
        """
        run = TokenRun(self._tokenizer.encode(text))
        options = request.read_options()
        if self._appender is None or lookup is None or not self.try_out(options, form).tried:
            return run
        opening = self._appender.open(text, messages, _setting(request, options, form))
        if opening is not None:
            known = KnownPart(opening, len(run.ids))
            self._conversations.put(lookup.messages, run, known, instead_of=lookup.turn)
        return run

    def _check(self, known: "array[int]", request: PromptInput, extension: Extension, form: EngineForm) -> bool:
        """Whether the full rendering gives the same ids; where not, nothing is rendered locally any more."""
        if self._template is None:
            return False
        try:
            text = self._template.render(
                request.read_messages(), request.read_tools(), request.read_options(), form=form
            )
        except TemplateRefused:
            return False
        if known + self._tokenizer.encode(extension.settled + extension.open) == self._tokenizer.encode(text):
            return True
        self._is_trusted = False
        self._conversations.clear()
        _log.error("local_rendering_ended reason='its text differs from the full one'")
        return False


def _is_short(messages: Json, tools: Json | None) -> bool:
    size_bytes = len(messages) + (0 if tools is None else len(tools))
    return size_bytes <= FEW_BYTES and len(find_roles(messages, FEW_MESSAGES + 1)) <= FEW_MESSAGES


def _setting(request: PromptInput, options: Mapping[str, Any], form: EngineForm) -> RenderSetting:
    tools = request.read_tools()
    return RenderSetting(options, form, None if tools is None else (tools[0],))


def _name_setting(request: PromptInput) -> bytes:
    """What has to be equal for two requests to be of one conversation, besides their messages."""
    # Tenants have salts: how long a prompt takes here must not tell one what another one sent.
    salt = request.cache_salt if isinstance(request.cache_salt, str) else ""
    tools = request.tools_json if request.tools_json is not None else request.tools
    if tools is None and not (request.template_options or salt or request.has_made_calls):
        return b""
    tools_json: Json = request.tools_json if request.tools_json is not None else msgspec.json.encode(request.tools)
    options = json.dumps(request.template_options, sort_keys=True, default=str).encode()
    made = b"\1" if request.has_made_calls else b"\0"
    return xxhash.xxh3_128_digest(tools_json) + options + made + salt.encode("utf-8", "surrogatepass")


def _name_options(options: Mapping[str, Any]) -> str:
    kept = {name: value for name, value in options.items() if name != "add_generation_prompt"}
    return json.dumps(kept, sort_keys=True, default=str) if kept else ""
