"""Claude Code sessions as KV block ids (kv-cache-tester form, one session a line) made into sessions with text.

The ids are local to a session, so text is drawn from (session, model, id): equal ids give equal text.
The head of a prompt (tool_tokens // 64 blocks, then system_tokens // 64) is drawn from the model and those
sizes instead, so that sessions with the same tools and system prompt share it, as they do in life.
Answers are not recorded as text: the fleet's own answer takes their place in the history.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from simulator.traces.lines import Line, TraceError
from simulator.traces.session import AnswerSlot, Message, Part, PromptForm, Session, SubAgent, TraceScale, Turn
from simulator.traces.words import block_text, join_blocks

EXPECTED = "a Weka session: id, block_size, tool_tokens, system_tokens, requests[{t, type, model, in, out, hash_ids}]"
#: A sub-agent that ended this long after the parent's next request began was still waited for, seconds.
JOIN_SLACK_S = 1.0


class WekaRequest(Struct):
    """One entry of `requests`: a request, or the marker of a sub-agent with requests of its own."""

    t: float
    type: str
    model: str = ""
    prompt_tokens: int = field(name="in", default=0)
    output_tokens: int = field(name="out", default=0)
    hash_ids: list[int] = []
    think_time: float = 0.0
    #: Seconds on the server; None where the recording does not say.
    api_time: float | None = None
    duration_ms: float = 0.0
    tool_tokens: int = 0
    system_tokens: int = 0
    requests: list["WekaRequest"] = []


class WekaSession(Struct):
    """One line of the file."""

    id: str
    block_size: int
    requests: list[WekaRequest]
    tool_tokens: int = 0
    system_tokens: int = 0


def read_weka(lines: Iterator[Line], scale: TraceScale) -> Iterator[Session]:
    """The sessions of the file in its order; those without a usable request are left out."""
    for line in lines:
        recorded = line.decode(WekaSession, EXPECTED)
        if recorded.block_size < 1:
            raise TraceError(line.path, line.number, f"block_size is {recorded.block_size}; expected at least 1")
        session = _Agent(recorded.id, None, recorded, _Names(recorded.id, recorded.block_size, scale), scale).read()
        if session.turns:
            yield session


class _Names:
    """Which text stands for which block id, once for a whole session with its sub-agents."""

    def __init__(self, session_id: str, block_tokens: int, scale: TraceScale) -> None:
        self.block_tokens = block_tokens
        self._session_id = session_id
        self._word_ratio = block_tokens * scale.prompt_ratio
        self._names: dict[tuple[str, int], str] = {}

    def name(self, model: str, block_id: int, head_name: str | None) -> str:
        """The name of a block; the first place where an id is seen decides whether it belongs to a shared head."""
        own = head_name or f"{self._session_id}/{model}/{block_id}"
        return self._names.setdefault((model, block_id), own)

    def text(self, names: Sequence[str]) -> str:
        return join_blocks(block_text(name, self._word_ratio) for name in names)


class _Agent:
    """Turns the requests of one agent into turns; `parts` maps the current prompt's parts to block ranges."""

    def __init__(
        self, session_id: str, parent: str | None, recorded: WekaSession | WekaRequest, names: _Names, scale: TraceScale
    ) -> None:
        self._session_id, self._parent, self._recorded = session_id, parent, recorded
        self._names, self._scale = names, scale
        self._tool_blocks = recorded.tool_tokens // names.block_tokens
        self._head_blocks = self._tool_blocks + recorded.system_tokens // names.block_tokens
        self._canonical: list[int] = []
        self._blocks: list[str] = []
        self._part_ends: list[int] = []  # part i covers blocks [part_ends[i - 1], part_ends[i])
        self._last_output_blocks = 0
        self._turns: list[Turn] = []
        self._agents: list[SubAgent] = []

    def read(self) -> Session:
        requests = self._recorded.requests
        for place, request in enumerate(requests):
            if request.type == "subagent":
                self._add_agent(request, requests[place + 1 :])
            elif self._is_kept(request):
                self._add_turn(request)
        return Session(self._session_id, self._parent, PromptForm.CHAT, tuple(self._turns), tuple(self._agents))

    def _is_kept(self, request: WekaRequest) -> bool:
        scaled_tokens = self._scale.tokens(request.prompt_tokens)
        if self._parent is None and not self._turns and scaled_tokens < self._scale.min_first_tokens:
            return False
        size_fits = self._scale.takes_prompt(scaled_tokens)
        return bool(request.hash_ids) and size_fits and self._scale.takes_turn(len(self._turns))

    def _add_agent(self, marker: WekaRequest, following: Sequence[WekaRequest]) -> None:
        if not self._turns or not self._scale.takes_turn(len(self._turns)):
            return  # before the first kept turn of its parent, or after the last
        session_id = f"{self._session_id}.{len(self._agents) + 1}"
        session = _Agent(session_id, self._session_id, marker, self._names, self._scale).read()
        next_t = next((r.t for r in following if r.type != "subagent"), None)
        blocking = next_t is not None and marker.t + marker.duration_ms / 1000.0 <= next_t + JOIN_SLACK_S
        if session.turns:
            delay_s = self._scale.pause_s(JOIN_SLACK_S)
            self._agents.append(SubAgent(len(self._turns) - 1, delay_s, blocking, session))

    def _add_turn(self, request: WekaRequest) -> None:
        self._canonical = self._canonical or request.hash_ids
        names = self._block_names(request)
        common = _common_length(self._blocks, names)
        kept_parts = sum(end <= common for end in self._part_ends)
        kept_blocks = self._part_ends[kept_parts - 1] if kept_parts else 0
        is_appended = bool(self._turns) and common == len(self._blocks)
        added, ends = self._plan_parts(names, kept_blocks, answered=is_appended)
        self._turns.append(
            Turn(
                think_s=self._scale.pause_s(request.think_time) if self._turns else 0.0,
                model=request.model,
                kept_parts=kept_parts,
                added=tuple(added),
                prompt_tokens=self._scale.tokens(request.prompt_tokens),
                new_tokens=self._scale.tokens(request.prompt_tokens - common * self._names.block_tokens),
                output_tokens=self._scale.answer_tokens(request.output_tokens),
            )
        )
        self._part_ends[kept_parts:] = ends
        self._blocks = names
        self._last_output_blocks = request.output_tokens // self._names.block_tokens

    def _block_names(self, request: WekaRequest) -> list[str]:
        names: list[str] = []
        in_head = True
        for place, block_id in enumerate(request.hash_ids):
            in_head = in_head and place < min(self._head_blocks, len(self._canonical))
            in_head = in_head and block_id == self._canonical[place]
            head_name = self._head_name(request.model, place) if in_head else None
            names.append(self._names.name(request.model, block_id, head_name))
        return names

    def _head_name(self, model: str, place: int) -> str:
        tools = f"tools/{model}/{self._recorded.tool_tokens}"
        if place < self._tool_blocks:
            return f"{tools}/{place}"
        return f"{tools}/system/{self._recorded.system_tokens}/{place}"

    def _plan_parts(self, names: list[str], start: int, *, answered: bool) -> tuple[list[Part], list[int]]:
        """The parts that cover blocks [start, end of the prompt), and where each of them ends."""
        added: list[Part] = []
        ends: list[int] = []
        if start == 0 and 0 < self._head_blocks < len(names):
            start = self._head_blocks
            added.append(Message("system", self._names.text(names[:start])))
            ends.append(start)
        if answered and start < len(names):
            answer_blocks = min(self._last_output_blocks, len(names) - start - 1)
            start += answer_blocks
            added.append(AnswerSlot())
            ends.append(start)
        if start < len(names):
            added.append(Message("user", self._names.text(names[start:])))
            ends.append(len(names))
        return added, ends


def _common_length(old: Sequence[str], new: Sequence[str]) -> int:
    length = 0
    for left, right in zip(old, new, strict=False):
        if left != right:
            break
        length += 1
    return length
