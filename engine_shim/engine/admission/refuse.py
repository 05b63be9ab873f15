"""Which requests can never be served by an engine of this spec, and what to tell their sender."""

from array import array
from collections.abc import Sequence

from engine_shim.engine.admission.request import EngineRequest, Refusal, RefusalReason
from engine_shim.engine.admission.sequence import OWN_BLOCK
from engine_shim.engine.cache.token_bytes import TOKEN_BYTES, pack_tokens
from engine_shim.engine.spec import EngineSpec


def find_refusal(request: EngineRequest, spec: EngineSpec) -> Refusal | None:
    """Why the request can never be served; None where it can."""
    prompt_tokens = request.count_prompt_tokens(spec.id_tokens)
    if not prompt_tokens:
        return Refusal(reason=RefusalReason.EMPTY_PROMPT, message="the prompt has no tokens; at least 1 is needed")
    if prompt_tokens + 1 > spec.max_model_len:
        message = f"the prompt has {prompt_tokens} tokens; at most {spec.max_model_len - 1} leave room for one more"
        return Refusal(reason=RefusalReason.PROMPT_TOO_LONG, message=message)
    if prompt_tokens + 1 > spec.capacity_tokens:
        message = (
            f"the prompt has {prompt_tokens} tokens and one more is to be generated; "
            f"the pool of {spec.pool_pages} pages holds {spec.capacity_tokens}"
        )
        return Refusal(reason=RefusalReason.LARGER_THAN_POOL, message=message)
    return _find_value_fault(request, spec)


def _find_value_fault(request: EngineRequest, spec: EngineSpec) -> Refusal | None:
    if len(request.prompt_ids) != request.count_prompt_tokens(spec.id_tokens) // spec.id_tokens:
        message = f"{len(request.prompt_ids)} ids are not the full ones of a prompt of {request.prompt_tokens} tokens"
        return Refusal(reason=RefusalReason.LENGTH_MISMATCH, message=message)
    if spec.id_tokens > 1 and request.cache_salt is not None:
        message = "cache_salt: ids of blocks stand for prefixes of one namespace"
        return Refusal(reason=RefusalReason.SALTED_IDS, message=message)
    bound = spec.vocabulary_tokens if spec.id_tokens == 1 else OWN_BLOCK
    token_id = _find_foreign_id(request.prompt_ids, bound)
    if token_id is not None:
        message = f"token id {token_id} is not in 0..{bound - 1}"
        return Refusal(reason=RefusalReason.OUT_OF_VOCABULARY, message=message)
    fault = request.sampling.find_fault()
    return None if fault is None else Refusal(reason=RefusalReason.BAD_SAMPLING, message=fault)


def _find_foreign_id(ids: Sequence[int], bound: int) -> int | None:
    """An id outside `[0, bound)`: the lowest, where it is negative, else the highest."""
    is_packed = isinstance(ids, array) and ids.typecode == "I"
    # Their bytes tell whether the top bit of any is set: block ids are not looked at one by one.
    if is_packed and bound == OWN_BLOCK and pack_tokens(ids)[TOKEN_BYTES - 1 :: TOKEN_BYTES].isascii():
        return None
    lowest, highest = 0 if is_packed else min(ids, default=0), max(ids, default=0)
    if lowest < 0:
        return lowest
    return highest if highest >= bound else None
