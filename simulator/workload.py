"""Seeded agent traffic with the measured shape of real coding agents.

Every figure below was measured on the Weka corpus of Claude Code sessions (GitHub callanjfox/kv-cache-tester,
commit 94f6046, Apache-2.0; 490 sessions, 32,321 top-level requests; think times and sub-agent figures from the same
sessions): p10/50/90/99 of the prompt 42,676 / 103,116 / 212,279 / 509,583 tokens, of the tokens a request brings that
no earlier prompt of its session held 235 / 765 / 5,215 / 89,638, of the output 103 / 219 / 912 / 3,738, of the think
time 4 / 10 / 157 / 3,064 s, of the requests a session 7 / 42 / 154 / 330; about 2% of the requests break their prefix.
Prompts, new tokens and breaks are not drawn: they come out of first prompts, growth and compaction.
Sub-agents share their head with their siblings and nothing with their parent (they run on another model).
"""

from bisect import bisect_right
from collections.abc import Iterator
from math import exp, log
from random import Random

from msgspec import Struct

from simulator.traces.session import AnswerSlot, Message, Part, PromptForm, Session, SubAgent, TraceScale, Turn
from simulator.traces.words import block_text


class Quantiles:
    """A distribution given by its quantiles, log-linear between them."""

    def __init__(self, *points: tuple[float, float]) -> None:
        self._shares = [share for share, _ in points]
        self._logs = [log(value) for _, value in points]

    def draw(self, rng: Random) -> float:
        """One value."""
        return self.at(rng.random())

    def at(self, lot: float) -> float:
        """The value that a share `lot` of all values, in [0, 1), do not exceed."""
        place = min(bisect_right(self._shares, lot) - 1, len(self._shares) - 2)
        width = self._shares[place + 1] - self._shares[place]
        part = (lot - self._shares[place]) / width
        return exp(self._logs[place] + part * (self._logs[place + 1] - self._logs[place]))


TURNS = Quantiles((0, 3), (0.1, 7), (0.5, 42), (0.9, 154), (0.99, 330), (1, 514))
FIRST_PROMPT_TOKENS = Quantiles(
    (0, 9_000),
    (0.1, 15_700),
    (0.25, 18_800),
    (0.5, 24_700),
    (0.75, 104_000),
    (0.9, 260_000),
    (0.99, 720_000),
    (1, 850_000),
)
#: Growth of a prompt that keeps its prefix.
GROWTH_TOKENS = Quantiles(
    (0, 18), (0.01, 143), (0.1, 232), (0.5, 726), (0.75, 1_700), (0.9, 3_840), (0.99, 16_500), (1, 60_000)
)
#: What follows the head after the prefix broke.
RESTART_TOKENS = Quantiles(
    (0, 500), (0.1, 16_400), (0.25, 28_500), (0.5, 61_000), (0.75, 104_500), (0.9, 155_000), (1, 436_000)
)
OUTPUT_TOKENS = Quantiles((0, 10), (0.1, 103), (0.5, 219), (0.9, 912), (0.99, 3_738), (1, 15_390))
THINK_S = Quantiles((0, 1), (0.1, 4), (0.5, 10), (0.9, 157), (0.99, 3_064), (1, 3_600))
TOOL_TOKENS = Quantiles((0, 7_400), (0.1, 9_290), (0.5, 12_440), (0.9, 12_850), (1, 17_260))
SYSTEM_TOKENS = Quantiles((0, 500), (0.1, 2_050), (0.5, 2_770), (0.9, 3_730), (1, 7_460))
AGENT_TURNS = Quantiles((0, 4), (0.1, 5), (0.5, 10), (0.9, 15), (1, 24))
AGENT_TASK_TOKENS = Quantiles((0, 1_000), (0.5, 1_900), (0.9, 4_500), (1, 9_800))
AGENT_TOOL_TOKENS, AGENT_SYSTEM_TOKENS = 6_800, 1_700

#: Breaks that no full context explains (a new task, another tool set); compaction brings the rest of the 2%.
SUDDEN_BREAK_RATIO = 0.0175
#: Contexts of most sessions and of the few that may grow larger, tokens; a full one is compacted to this share.
CONTEXT_TOKENS, LARGE_CONTEXT_TOKENS, COMPACTED_RATIO = 200_000, 1_000_000, 0.4
LARGE_CONTEXT_RATIO = 0.05
#: Tool sets seen in the corpus and how much oftener the popular ones are met; system prompts of one tool set.
TOOL_SETS, TOOL_SET_SKEW, SYSTEMS_PER_TOOL_SET = 73, 0.8, 4
MAIN_MODEL, AGENT_MODEL = "large", "small"


class Head(Struct, frozen=True):
    """Tools and system prompt: what sessions of one kind share; sizes in tokens, unscaled."""

    model: str
    tool_tokens: int
    system_tokens: int

    @property
    def tokens(self) -> int:
        """Size of the head, unscaled."""
        return self.tool_tokens + self.system_tokens


class TurnPlan(Struct, frozen=True):
    """Sizes of one request, unscaled; `breaks` says that only the head of the previous prompt is kept."""

    think_s: float
    prompt_tokens: int
    new_tokens: int
    output_tokens: int
    breaks: bool


class SessionPlan(Struct, frozen=True):
    """Sizes of a session without its text; `agents` are pairs of parent turn and plan."""

    session_id: str
    head: Head
    turns: tuple[TurnPlan, ...]
    agents: tuple[tuple[int, "SessionPlan"], ...] = ()


class Workload:
    """A stream of sessions that depends on its arguments only.

    Args:
        seed: Equal seeds give equal sessions.
        scale: Shrinks lengths and pauses; `max_prompt_tokens` ends a session before its first longer prompt.
        spawning_ratio: Share of the sessions that start sub-agents (0.04 in the corpus, 45 agents in 490 sessions).
    """

    def __init__(self, seed: int, scale: TraceScale | None = None, *, spawning_ratio: float = 0.04) -> None:
        self._seed = seed
        self._scale = scale or TraceScale()
        self._spawning_ratio = spawning_ratio
        rng = Random(f"heads/{seed}")
        tools = [round(TOOL_TOKENS.draw(rng)) for _ in range(TOOL_SETS)]
        self._heads = [
            [Head(MAIN_MODEL, size, round(SYSTEM_TOKENS.draw(rng))) for _ in range(SYSTEMS_PER_TOOL_SET)]
            for size in tools
        ]

    def plans(self, sessions: int) -> Iterator[SessionPlan]:
        """The sizes of the first `sessions` sessions, unscaled."""
        popularity = [(rank + 1) ** -TOOL_SET_SKEW for rank in range(TOOL_SETS)]
        for serial in range(sessions):
            rng = Random(f"session/{self._seed}/{serial}")
            head = rng.choice(rng.choices(self._heads, popularity)[0])
            turns = _plan_turns(rng, head, round(TURNS.draw(rng)), FIRST_PROMPT_TOKENS.draw(rng))
            session_id = f"agent-{serial + 1}"
            yield SessionPlan(session_id, head, turns, self._plan_agents(rng, session_id, len(turns)))

    def sessions(self, sessions: int) -> Iterator[Session]:
        """The first `sessions` sessions with their text, scaled; those without a prompt that fits are left out."""
        for plan in self.plans(sessions):
            session = _write_session(plan, None, f"{self._seed}/{plan.session_id}", self._scale)
            if session.turns:
                yield session

    def _plan_agents(self, rng: Random, session_id: str, turns: int) -> tuple[tuple[int, SessionPlan], ...]:
        if rng.random() >= self._spawning_ratio:
            return ()
        head = Head(AGENT_MODEL, AGENT_TOOL_TOKENS, AGENT_SYSTEM_TOKENS)
        after = rng.randrange(min(turns, 8))
        agents: list[tuple[int, SessionPlan]] = []
        while not agents or rng.random() < 0.58:  # 45 agents in the 4% of 490 sessions that have any
            first_tokens = head.tokens + AGENT_TASK_TOKENS.draw(rng)
            plan = _plan_turns(rng, head, round(AGENT_TURNS.draw(rng)), first_tokens)
            agents.append((after, SessionPlan(f"{session_id}.{len(agents) + 1}", head, plan)))
        return tuple(agents)


def _plan_turns(rng: Random, head: Head, turns: int, first_tokens: float) -> tuple[TurnPlan, ...]:
    size = max(round(first_tokens), head.tokens + 100) if head.model == AGENT_MODEL else round(first_tokens)
    is_large = size > 0.95 * CONTEXT_TOKENS or rng.random() < LARGE_CONTEXT_RATIO
    context_tokens = LARGE_CONTEXT_TOKENS if is_large else CONTEXT_TOKENS
    lot = rng.random()  # one lot for an answer and the growth after it: a prompt grows by its answer at the least
    plans = [TurnPlan(0.0, size, size, round(OUTPUT_TOKENS.at(lot)), breaks=False)]
    for _ in range(1, turns):
        new_tokens = round(GROWTH_TOKENS.at(lot))
        is_full = size + new_tokens > context_tokens
        breaks = is_full or rng.random() < SUDDEN_BREAK_RATIO
        if breaks:
            new_tokens = round(min(RESTART_TOKENS.draw(rng), context_tokens * COMPACTED_RATIO))
            size = head.tokens
        size += new_tokens
        lot = rng.random()
        plans.append(TurnPlan(THINK_S.draw(rng), size, new_tokens, round(OUTPUT_TOKENS.at(lot)), breaks))
    return tuple(plans)


def _write_session(plan: SessionPlan, parent: str | None, name: str, scale: TraceScale) -> Session:
    first = _first_turn(plan, scale) if parent is None else 0
    turns: list[Turn] = []
    for serial in range(first, len(plan.turns)):
        prompt_tokens = scale.tokens(plan.turns[serial].prompt_tokens)
        if not scale.takes_turn(len(turns)) or not scale.takes_prompt(prompt_tokens):
            break
        turns.append(_write_turn(plan, first, serial, f"{name}/{serial}", scale))
    agents = tuple(
        SubAgent(
            max(0, after - first),
            scale.pause_s(1.0),
            False,
            _write_session(agent, plan.session_id, f"{name}/a{place}", scale),
        )
        for place, (after, agent) in enumerate(plan.agents)
        if after - first < len(turns)
    )
    return Session(plan.session_id, parent, PromptForm.CHAT, tuple(turns), agents)


def _first_turn(plan: SessionPlan, scale: TraceScale) -> int:
    """Where the session begins: its first prompt that is large enough, or its end."""
    for serial, turn in enumerate(plan.turns):
        if scale.tokens(turn.prompt_tokens) >= scale.min_first_tokens:
            return serial
    return len(plan.turns)


def _write_turn(plan: SessionPlan, first: int, serial: int, name: str, scale: TraceScale) -> Turn:
    turn = plan.turns[serial]
    kept, added = _write_parts(plan, first, serial, name, scale)
    return Turn(
        think_s=scale.pause_s(turn.think_s) if serial > first else 0.0,
        model=plan.head.model,
        kept_parts=kept,
        added=added,
        prompt_tokens=scale.tokens(turn.prompt_tokens),
        new_tokens=scale.tokens(turn.new_tokens if serial > first else turn.prompt_tokens),
        output_tokens=scale.answer_tokens(turn.output_tokens),
    )


def _write_parts(
    plan: SessionPlan, first: int, serial: int, name: str, scale: TraceScale
) -> tuple[int, tuple[Part, ...]]:
    """How many parts of the prompt before stay (2 for the first prompt, 2 more per answered turn), and the new ones."""
    turn = plan.turns[serial]
    if serial == first:
        task_tokens = max(1, turn.prompt_tokens - plan.head.tokens)
        return 0, (_write_head(plan.head, scale), _write_words(name, task_tokens, scale))
    if turn.breaks:
        return 1, (_write_words(name, turn.new_tokens, scale),)
    last_break = max((place for place in range(first, serial) if plan.turns[place].breaks), default=first)
    kept = 2 + 2 * (serial - 1 - last_break)
    new_tokens = max(1, turn.new_tokens - plan.turns[serial - 1].output_tokens)
    return kept, (AnswerSlot(), _write_words(name, new_tokens, scale))


def _write_words(name: str, tokens: int, scale: TraceScale) -> Message:
    return Message("user", block_text(name, scale.tokens(tokens)))


def _write_head(head: Head, scale: TraceScale) -> Message:
    tools = f"tools/{head.model}/{head.tool_tokens}"
    system = f"{tools}/system/{head.system_tokens}"
    tool_text = block_text(tools, scale.tokens(head.tool_tokens))
    return Message("system", f"{tool_text} {block_text(system, scale.tokens(head.system_tokens))}")
