"""Bodies of the two legs: the client's own, told in each engine's way who the partner is. Pure.

Every other byte stays as it came. SGLang's engines get the same request and find each other by a room; of vLLM's the
prefill engine gets a copy that asks for one token, and what it answers in `kv_transfer_params` goes to the decode
engine as it is.
Source: SGLang `srt/disaggregation/common/conn.py`; vLLM NixlConnector (`kv_transfer_params`); docs/faults.md C16.
"""

from collections.abc import Sequence

import msgspec

from router.errors import UpstreamError
from router.fleet.role import Bootstrap
from router.proxy import splice

#: Asks a vLLM prefill engine to keep a prompt's cache for another one.
_ASK_TO_KEEP = msgspec.json.encode(
    {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }
)
#: Members that limit an answer to one token, where the client sent them; `max_tokens` is put in any case, but for forms
#: that have a name of their own.
_ONE_TOKEN = {"max_completion_tokens": b"1", "max_output_tokens": b"1", "stream": b"false", "store": b"false"}
#: Members that make no sense for one token that nobody reads.
_NOT_FOR_PREFILL = ("min_tokens", "stream_options", "n", "best_of", "use_beam_search")


class NoTransferError(UpstreamError):
    """A prefill worker answered without saying where its cache is."""

    code = "no_kv_transfer_params"


class SglangLeg(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine of an SGLang pair is told."""

    bootstrap: Bootstrap
    #: A room for each answer; one alone goes as a number.
    rooms: Sequence[int]
    #: Name by which the leg can be aborted; None for batches, whose items have names of their own.
    rid: str | None
    #: Rank that is to serve it; None where the worker has one.
    dp_rank: int | None
    #: Rank that prefills, told to the decode engine; None where the prefill worker has one, and for the prefill engine.
    prefill_dp_rank: int | None = None


def write_sglang_leg(body: bytes, leg: SglangLeg) -> bytes:
    """The body of one leg."""
    count = len(leg.rooms)
    put: dict[str, object] = {
        "bootstrap_host": leg.bootstrap.host if count == 1 else [leg.bootstrap.host] * count,
        "bootstrap_port": leg.bootstrap.port if count == 1 else [leg.bootstrap.port] * count,
        "bootstrap_room": leg.rooms[0] if count == 1 else list(leg.rooms),
    }
    if leg.rid is not None and count == 1:
        put["rid"] = leg.rid
    if leg.dp_rank is not None:
        put["routed_dp_rank"] = leg.dp_rank
    if leg.prefill_dp_rank is not None:
        put["disagg_prefill_dp_rank"] = leg.prefill_dp_rank
    return splice.splice(body, put={name: msgspec.json.encode(value) for name, value in put.items()}, cut=())


def write_vllm_prefill(body: bytes) -> bytes:
    """The copy for a prefill engine: one token, not streamed, its cache kept for another."""
    present = {member.name for member in splice.find_members(body)}
    put = {name: value for name, value in _ONE_TOKEN.items() if name in present}
    if "max_output_tokens" not in present:
        put["max_tokens"] = b"1"
    return splice.splice(body, put={**put, "kv_transfer_params": _ASK_TO_KEEP}, cut=_NOT_FOR_PREFILL)


def write_vllm_decode(body: bytes, params: bytes) -> bytes:
    """The client's request with where the cache is."""
    return splice.splice(body, put={"kv_transfer_params": params}, cut=())


class _PrefillAnswer(msgspec.Struct):
    kv_transfer_params: msgspec.Raw = msgspec.Raw(b"null")


_PREFILL_ANSWER = msgspec.json.Decoder(_PrefillAnswer)


def read_transfer_params(answer: bytes) -> bytes:
    """What a vLLM prefill engine says of where its cache is, as it stands there.

    Raises:
        NoTransferError: It says nothing.
    """
    try:
        params = bytes(_PREFILL_ANSWER.decode(answer).kv_transfer_params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        params = b""
    if not params.startswith(b"{"):
        raise NoTransferError("the prefill worker's answer has no kv_transfer_params; is its --kv-transfer-config set?")
    return params
