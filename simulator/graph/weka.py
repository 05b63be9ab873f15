"""Claude Code sessions as block ids (kv-cache-tester form) made into a closed loop of a given length and rate.

Sessions are drawn from the file and arrive as a Poisson process. Inside a session a request waits for what it waited
for in the recording: its agent's last complete answer, sub-agents that were done, or only the start of a request that
it overlapped; then for the recorded pause, cut. Ids become global: the head of a prompt (tools, then system) is shared
by the agents of one model and those sizes, the rest belongs to the session. What is drawn depends on the seed alone.
"""

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from msgspec import Struct, field

from simulator.graph.checks import check_blocks, check_pause
from simulator.graph.names import BlockNames, Head
from simulator.graph.request import BlockRequest, BlockTrace, Trigger, Wait
from simulator.traces.lines import Line, TraceError
from simulator.traces.weka import EXPECTED, JOIN_SLACK_S, WekaRequest, WekaSession

#: Seconds a recorded output token is taken to take, where the recording says nothing of the end of a request.
USUAL_TOKEN_S = 0.03


class WekaSampling(Struct, frozen=True, kw_only=True):
    """Which part of the corpus is played, and how fast."""

    #: Sessions drawn, at most.
    sessions: int = 150
    #: Of them that arrive a second.
    arrivals_per_s: float = 0.02
    #: Longer prompts are left out.
    max_prompt_tokens: int = 200_000
    #: Requests kept of an agent, its first ones.
    max_requests: int = 60
    #: Sessions of fewer requests, before anything is left out, are not drawn.
    min_requests: int = 3
    #: Longest pause kept.
    max_pause_s: float = 120.0
    seed: int = 1


class _Agent(Struct):
    """A session's own requests, or those of a sub-agent."""

    name: str
    start_s: float
    head: Head
    requests: list[WekaRequest]


class _Step(Struct):
    """A request on its way into the trace."""

    agent: int
    start_s: float
    end_s: float
    recorded: WekaRequest
    #: Its place among the session's requests, once taken; None before.
    place: int | None = None
    #: When it starts and ends in the trace, by the recorded durations.
    planned_start_ms: float = 0.0
    planned_end_ms: float = 0.0
    waits: list[Wait] = field(default_factory=list)


def read_weka_graph(lines: Iterator[Line], path: Path, sampling: WekaSampling) -> BlockTrace:
    """The drawn part of the corpus, in the order in which its requests would start.

    Raises:
        TraceError: A line is not of this form, or nothing is left.
    """
    rng = Random(sampling.seed)
    drawn = _draw(lines, sampling, rng)
    names, arrival_ms, block_sizes = BlockNames(), 0.0, set()
    rows: list[tuple[float, BlockRequest]] = []
    for line in drawn:
        session = line.decode(WekaSession, EXPECTED)
        block_sizes.add(session.block_size)
        arrival_ms += rng.expovariate(sampling.arrivals_per_s) * 1000
        steps = _link(_list_agents(session), round(arrival_ms), sampling)
        rows += _to_requests(line, session, steps, names, len(rows))
    if len(block_sizes) != 1 or min(block_sizes) < 1:
        raise TraceError(path, None, f"block sizes {sorted(block_sizes)}; expected one, at least 1")
    return BlockTrace(block_sizes.pop(), _order(rows))


def _draw(lines: Iterator[Line], sampling: WekaSampling, rng: Random) -> list[Line]:
    """A reservoir of lines, shuffled. Requests are counted by their key, without reading the line."""
    drawn: list[Line] = []
    seen = 0
    for line in lines:
        if line.data.count(b'"hash_ids"') < sampling.min_requests:
            continue
        seen += 1
        if len(drawn) < sampling.sessions:
            drawn.append(line)
        elif (place := rng.randrange(seen)) < sampling.sessions:
            drawn[place] = line
    rng.shuffle(drawn)
    return drawn


def _list_agents(session: WekaSession) -> list[_Agent]:
    def head(part: WekaSession | WekaRequest) -> Head:
        return Head(part.tool_tokens, part.system_tokens, session.block_size)

    agents = [_Agent(session.id, 0.0, head(session), [each for each in session.requests if each.type != "subagent"])]
    for marker in session.requests:
        if marker.type == "subagent":
            own = [each for each in marker.requests if each.type != "subagent"]
            agents.append(_Agent(f"{session.id}/{len(agents)}", marker.t, head(marker), own))
    return agents


def _link(agents: list[_Agent], arrival_ms: float, sampling: WekaSampling) -> list[tuple[_Agent, _Step]]:
    """The requests kept, in recorded order, each with its waits as places among them."""
    steps = sorted(
        (step for number, agent in enumerate(agents) for step in _keep(number, agent, sampling)),
        key=lambda step: step.start_s,
    )
    last_own_s = max((step.start_s for step in steps if step.agent == 0), default=0.0)
    taken: list[_Step] = []
    joined: set[int] = set()
    for step in steps:
        if step.agent and step.start_s > last_own_s:
            continue  # its parent was cut before it began
        waited = _find_waited(step, taken)
        waited += _find_joined(step, steps, joined) if step.agent == 0 else []
        if not waited and taken:
            continue  # a sub-agent before any request of its parent
        step.place = len(taken)
        step.planned_start_ms = arrival_ms
        for other, trigger in waited:
            since_s = other.end_s if trigger is Trigger.COMPLETION else other.start_s
            pause_ms = round(1000 * min(max(step.start_s - since_s, 0.0), sampling.max_pause_s))
            planned_ms = other.planned_end_ms if trigger is Trigger.COMPLETION else other.planned_start_ms
            step.planned_start_ms = max(step.planned_start_ms, planned_ms + pause_ms)
            step.waits.append(Wait(other.place or 0, trigger, pause_ms / 1000))
        step.planned_end_ms = step.planned_start_ms + 1000 * max(step.end_s - step.start_s, 0.05)
        taken.append(step)
    return [(agents[step.agent], step) for step in taken]


def _keep(number: int, agent: _Agent, sampling: WekaSampling) -> Iterator[_Step]:
    """The agent's first requests that are not too long, each with its recorded times."""
    fitting = [
        each
        for each in agent.requests
        if each.hash_ids and len(each.hash_ids) * agent.head.block_tokens <= sampling.max_prompt_tokens
    ]
    followers: list[WekaRequest | None] = [*fitting[1:], None]
    for each, follower in list(zip(fitting, followers, strict=False))[: sampling.max_requests]:
        yield _Step(number, agent.start_s + each.t, agent.start_s + _find_end_s(each, follower), each)


def _find_end_s(request: WekaRequest, follower: WekaRequest | None) -> float:
    """When the recorded answer was complete; where that is not recorded, the next request's pause tells."""
    if request.api_time is not None:
        return request.t + request.api_time
    if follower is not None:
        return max(request.t, follower.t - follower.think_time)
    return request.t + USUAL_TOKEN_S * request.output_tokens


def _find_waited(step: _Step, taken: Sequence[_Step]) -> list[tuple[_Step, Trigger]]:
    """The request that it followed, of its own agent or, for an agent's first, of the session."""
    own = [other for other in taken if other.agent == step.agent] or [other for other in taken if not other.agent]
    done = [other for other in own if other.end_s <= step.start_s + JOIN_SLACK_S]
    if done:
        return [(max(done, key=lambda other: other.end_s), Trigger.COMPLETION)]
    return [(own[-1], Trigger.DISPATCH)] if own else []


def _find_joined(step: _Step, steps: Sequence[_Step], joined: set[int]) -> list[tuple[_Step, Trigger]]:
    """The last answers of sub-agents that were all done by then and that no earlier request waited for."""
    waited = []
    for agent in sorted({other.agent for other in steps} - joined - {0}):
        mine = [other for other in steps if other.agent == agent]
        if all(other.place is not None and other.end_s <= step.start_s + JOIN_SLACK_S for other in mine):
            joined.add(agent)
            waited.append((max(mine, key=lambda other: other.end_s), Trigger.COMPLETION))
    return waited


def _to_requests(
    line: Line, session: WekaSession, steps: Sequence[tuple[_Agent, _Step]], names: BlockNames, first: int
) -> list[tuple[float, BlockRequest]]:
    canonical: dict[str, Sequence[int]] = {}
    made: list[tuple[float, BlockRequest]] = []
    for agent, step in steps:
        recorded = step.recorded
        heads = canonical.setdefault(agent.name, next(each.hash_ids for each in agent.requests if each.hash_ids))
        check_blocks(line, recorded.hash_ids)
        ids = names.find(session.id, recorded.model, agent.head, recorded.hash_ids, heads)
        waits = tuple(Wait(first + wait.place, wait.trigger, check_pause(line, wait.pause_s)) for wait in step.waits)
        request = BlockRequest(
            request_id=f"{agent.name}#{first + len(made)}",
            session=agent.name,
            parent=session.id if step.agent else None,
            blocks=array("I", ids),
            prompt_tokens=len(ids) * session.block_size,
            output_tokens=max(1, recorded.output_tokens),
            not_before_s=0.0 if waits else step.planned_start_ms / 1000,
            waits=waits,
        )
        made.append((step.planned_start_ms, request))
    return made


def _order(rows: list[tuple[float, BlockRequest]]) -> tuple[BlockRequest, ...]:
    """By planned start; places of waits follow."""
    order = sorted(range(len(rows)), key=lambda place: rows[place][0])
    moved = {old: new for new, old in enumerate(order)}
    return tuple(_renumber(rows[old][1], moved) for old in order)


def _renumber(request: BlockRequest, moved: dict[int, int]) -> BlockRequest:
    waits = tuple(Wait(moved[wait.place], wait.trigger, wait.pause_s) for wait in request.waits)
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    return BlockRequest(**{**fields, "waits": waits})
