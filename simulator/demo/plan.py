"""What one demo run sends and how large its fleet is: sessions, pools, limits. Pure, but for reading the trace."""

import itertools
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct

from simulator.traces.history import History, flat_text
from simulator.traces.reader import TraceForm, detect_form, read_sessions
from simulator.traces.session import PromptForm, Session, TraceScale
from simulator.traces.words import estimate_tokens
from simulator.workload import Workload


class ForwardName(StrEnum):
    """Forwards of the engine that the demo uses."""

    TORCH = "torch"
    TIMED = "timed"


#: A rank's pool holds so many times its fair share of the live sessions: enough for a session that stays, far too
#: little for all sessions that round robin brings along.
POOL_SHARE = 1.5
#: Room for the largest session beside its own growth, so that no request is refused.
LARGEST_SHARE = 1.25
#: Template tokens of one message, at most.
MESSAGE_TOKENS = 8
#: Sessions shorter than this say nothing about reuse and are left out, in turns.
MIN_TURNS = 3


class Pace(Struct, frozen=True):
    """What the timed forward takes."""

    prefill_tokens_per_s: float = 20_000.0
    #: A step in which a rank generates.
    decode_step_ms: float = 8.0


#: A prompt of 3,000 tokens takes most of a second: what the router and a busy machine add is little beside it.
SLOW_PACE = Pace(prefill_tokens_per_s=4_000.0, decode_step_ms=20.0)
#: So many at least: with fewer the ranks are idle, and policies hardly differ.
SLOW_SESSIONS = 24


class DemoOptions(Struct, frozen=True):
    """What the command line asked for; None takes the default of the traffic at hand."""

    trace: Path | None = None
    #: Shrunk prompts on slow engines: what is waited for is then the engine's time, and no other.
    is_slow: bool = False
    #: Prompts as long as recorded; without it they are shrunk to what a CPU can compute.
    full_size: bool = False
    forward: ForwardName = ForwardName.TORCH
    replicas: int = 4
    ranks: int = 2
    seed: int = 1
    sessions: int | None = None
    turns: int | None = None
    prompt_ratio: float | None = None
    time_ratio: float | None = None


class Traffic(Struct, frozen=True):
    """Defaults that make one kind of traffic end in time on two cores."""

    sessions: int
    scale: TraceScale
    #: Mean time between the starts of two sessions, seconds.
    arrival_s: float
    #: Of the timed forward.
    pace: Pace = Pace()


class DemoPlan(Struct, frozen=True):
    """Everything a run needs."""

    sessions: tuple[Session, ...]
    #: Where the sessions come from, in words.
    source: str
    forward: ForwardName
    replicas: int
    ranks: int
    seed: int
    arrival_s: float
    page_tokens: int
    #: Pages of one rank's pool.
    pool_pages: int
    max_model_len: int
    #: Tokens prefilled in one step.
    chunk_tokens: int
    pace: Pace

    @property
    def requests(self) -> int:
        """Requests that one run sends."""
        return sum(len(agent.turns) for session in self.sessions for agent in session.walk())


def default_traffic(form: TraceForm | None, *, full_size: bool) -> Traffic:
    """The defaults for a trace form (None: the generator), shrunk or at full size."""
    has_sizes = form in (None, TraceForm.WEKA)
    if full_size and has_sizes:
        scale = TraceScale(
            prompt_ratio=1.0,
            time_ratio=0.02,
            max_think_s=3.0,
            max_prompt_tokens=120_000,
            min_first_tokens=80_000,
            max_output_tokens=128,
            max_turns=5,
        )
        return Traffic(12, scale, arrival_s=0.8)
    if full_size:
        return Traffic(16, TraceScale(1.0, 0.05, 2.0, max_turns=10, max_output_tokens=128), arrival_s=0.1)
    if has_sizes:
        scale = TraceScale(1 / 32, 0.02, 1.5, max_prompt_tokens=4_500, max_turns=8, max_output_tokens=32)
        return Traffic(20, scale, arrival_s=0.1)
    scale = TraceScale(0.3, 0.05, 1.0, max_prompt_tokens=4_000, max_turns=8, max_output_tokens=16)
    return Traffic(16, scale, arrival_s=0.1)


def build_plan(options: DemoOptions, count_tokens: Callable[[str], int]) -> DemoPlan:
    """Choose the sessions and size the fleet for them.

    Args:
        options: What the command line asked for.
        count_tokens: Length of a text under the fleet's tokenizer; recorded text is measured with it.

    Raises:
        TraceError: The trace cannot be used.
        ValueError: No session is left, or an option is out of its range.
    """
    _check(options)
    form = None if options.trace is None else detect_form(options.trace)
    traffic = default_traffic(form, full_size=options.full_size)
    if options.is_slow and not options.full_size:
        traffic = msgspec.structs.replace(traffic, sessions=max(traffic.sessions, SLOW_SESSIONS), pace=SLOW_PACE)
    scale = _scale(options, traffic.scale)
    wanted = options.sessions or traffic.sessions
    sessions = _choose_sessions(options, scale, wanted)
    if not sessions:
        raise ValueError(f"no session of at least {MIN_TURNS} turns with prompts that fit is left")
    density = 1.0 if form in (None, TraceForm.WEKA) else token_density(sessions[0], count_tokens)
    page_tokens = 64 if options.full_size else 16
    peaks = [round(peak_tokens(agent) * density) for session in sessions for agent in session.walk()]
    return DemoPlan(
        sessions=sessions,
        source=f"{options.trace.name} ({form})" if options.trace and form else f"generated, seed {options.seed}",
        forward=options.forward,
        replicas=options.replicas,
        ranks=options.ranks,
        seed=options.seed,
        arrival_s=traffic.arrival_s,
        page_tokens=page_tokens,
        pool_pages=pool_pages(peaks, options.replicas * options.ranks, page_tokens),
        max_model_len=round(max(peaks) * LARGEST_SHARE),
        chunk_tokens=8_192 if options.forward is ForwardName.TIMED else 512,
        pace=traffic.pace,
    )


def name_worker(place: int) -> str:
    """The name of a replica in every run: policies that hash names then choose alike."""
    return f"engine-{place + 1}"


def peak_tokens(session: Session) -> int:
    """About the most tokens that the session's cache takes: its largest prompt with answer and template."""
    parts = peak = 0
    for turn in session.turns:
        parts = turn.kept_parts + len(turn.added)
        peak = max(peak, turn.prompt_tokens + turn.output_tokens + MESSAGE_TOKENS * (parts + 2))
    return peak


def pool_pages(peaks: Sequence[int], ranks: int, page_tokens: int) -> int:
    """Pages of one rank: its fair share of all sessions with some room, and at least the largest session.

    Args:
        peaks: Tokens of each session that is live, sub-agents included.
        ranks: Ranks of the whole fleet.
        page_tokens: Tokens of a page.
    """
    fair_share = POOL_SHARE * sum(peaks) / ranks
    return -(-round(max(fair_share, LARGEST_SHARE * max(peaks) + page_tokens)) // page_tokens)


def token_density(session: Session, count_tokens: Callable[[str], int]) -> float:
    """How many tokens recorded text has for each token that was estimated, measured on a session's last prompt."""
    history = History()
    prompt = [history.advance(turn, None) for turn in session.turns][-1]
    text = flat_text(prompt) if session.form is PromptForm.TEXT else "\n".join(m.content or "" for m in prompt)
    return max(1.0, count_tokens(text) / estimate_tokens(len(text)))


def _check(options: DemoOptions) -> None:
    if not 1 <= options.replicas <= 64 or not 1 <= options.ranks <= 16:
        raise ValueError("--replicas takes 1 to 64 and --ranks 1 to 16")
    if options.prompt_ratio is not None and not 0 < options.prompt_ratio <= 1:
        raise ValueError("--prompt-ratio is above 0 and at most 1")
    if options.time_ratio is not None and not 0 <= options.time_ratio <= 100:
        raise ValueError("--time-ratio is 0 to 100")
    if options.is_slow and options.forward is not ForwardName.TIMED:
        raise ValueError("--check-simulation takes engines whose times are known: --forward timed, the default with it")
    if (options.sessions is not None and options.sessions < 1) or (
        options.turns is not None and options.turns < MIN_TURNS
    ):
        raise ValueError(f"--sessions is at least 1 and --turns at least {MIN_TURNS}")


def _scale(options: DemoOptions, default: TraceScale) -> TraceScale:
    """The default scale with what the command line changed; limits of length follow the ratio of length."""
    ratio = default.prompt_ratio if options.prompt_ratio is None else options.prompt_ratio
    limit_ratio = ratio / default.prompt_ratio
    limit_tokens = default.max_prompt_tokens
    return msgspec.structs.replace(
        default,
        prompt_ratio=ratio,
        time_ratio=default.time_ratio if options.time_ratio is None else options.time_ratio,
        max_prompt_tokens=None if limit_tokens is None else max(1, round(limit_tokens * limit_ratio)),
        min_first_tokens=round(default.min_first_tokens * limit_ratio),
        max_turns=options.turns or default.max_turns,
    )


def _choose_sessions(options: DemoOptions, scale: TraceScale, wanted: int) -> tuple[Session, ...]:
    if options.trace is not None:
        offered = read_sessions(options.trace, scale)
    else:
        # few sessions of the corpus have sub-agents; a short demo shows some by letting more of them spawn
        offered = Workload(options.seed, scale, spawning_ratio=0.15).sessions(20 * wanted)
    usable = (session for session in offered if len(session.turns) >= MIN_TURNS)
    return tuple(itertools.islice(usable, wanted))
