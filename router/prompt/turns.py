"""Turns that go on with a known conversation: found, rendered locally, tokenized from the last cut on.

Sits between the prompter and its parts: which templates may be rendered locally (`append_battery`), what is known
(`conversations`), ids (`tokenizer`). Now and then a local rendering is compared with the full one; a difference ends
local rendering for that template, with a line in the log.
"""

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import msgspec
import xxhash

from router.prompt.append import Appender, Extension, RenderSetting, turn_traits
from router.prompt.append_battery import NEVER, AppendRules, try_template
from router.prompt.conversations import ConversationStore, TokenRun, TurnEnd
from router.prompt.engine_form import EngineForm
from router.prompt.native import Json
from router.prompt.prefixes import read_appended
from router.prompt.request import PromptInput, decode_list
from router.prompt.template import ChatTemplate, TemplateRefused
from router.prompt.tokenizer import TextEncoder

_log = logging.getLogger("dovecote.prompt")
#: Sets of template options whose rules are kept; requests with yet others are rendered in full.
MAX_OPTION_SETS = 16
#: One local rendering in so many is compared with the full one.
CHECK_EVERY = 256


class TurnRenderer:
    """Local rendering for one template and tokenizer. Safe in several threads."""

    def __init__(self, template: ChatTemplate | None, tokenizer: TextEncoder, conversations: ConversationStore) -> None:
        self._template = template
        self._tokenizer = tokenizer
        self._conversations = conversations
        self._appender = Appender(template, tokenizer.cuts) if template is not None and tokenizer.cuts else None
        self._rules: dict[str, AppendRules] = {}
        self._lock = threading.Lock()
        self._turn_numbers = count(1)
        self._is_trusted = True

    def try_out(self, options: Mapping[str, Any], form: EngineForm) -> AppendRules:
        """The rules for one set of options, found once; 0.3 s the first time, so off the event loop."""
        if self._appender is None or self._template is None or not self._is_trusted:
            return NEVER
        name = _name_options(options, form)
        with self._lock:
            known = self._rules.get(name)
            if known is None and len(self._rules) < MAX_OPTION_SETS:
                known = self._rules[name] = try_template(self._template, self._appender, RenderSetting(options, form))
        return known or NEVER

    def find(self, request: PromptInput) -> TurnEnd | None:
        """The known turn that a request goes on from."""
        if self._appender is None or request.messages_json is None or request.continues or not self._is_trusted:
            return None
        if request.add_special_tokens is True:
            return None
        return self._conversations.find(_name_setting(request), request.messages_json)

    def is_check_due(self) -> bool:
        """Counts a turn; whether its local rendering is the one to be compared with the full one."""
        return next(self._turn_numbers) % CHECK_EVERY == 0

    def go_on(self, turn: TurnEnd, request: PromptInput, form: EngineForm, *, checks: bool) -> TokenRun | None:
        """Ids of a turn from those of an earlier one and its new messages; None where it must be rendered in full.

        Args:
            turn: The earlier one.
            request: The request.
            form: What the engines do to messages.
            checks: Whether to compare with the full rendering, which takes as long as that.

        Raises:
            RequestError: The new messages cannot be read.
        """
        member = request.messages_json
        options = request.read_options()
        rules = self._rules.get(_name_options(options, form))
        if self._appender is None or rules is None or member is None:
            return None
        appended = read_appended(member, turn.length)
        new = [] if appended is None else decode_list(appended, "messages")
        if not all(isinstance(message, Mapping) for message in new) or not rules.allow(turn_traits(turn.state, new)):
            return None
        extension = self._appender.extend(turn.state, new, RenderSetting(options, form, turn.state.tools))
        if extension is None:
            return None
        try:
            if checks and not self._check(turn, request, extension, form):
                return None
            settled = self._tokenizer.encode(extension.settled)
            run = turn.run.extend(turn.kept_tokens, settled + self._tokenizer.encode(extension.open))
        except ValueError:
            return None
        kept = turn.kept_tokens + len(settled)
        self._conversations.put(_name_setting(request), member, run, kept, extension.state, after=turn)
        return run

    def start(
        self, text: str, messages: Sequence[Mapping[str, Any]], request: PromptInput, form: EngineForm,
        turn: TurnEnd | None,
    ) -> TokenRun:  # fmt: skip
        """Ids of a conversation rendered in full, which is then known.

        Raises:
            ValueError: The text has no UTF-8 form, or the tokenizer fails on it.
        """
        options = request.read_options()
        member = request.messages_json
        settled = None
        if self._appender is not None and member is not None and self.try_out(options, form).tried:
            settled = self._appender.settle(text, messages, _setting(request, options, form))
        if settled is None or member is None:
            return TokenRun(self._tokenizer.encode(text))
        cut, state = settled
        head = self._tokenizer.encode(text[:cut])
        run = TokenRun(head + self._tokenizer.encode(text[cut:]))
        self._conversations.put(_name_setting(request), member, run, len(head), state, instead_of=turn)
        return run

    def _check(self, turn: TurnEnd, request: PromptInput, extension: Extension, form: EngineForm) -> bool:
        """Whether the full rendering gives the same ids; where not, nothing is rendered locally any more."""
        if self._template is None:
            return False
        try:
            text = self._template.render(
                request.read_messages(), request.read_tools(), request.read_options(), form=form
            )
        except TemplateRefused:
            return False
        known = turn.run.ids[: turn.kept_tokens]
        if known + self._tokenizer.encode(extension.settled + extension.open) == self._tokenizer.encode(text):
            return True
        self._is_trusted = False
        self._conversations.clear()
        _log.error("local_rendering_ended reason='its text differs from the full one'")
        return False


def _setting(request: PromptInput, options: Mapping[str, Any], form: EngineForm) -> RenderSetting:
    tools = request.read_tools()
    return RenderSetting(options, form, None if tools is None else (tools[0],))


def _name_setting(request: PromptInput) -> bytes:
    """What has to be equal for two requests to be of one conversation, besides their messages."""
    tools: Json = request.tools_json if request.tools_json is not None else msgspec.json.encode(request.tools)
    options = json.dumps(request.template_options, sort_keys=True, default=str).encode()
    # Tenants have salts: how long a prompt takes here must not tell one what another one sent.
    salt = request.cache_salt if isinstance(request.cache_salt, str) else ""
    made = b"\1" if request.has_made_calls else b"\0"
    return xxhash.xxh3_128_digest(tools) + options + made + salt.encode("utf-8", "surrogatepass")


def _name_options(options: Mapping[str, Any], form: EngineForm) -> str:
    kept = {name: value for name, value in options.items() if name != "add_generation_prompt"}
    return json.dumps([kept, msgspec.to_builtins(form)], sort_keys=True, default=str)
