"""Sampling fields of the public APIs, checked and turned into the engine's own. Pure."""

from collections.abc import Sequence

from engine_shim.engine.admission.request import SamplingParams
from engine_shim.engine.server.errors import bad_request
from engine_shim.engine.server.limits import MAX_CHOICES, MAX_STOP_CHARS, MAX_STOPS
from engine_shim.engine.server.protocol import GenerationFields, SamplingFields

_SEED_LIMIT = 1 << 63


def openai_sampling(fields: GenerationFields, max_tokens: int | None, default_tokens: int) -> SamplingParams:
    """Sampling of a chat or text completion. Greedy where no temperature is given: the toy model's own default.

    Raises:
        ApiError: A value is out of range.
    """
    return _build(
        {"max_tokens": max_tokens, "temperature": fields.temperature, "top_p": fields.top_p, "seed": fields.seed},
        default_tokens=default_tokens,
        stop_token_ids=fields.stop_token_ids,
        ignore_eos=fields.ignore_eos,
    )


def sglang_sampling(fields: SamplingFields, default_tokens: int) -> SamplingParams:
    """Sampling of `/generate`.

    Raises:
        ApiError: A value is out of range.
    """
    return _build(
        {
            "max_new_tokens": fields.max_new_tokens,
            "temperature": fields.temperature,
            "top_p": fields.top_p,
            "sampling_seed": fields.sampling_seed,
        },
        default_tokens=default_tokens,
        stop_token_ids=fields.stop_token_ids,
        ignore_eos=fields.ignore_eos,
    )


def read_stops(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """Stop strings as a tuple.

    Raises:
        ApiError: Too many, empty or too long.
    """
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > MAX_STOPS:
        raise bad_request(f"at most {MAX_STOPS} stop strings are allowed, got {len(stops)}", "stop")
    if any(not 1 <= len(text) <= MAX_STOP_CHARS for text in stops):
        raise bad_request(f"a stop string must have 1 to {MAX_STOP_CHARS} characters", "stop")
    return stops


def read_choices(n: int | None) -> int:
    """Answers for each prompt.

    Raises:
        ApiError: Out of range.
    """
    choices = 1 if n is None else n
    if not 1 <= choices <= MAX_CHOICES:
        raise bad_request(f"n must be 1 to {MAX_CHOICES}, got {n}", "n")
    return choices


def _build(
    numbers: dict[str, float | None], *, default_tokens: int, stop_token_ids: list[int] | None, ignore_eos: bool | None
) -> SamplingParams:
    """`numbers` holds tokens, temperature, top_p and seed in this order, under the API's names for them."""
    (tokens_name, tokens), (_, temperature), (_, top_p), (seed_name, seed) = numbers.items()
    max_new_tokens = default_tokens if tokens is None else int(tokens)
    if max_new_tokens < 1:
        raise bad_request(f"{tokens_name} must be at least 1, got {max_new_tokens}", tokens_name)
    if temperature is not None and not 0 <= temperature <= 100:
        raise bad_request(f"temperature must be 0 to 100, got {temperature}", "temperature")
    if top_p is not None and not 0 < top_p <= 1:
        raise bad_request(f"top_p must be above 0 and at most 1, got {top_p}", "top_p")
    if seed is not None and not -_SEED_LIMIT <= seed < _SEED_LIMIT:
        raise bad_request(f"{seed_name} must fit 64 bits", seed_name)
    return SamplingParams(
        max_new_tokens=max_new_tokens,
        temperature=temperature or 0.0,
        top_p=1.0 if top_p is None else top_p,
        seed=None if seed is None else int(seed),
        stop_token_ids=tuple(stop_token_ids or ()),
        ignore_eos=bool(ignore_eos),
    )
