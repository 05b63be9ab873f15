"""Rebuild the prompts of a session turn by turn, with the fleet's real answers in their slots. Pure."""

from simulator.traces.session import AnswerSlot, Message, Turn

#: Written into the history when a request failed, so that the session can go on.
NO_ANSWER = "(no answer)"


class History:
    """The parts of one session's current prompt; `advance` moves it to the next turn."""

    def __init__(self) -> None:
        self._parts: list[Message] = []

    def advance(self, turn: Turn, last_answer: str | None) -> tuple[Message, ...]:
        """The prompt of `turn`, given the fleet's answer to the turn before (None if there was none)."""
        answer = Message("assistant", last_answer or NO_ANSWER)
        del self._parts[turn.kept_parts :]
        self._parts.extend(answer if isinstance(part, AnswerSlot) else part for part in turn.added)
        return tuple(self._parts)


def flat_text(prompt: tuple[Message, ...]) -> str:
    """The prompt of a text session: its pieces joined without anything between."""
    return "".join(part.content or "" for part in prompt)
