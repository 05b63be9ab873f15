"""The one value that every trace form and the generator yield: an agent session, turn by turn.

A turn says which parts of the previous prompt it keeps and which it adds, so a session of
hundreds of growing prompts costs memory for its text once. Pure: no clock, no input or output.
"""

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct


class PromptForm(StrEnum):
    """How the prompts of a session travel: as chat messages or as one flat text."""

    CHAT = "chat"
    TEXT = "text"


class ToolCall(Struct, frozen=True):
    """One tool call of an assistant message, arguments as the JSON text the model wrote."""

    call_id: str
    name: str
    arguments: str

    def as_json(self) -> dict[str, object]:
        """The OpenAI chat form of this call."""
        return {"id": self.call_id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


class Message(Struct, frozen=True):
    """One chat message, or (in a text session) one piece of the flat prompt.

    Args:
        role: system, user, assistant or tool; empty in a text session.
        content: The text; None only where an assistant message holds tool calls alone.
        tool_calls: The calls of an assistant message.
        tool_call_id: In a tool message, the call it answers.
        name: In a tool message, the tool's name.
    """

    role: str
    content: str | None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    def as_json(self) -> dict[str, object]:
        """The OpenAI chat form of this message."""
        body: dict[str, object] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            body["tool_calls"] = [call.as_json() for call in self.tool_calls]
        if self.tool_call_id is not None:
            body["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            body["name"] = self.name
        return body


class AnswerSlot(Struct, frozen=True):
    """Stands where the answer that the fleet gave to the turn before goes into the history."""


Part = Message | AnswerSlot


class Turn(Struct, frozen=True):
    """One request of a session: what it keeps of the previous prompt, what it adds, and the recorded sizes."""

    #: Pause before the request since the previous answer ended, seconds, already scaled.
    think_s: float
    #: Model named in the trace; equal text of two models must never share cache, so it also seeds synthetic text.
    model: str
    #: Parts of the previous prompt that stay, counted from its start; the rest of it is dropped.
    kept_parts: int
    #: Parts that follow the kept ones.
    added: tuple[Part, ...]
    #: Size of the whole prompt and of what the previous prompt did not hold, in tokens, scaled; an estimate for text.
    prompt_tokens: int
    new_tokens: int
    #: Tokens to ask for, scaled, at least 1.
    output_tokens: int


class Session(Struct, frozen=True):
    """An agent's requests in order, with the sub-agents that hang on them."""

    session_id: str
    #: Session that spawned this one; None at the top.
    parent: str | None
    form: PromptForm
    turns: tuple[Turn, ...]
    agents: tuple["SubAgent", ...] = ()

    def walk(self) -> Iterator["Session"]:
        """This session and all sessions below it, parents first."""
        yield self
        for agent in self.agents:
            yield from agent.session.walk()


class SubAgent(Struct, frozen=True):
    """A session spawned by another one."""

    #: Index of the parent's turn whose answer starts this agent.
    after_turn: int
    #: Pause between that answer and the agent's first request, seconds, scaled.
    delay_s: float
    #: True when the parent's next request waits for this agent to end.
    blocking: bool
    session: Session


class TraceScale(Struct, frozen=True):
    """How a trace is made smaller; every loader and the generator apply it while reading."""

    #: Multiplies prompt and output lengths, above 0 and at most 1.
    prompt_ratio: float = 1.0
    #: Multiplies pauses, at least 0.
    time_ratio: float = 1.0
    #: Longest pause kept, seconds, after scaling.
    max_think_s: float = 3600.0
    #: Longer prompts are left out, in tokens after scaling; None keeps all.
    max_prompt_tokens: int | None = None
    #: A top session begins with its first prompt of at least this size, in tokens after scaling.
    min_first_tokens: int = 0
    #: Longest answer asked for, in tokens after scaling; None keeps all.
    max_output_tokens: int | None = None
    #: Requests kept of each agent, its first ones; None keeps all.
    max_turns: int | None = None

    def tokens(self, recorded_tokens: int) -> int:
        """A recorded length after scaling, at least one token."""
        return max(1, round(recorded_tokens * self.prompt_ratio))

    def answer_tokens(self, recorded_tokens: int) -> int:
        """A recorded length of an answer after scaling, at least one token."""
        scaled_tokens = self.tokens(recorded_tokens)
        return scaled_tokens if self.max_output_tokens is None else min(scaled_tokens, self.max_output_tokens)

    def pause_s(self, recorded_s: float) -> float:
        """A recorded pause after scaling."""
        return min(max(recorded_s, 0.0) * self.time_ratio, self.max_think_s)

    def takes_prompt(self, prompt_tokens: int) -> bool:
        """Whether a prompt of this scaled size is short enough to be kept."""
        return self.max_prompt_tokens is None or prompt_tokens <= self.max_prompt_tokens

    def takes_turn(self, turns_so_far: int) -> bool:
        """Whether an agent that has this many turns may have one more."""
        return self.max_turns is None or turns_so_far < self.max_turns
