"""What is wrong with the workers that were seen, and what to change. Pure."""

from collections.abc import Iterable, Iterator

from router.control.loads import LoadSource
from router.control.parity import Parity
from router.doctor.findings import Check, Finding, Level, RankSeen, WorkerSeen

#: A probe that takes longer will fail sooner or later.
SLOW_HEALTH_S = 1.0
#: Clocks that differ by more make logs and traces hard to bring together; HTTP tells whole seconds.
MAX_CLOCK_S = 2.0
_HOW_TO_PUBLISH = (
    """SGLang: --kv-events-config '{"publisher": "zmq"}'; vLLM: the same with "enable_kv_cache_events": true; """
    "or name the sockets under `events`"
)


def diagnose(workers: Iterable[WorkerSeen]) -> tuple[Finding, ...]:
    """Every finding, worker by worker, good ones too."""
    seen = list(workers)
    return tuple(finding for worker in seen for finding in _diagnose_one(worker)) + tuple(_compare(seen))


def _diagnose_one(worker: WorkerSeen) -> Iterator[Finding]:
    yield _judge_health(worker)
    if worker.health_problem is not None:
        return
    yield _judge_facts(worker)
    if worker.facts is None:
        return
    yield from _judge_events(worker)
    yield _judge_parity(worker)
    yield _judge_load(worker)
    if worker.clock_ahead_s is not None:
        yield _judge_clock(worker, worker.clock_ahead_s)


def _judge_health(worker: WorkerSeen) -> Finding:
    if worker.health_problem is not None:
        change = f"see that the engine runs and that {worker.url} is its address as seen from here"
        return Finding(worker.worker, Check.HEALTH, Level.PROBLEM, worker.health_problem, change)
    took = f"answers within {worker.health_s * 1_000:.0f} ms"
    if worker.health_s > SLOW_HEALTH_S:
        change = "raise probes.interval_s, or let /health not generate (SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=0)"
        return Finding(worker.worker, Check.HEALTH, Level.WARNING, took, change)
    return Finding(worker.worker, Check.HEALTH, Level.OK, took)


def _judge_facts(worker: WorkerSeen) -> Finding:
    facts = worker.facts
    if facts is None:
        change = "the engine must serve /server_info or /v1/models at the same address"
        return Finding(worker.worker, Check.FACTS, Level.PROBLEM, "it says nothing of itself", change)
    if worker.refused is not None:
        change = "change the key in the configuration or the engine's flag, or leave the key out"
        return Finding(worker.worker, Check.FACTS, Level.PROBLEM, worker.refused, change)
    said = f"{', '.join(facts.models[:3])}; {facts.dp_size} ranks, blocks of {facts.block_tokens or '?'} tokens"
    return Finding(worker.worker, Check.FACTS, Level.OK, said + ("" if facts.version is None else f", {facts.version}"))


def _judge_events(worker: WorkerSeen) -> Iterator[Finding]:
    if worker.is_switched_off:
        said = "switched off: it earns credit only for what is guessed from text"
        yield Finding(worker.worker, Check.EVENTS, Level.WARNING, said, "leave out `events: off`")
        return
    if not worker.ranks:
        change = "start the sidecar" if worker.has_sidecar else _HOW_TO_PUBLISH
        yield Finding(worker.worker, Check.EVENTS, Level.WARNING, worker.no_events or "it has no event sockets", change)
        return
    for rank in worker.ranks:
        yield _judge_socket(worker, rank)
        yield _judge_replay(worker, rank)


def _judge_socket(worker: WorkerSeen, rank: RankSeen) -> Finding:
    name = f"rank {rank.dp_rank}"
    if not rank.is_connected:
        change = "open the port, or let the engine bind an address that can be reached from here (tcp://*:PORT)"
        return Finding(
            worker.worker, Check.EVENTS, Level.PROBLEM, f"{name}: nobody publishes at {rank.endpoint}", change
        )
    if rank.strangers:
        said = f"{name}: {rank.endpoint} tells of ranks {', '.join(map(str, rank.strangers))}"
        change = "each rank needs a port of its own: rank r publishes r ports above the first"
        return Finding(worker.worker, Check.EVENTS, Level.PROBLEM, said, change)
    told = worker.facts.block_tokens if worker.facts is not None else None
    if told is not None and rank.block_tokens and told not in rank.block_tokens:
        said = f"{name}: blocks of {', '.join(map(str, rank.block_tokens))} tokens, and {told} by its facts"
        change = "the sockets may be another engine's; else its events are right and nothing is to be changed"
        return Finding(worker.worker, Check.EVENTS, Level.WARNING, said, change)
    return Finding(worker.worker, Check.EVENTS, Level.OK, f"{name}: {rank.endpoint} publishes")


def _judge_replay(worker: WorkerSeen, rank: RankSeen) -> Finding:
    name = f"rank {rank.dp_rank}"
    if rank.replay_endpoint is None:
        said = f"{name}: no replay socket: what is lost on the way stays lost"
        change = "give the engine a replay_endpoint in its --kv-events-config, or put a sidecar beside it"
        return Finding(worker.worker, Check.REPLAY, Level.WARNING, said, change)
    if not rank.is_replayed:
        said = f"{name}: {rank.replay_endpoint} does not answer"
        return Finding(
            worker.worker, Check.REPLAY, Level.PROBLEM, said, "open the port; see that it is a replay socket"
        )
    if rank.unreadable:
        said = f"{name}: {rank.unreadable} of {rank.batches} batches cannot be read whole"
        change = "the engine may be newer than this router: update the router"
        return Finding(worker.worker, Check.REPLAY, Level.PROBLEM, said, change)
    if rank.missing:
        said = f"{name}: {rank.missing} batches are missing within the replay"
        change = "the engine drops them for a slow reader; give it a larger send queue, or put a sidecar beside it"
        return Finding(worker.worker, Check.REPLAY, Level.WARNING, said, change)
    if rank.first_seq:
        said = f"{name}: begins at batch {rank.first_seq}: a router that starts now knows only part"
        change = "raise buffer_steps, or put a sidecar beside it, which has snapshots"
        level = Level.OK if worker.has_sidecar else Level.WARNING
        return Finding(worker.worker, Check.REPLAY, level, said, "" if worker.has_sidecar else change)
    return Finding(worker.worker, Check.REPLAY, Level.OK, f"{name}: {rank.batches} batches from the first on")


def _judge_parity(worker: WorkerSeen) -> Finding:
    if worker.no_tokenizer is not None:
        change = "set tokenizer.path to a folder with the model's tokenizer on this machine"
        return Finding(worker.worker, Check.PARITY, Level.WARNING, worker.no_tokenizer, change)
    if worker.parity == Parity.FAILED:
        change = "set tokenizer.path to the files that the engine loads, chat template included"
        said = "the router's ids of prompts differ from the engine's: no cache credit"
        return Finding(worker.worker, Check.PARITY, Level.PROBLEM, said, change)
    if worker.parity == Parity.UNKNOWN:
        change = "the engine has no /tokenize; compare predictions with its counts instead (predictions_total)"
        return Finding(worker.worker, Check.PARITY, Level.WARNING, "ids cannot be compared", change)
    return Finding(worker.worker, Check.PARITY, Level.OK, "ids of prompts agree")


def _judge_load(worker: WorkerSeen) -> Finding:
    if worker.load is None:
        change = "SGLang has /v1/loads; vLLM needs its /metrics to be reachable here"
        said = "it tells no load: work that others place there is not seen"
        return Finding(worker.worker, Check.LOAD, Level.WARNING, said, change)
    if worker.load is LoadSource.COUNT:
        ranks = 1 if worker.facts is None else worker.facts.dp_size
        said = "it tells only a count of requests" + ("" if ranks == 1 else ", which says nothing of single ranks")
        return Finding(worker.worker, Check.LOAD, Level.WARNING, said, "let vLLM serve /metrics")
    pushed = ", pushed as it changes" if worker.pushes_load else ""
    return Finding(worker.worker, Check.LOAD, Level.OK, f"told by {worker.load.value}{pushed}")


def _judge_clock(worker: WorkerSeen, ahead_s: float) -> Finding:
    if abs(ahead_s) > MAX_CLOCK_S:
        said = f"its clock is {abs(ahead_s):.0f} s {'ahead' if ahead_s > 0 else 'behind'}"
        return Finding(worker.worker, Check.CLOCK, Level.WARNING, said, "set both machines' clocks by NTP")
    return Finding(worker.worker, Check.CLOCK, Level.OK, "its clock agrees within 2 s")


def _compare(workers: list[WorkerSeen]) -> Iterator[Finding]:
    """What shows only between workers: the same model in blocks of different sizes, or of different pools."""
    sizes: dict[str, dict[int, str]] = {}
    for worker in workers:
        if worker.facts is not None and worker.facts.block_tokens is not None and worker.facts.models:
            sizes.setdefault(worker.facts.models[0], {}).setdefault(worker.facts.block_tokens, worker.worker)
    for model, by_size in sizes.items():
        if len(by_size) > 1:
            said = f"model {model}: " + ", ".join(
                f"blocks of {size} on {name}" for size, name in sorted(by_size.items())
            )
            change = "give all the same --page-size or --block-size; each size is hashed for every prompt"
            yield Finding("fleet", Check.FACTS, Level.WARNING, said, change)
    if not workers:
        yield Finding("fleet", Check.DISCOVERY, Level.PROBLEM, "no worker is known", "see `workers` and `discovery`")
