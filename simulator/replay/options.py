"""The flags of the replay command as one value, and the plan they come to; what is wrong is said before any request."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from simulator.graph.reader import read_trace
from simulator.graph.request import BlockTrace
from simulator.graph.weka import WekaSampling
from simulator.replay.cut import Cut, cut_trace
from simulator.replay.drive import LoadPlan
from simulator.replay.run import LoadLimits
from simulator.replay.target import Api, PromptAs, TargetError, TargetPlan, make_tls, parse_target, read_key
from simulator.traces.lines import TraceError

#: Largest end of a range of token ids, and longest pause kept of a Weka session before it is scaled and cut, seconds.
TOKEN_ID_LIMIT = 1 << 24
WEKA_PAUSE_S = 1e9
#: Weka sessions drawn where no number is given.
WEKA_SESSIONS = 150


class ReplayOptions(Struct, frozen=True, kw_only=True):
    """What the command line said; `simulator.replay.flags` describes each."""

    trace: Path
    target: str
    model: str
    api: Api
    prompt_as: PromptAs
    token_ids: str
    api_key_env: str | None
    header: list[str] | None
    fields: str | None
    ignore_eos: bool
    session_header: str
    parent_header: str
    worker_header: str
    rank_header: str
    ca: Path | None
    insecure: bool
    timeout: float
    concurrency: int
    sessions: int | None
    requests: int | None
    duration: float | None
    retries: int
    rate: float
    max_requests: int
    max_prompt_tokens: int
    max_output_tokens: int | None
    prompt_ratio: float
    time_ratio: float
    max_pause: float
    seed: int
    max_error_ratio: float
    json: bool


def plan_load(options: ReplayOptions, environment: Mapping[str, str]) -> LoadPlan:
    """The load that was asked for; reads the trace, the key and the authorities.

    Raises:
        TargetError: A flag cannot be used.
        TraceError: The trace cannot.
    """
    key = read_key(options.api_key_env, environment)
    cut = _plan_cut(options)
    return LoadPlan(
        target=_plan_target(options, key),
        limits=LoadLimits(concurrency=options.concurrency, duration_s=options.duration, retries=options.retries),
        trace_name=options.trace.name,
        trace=_read(options, cut),
        cut=cut,
        seed=options.seed,
        token_ids=_parse_range(options.token_ids),
        worker_header=options.worker_header,
        rank_header=options.rank_header or None,
        secret=key,
        tls=make_tls(options.ca, verifies=not options.insecure),
    )


def _plan_cut(options: ReplayOptions) -> Cut:
    if not 0.0 < options.prompt_ratio <= 1.0:
        raise TargetError(f"--prompt-ratio is {options.prompt_ratio:g}; expected above 0 and at most 1")
    return Cut(
        sessions=options.sessions,
        requests=options.requests,
        max_prompt_tokens=options.max_prompt_tokens,
        max_output_tokens=options.max_output_tokens,
        prompt_ratio=options.prompt_ratio,
        time_ratio=options.time_ratio,
        max_pause_s=options.max_pause,
    )


def _plan_target(options: ReplayOptions, key: str | None) -> TargetPlan:
    return TargetPlan(
        base_url=parse_target(options.target),
        api=options.api,
        prompt_as=options.prompt_as,
        model=options.model,
        headers=_parse_headers(options.header or [], key),
        session_header=options.session_header or None,
        parent_header=options.parent_header or None,
        fields=_parse_fields(options.fields),
        ignores_eos=options.ignore_eos,
        timeout_s=options.timeout,
    )


def _read(options: ReplayOptions, cut: Cut) -> BlockTrace:
    sampling = WekaSampling(
        sessions=options.sessions or WEKA_SESSIONS,
        arrivals_per_s=options.rate,
        max_prompt_tokens=options.max_prompt_tokens,
        max_requests=options.max_requests,
        max_pause_s=WEKA_PAUSE_S,
        seed=options.seed,
    )
    trace = cut_trace(read_trace(options.trace, sampling=sampling), cut)
    if not trace.requests:
        raise TraceError(options.trace, None, "nothing is left of the trace; --max-prompt-tokens may be too small")
    return trace


def _parse_headers(lines: list[str], key: str | None) -> dict[str, str]:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    for line in lines:
        name, colon, value = line.partition(":")
        if not (colon and name.strip() and line.isascii() and line.isprintable()):
            raise TargetError(f"--header {name.strip()!r} is no 'Name: value' of printable ASCII")
        headers[name.strip()] = value.strip()
    return headers


def _parse_fields(text: str | None) -> dict[str, Any]:
    try:
        return {} if text is None else msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise TargetError(f"--fields is no JSON object: {error}") from error


def _parse_range(text: str) -> range:
    low, _, high = text.partition(":")
    if low.isdecimal() and high.isdecimal() and len(text) < 20 and int(low) < int(high) <= TOKEN_ID_LIMIT:
        return range(int(low), int(high))
    raise TargetError(f"--token-ids is {text!r}; expected LOW:HIGH with LOW < HIGH <= {TOKEN_ID_LIMIT}")
