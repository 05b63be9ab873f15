"""`dovecote engine`, also `python -m engine_shim.engine`: flags in, a serving process out.

Reads flags and builds the parts; imports torch only when the torch forward is asked for.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import msgspec
import typer

from engine_shim.engine import flags
from engine_shim.engine.engine import Engine
from engine_shim.engine.forward.timed import CostModel, TimedForward
from engine_shim.engine.forward.toy import build_torch_embedder, build_torch_forward
from engine_shim.engine.publish import Endpoint, EventDialect, EventSockets, KvEventsConfigError, parse_kv_events_config
from engine_shim.engine.server import EngineService, ServiceSettings, ServingLimits
from engine_shim.engine.server.process import EngineProcess, listen
from engine_shim.engine.spec import EngineSpec
from engine_shim.engine.tokenizer import TOY_FOLDER, Tokenizer


def engine(
    *,
    host: flags.Host = "127.0.0.1",
    port: flags.Port = 30_000,
    dp_size: flags.DpSize = 1,
    forward: flags.Forward = flags.ForwardKind.TORCH,
    model: flags.Model = "dovecote-toy",
    tokenizer: flags.Tokenizer = TOY_FOLDER,
    page_tokens: flags.PageTokens = 16,
    pool_pages: flags.PoolPages = 4_096,
    max_running_requests: flags.MaxRunningRequests = 16,
    prefill_chunk_tokens: flags.PrefillChunkTokens = 512,
    max_model_len: flags.MaxModelLen = 131_072,
    seed: flags.Seed = 0,
    event_dialect: flags.Dialect = EventDialect.SGLANG_MAP,
    kv_events_port_base: flags.KvEventsPortBase = 0,
    replay_port_base: flags.ReplayPortBase = 0,
    buffer_steps: flags.BufferSteps = 10_000,
    kv_events_config: flags.KvEventsConfig = None,
    timed_prefill_tokens_per_s: flags.TimedPrefillTokensPerS = 20_000.0,
    timed_prefill_pair_ns: flags.TimedPrefillPairNs = 0.0,
    timed_decode_step_ms: flags.TimedDecodeStepMs = 10.0,
    time_scale: flags.TimeScale = 1.0,
    max_body_bytes: flags.MaxBodyBytes = 32 << 20,
    log_level: flags.LogLevel = flags.LogLevels.WARNING,
) -> None:
    """Serve a small real engine with cache events."""
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    with _refusing(), ExitStack() as undo:
        text = Tokenizer(tokenizer)
        spec = EngineSpec(
            page_tokens=page_tokens,
            pool_pages=pool_pages,
            max_running_requests=max_running_requests,
            prefill_chunk_tokens=prefill_chunk_tokens,
            max_model_len=max_model_len,
            vocabulary_tokens=text.vocabulary_tokens,
            eos_token_ids=(text.eos_id,),
            seed=seed,
        )
        cost_model = _cost_model(timed_prefill_tokens_per_s, timed_prefill_pair_ns, timed_decode_step_ms, time_scale)
        sockets = _event_sockets(host, kv_events_port_base, replay_port_base, buffer_steps, kv_events_config)
        limits = ServingLimits(body_bytes=max_body_bytes)
        settings = ServiceSettings(spec=spec, model=model, dp_size=dp_size, host=host, event_sockets=sockets)
        settings = msgspec.structs.replace(settings, dialect=event_dialect, limits=limits)
        build_engine = _engine_builder(forward, spec, cost_model)
        listener = undo.enter_context(listen(host, port))
        service = EngineService(settings, text, build_engine, embed=_embedder(forward, spec))
        undo.pop_all()
    EngineProcess(service, listener, log_level=log_level).serve_until_told()


def _cost_model(prefill_tokens_per_s: float, pair_ns: float, decode_step_ms: float, time_scale: float) -> CostModel:
    return CostModel(
        prefill_token_s=1 / prefill_tokens_per_s,
        prefill_pair_s=pair_ns * 1e-9,
        decode_step_s=decode_step_ms * 1e-3,
        time_scale=time_scale,
    )


def _engine_builder(forward: flags.ForwardKind, spec: EngineSpec, cost_model: CostModel) -> Callable[[int], Engine]:
    """Makes a rank's engine, each with a pool of its own."""
    spec.validate()
    if forward is flags.ForwardKind.TIMED:
        return lambda rank: Engine(spec, TimedForward(cost_model, spec=spec), dp_rank=rank)
    _prepare_torch()
    return lambda rank: Engine(spec, build_torch_forward(spec, spec.seed), dp_rank=rank)


def _embedder(forward: flags.ForwardKind, spec: EngineSpec) -> Callable[[Sequence[int]], list[float]] | None:
    """Makes vectors of texts; None where nothing computes any."""
    return build_torch_embedder(spec, spec.seed) if forward is flags.ForwardKind.TORCH else None


def _prepare_torch() -> None:
    """One thread a rank is what the ranks already have; more would fight over the cores."""
    try:
        import torch  # noqa: PLC0415  (optional and slow)
    except ImportError as error:
        message = "the torch forward needs torch: install dovecote[engine], or use --forward timed"
        raise ImportError(message) from error
    torch.set_num_threads(1)


def _event_sockets(
    host: str, kv_events_port_base: int, replay_port_base: int, buffer_steps: int, config_json: str | None
) -> EventSockets | None:
    if config_json is None:
        live, replay = Endpoint(host, kv_events_port_base), Endpoint(host, replay_port_base)
        return EventSockets(live=live, replay=replay, buffer_steps=buffer_steps)
    if kv_events_port_base or replay_port_base:
        raise KvEventsConfigError("--kv-events-config names the ports; leave the port flags out")
    return parse_kv_events_config(config_json)


@contextmanager
def _refusing() -> Iterator[None]:
    """What cannot work is said in one line on stderr, with exit status 2."""
    try:
        yield
    except (ImportError, OSError, ValueError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error


def main() -> None:
    """Entry of `python -m engine_shim.engine`."""
    typer.run(engine)
