"""Full-text agent calls (LMCache agent traces): flat prompts, one call a line, sorted by time inside a session.

The lines of a session stand together in the file, though not in time order. Each prompt is the
trace's own text; scaling keeps the start of fixed windows, so that prefixes stay prefixes.
"""

from collections.abc import Iterator

from msgspec import Struct

from simulator.traces.lines import Line, TraceError
from simulator.traces.session import Message, PromptForm, Session, TraceScale, Turn
from simulator.traces.words import estimate_tokens, thin_text

EXPECTED = "an LMCache agent call: timestamp (Unix microseconds), input (text), output (text), session_id"
#: The public files hold at most 44 calls a session; a session larger than this is refused, in calls.
MAX_CALLS = 10_000
MODEL = "recorded"


class LmcacheCall(Struct):
    """One line of the file."""

    timestamp: int
    input: str
    output: str
    session_id: str


def read_lmcache(lines: Iterator[Line], scale: TraceScale) -> Iterator[Session]:
    """The sessions of the file in its order, each sorted by time; calls without a prompt are left out."""
    for session_id, calls in _grouped(lines):
        calls.sort(key=lambda call: call.timestamp)
        turns = _read_turns([call for call in calls if call.input], scale)
        if turns:
            yield Session(session_id, None, PromptForm.TEXT, turns)


def _grouped(lines: Iterator[Line]) -> Iterator[tuple[str, list[LmcacheCall]]]:
    finished: set[str] = set()
    current: list[LmcacheCall] = []
    for line in lines:
        call = line.decode(LmcacheCall, EXPECTED)
        if current and call.session_id != current[0].session_id:
            finished.add(current[0].session_id)
            yield current[0].session_id, current
            current = []
        if call.session_id in finished:
            raise TraceError(line.path, line.number, "its session had ended; expected a session's lines together")
        if len(current) >= MAX_CALLS:
            raise TraceError(line.path, line.number, f"the session has more than {MAX_CALLS} calls")
        current.append(call)
    if current:
        yield current[0].session_id, current


def _read_turns(calls: list[LmcacheCall], scale: TraceScale) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    pieces: list[str] = []
    last_s: float | None = None
    for call in calls:
        text = thin_text(call.input, scale.prompt_ratio)
        if not scale.takes_prompt(estimate_tokens(len(text))) or not scale.takes_turn(len(turns)):
            continue
        kept = _kept_pieces(pieces, text)
        new_text = text[sum(map(len, pieces[:kept])) :]
        pieces[kept:] = [new_text] if new_text else []
        now_s = call.timestamp / 1e6
        turns.append(
            Turn(
                think_s=0.0 if last_s is None else scale.pause_s(now_s - last_s),
                model=MODEL,
                kept_parts=kept,
                added=(Message("", new_text),) if new_text else (),
                prompt_tokens=estimate_tokens(len(text)),
                new_tokens=estimate_tokens(len(new_text)),
                output_tokens=scale.answer_tokens(estimate_tokens(len(call.output))),
            )
        )
        last_s = now_s
    return tuple(turns)


def _kept_pieces(pieces: list[str], text: str) -> int:
    """How many pieces, from the first on, are the start of `text`."""
    kept = end = 0
    while kept < len(pieces) and text.startswith(pieces[kept], end):
        end += len(pieces[kept])
        kept += 1
    return kept
