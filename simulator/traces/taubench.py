"""tau-bench trajectories (chat messages with tool calls, one task a line) as sessions.

Each agent call is the messages before an assistant message; the trace's own assistant message then
goes into the history. The files hold no times: a call that follows a tool result comes after the
median pause of coding agents, one that follows a person's words after their 90th percentile
(4 / 10 / 157 s are the 10th, 50th and 90th percentile of the Weka corpus).
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from simulator.traces.lines import Line, TraceError
from simulator.traces.session import Message, PromptForm, Session, ToolCall, TraceScale, Turn
from simulator.traces.words import estimate_tokens, thin_text

EXPECTED = "a tau-bench task: task_id, traj[{role, content, tool_calls?, tool_call_id?, name?}]"
TOOL_PAUSE_S = 10.0
PERSON_PAUSE_S = 157.0
#: Longest trajectory accepted, in messages.
MAX_MESSAGES = 10_000
MODEL = "recorded"
ROLES = frozenset({"system", "user", "assistant", "tool"})


class RecordedFunction(Struct):
    """Name and arguments of a recorded tool call."""

    name: str
    arguments: str


class RecordedCall(Struct):
    """One entry of `tool_calls`."""

    id: str
    function: RecordedFunction


class RecordedMessage(Struct):
    """One entry of `traj`."""

    role: str
    content: str | None = None
    tool_calls: list[RecordedCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class Trajectory(Struct):
    """One line of the file."""

    traj: list[RecordedMessage]
    task_id: int | str
    trial: Any = 0


def read_taubench(lines: Iterator[Line], scale: TraceScale) -> Iterator[Session]:
    """The trajectories of the file in its order; those without an agent call are left out."""
    for line in lines:
        recorded = line.decode(Trajectory, EXPECTED)
        _check(line, recorded)
        turns = _read_turns(recorded.traj, scale)
        if turns:
            session_id = f"task-{recorded.task_id}-trial-{recorded.trial}-line-{line.number}"
            yield Session(session_id, None, PromptForm.CHAT, turns)


def _check(line: Line, recorded: Trajectory) -> None:
    if len(recorded.traj) > MAX_MESSAGES:
        raise TraceError(line.path, line.number, f"the trajectory has more than {MAX_MESSAGES} messages")
    for place, message in enumerate(recorded.traj):
        if message.role not in ROLES:
            expected = f"expected one of {', '.join(sorted(ROLES))}"
            raise TraceError(line.path, line.number, f"traj[{place}].role is {message.role!r}; {expected}")


def _read_turns(messages: list[RecordedMessage], scale: TraceScale) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    waiting: list[Message] = []
    kept_parts = prompt_chars = 0
    for place, recorded in enumerate(messages):
        message = _as_message(recorded, scale)
        if recorded.role == "assistant" and place > 0 and waiting:
            new_chars = sum(map(_chars, waiting))
            prompt_chars += new_chars
            if not scale.takes_prompt(estimate_tokens(prompt_chars)) or not scale.takes_turn(len(turns)):
                break
            answer_tokens = scale.answer_tokens(estimate_tokens(_chars(message)))
            pause_s = _pause_s(messages[place - 1], scale) if turns else 0.0
            sizes = (estimate_tokens(prompt_chars), estimate_tokens(new_chars), answer_tokens)
            turns.append(Turn(pause_s, MODEL, kept_parts, tuple(waiting), *sizes))
            kept_parts += len(waiting)
            waiting = []
        waiting.append(message)
    return tuple(turns)


def _as_message(recorded: RecordedMessage, scale: TraceScale) -> Message:
    content = None if recorded.content is None else thin_text(recorded.content, scale.prompt_ratio)
    calls = tuple(ToolCall(c.id, c.function.name, c.function.arguments) for c in recorded.tool_calls or ())
    if content is None and not calls:
        content = ""
    return Message(recorded.role, content, calls, recorded.tool_call_id, recorded.name)


def _pause_s(last: RecordedMessage, scale: TraceScale) -> float:
    return scale.pause_s(PERSON_PAUSE_S if last.role == "user" else TOOL_PAUSE_S)


def _chars(message: Message) -> int:
    return len(message.content or "") + sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
