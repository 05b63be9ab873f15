"""Which requests can never be served by an engine of this spec, and what to tell their sender."""

from array import array

from engine_shim.engine.admission.request import EngineRequest, Refusal, RefusalReason
from engine_shim.engine.admission.sequence import OWN_BLOCK
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
    ids = request.prompt_ids
    lowest, highest = 0 if isinstance(ids, array) else min(ids, default=0), max(ids, default=0)
    if spec.id_tokens > 1 and request.cache_salt is not None:
        message = "cache_salt: ids of blocks stand for prefixes of one namespace"
        return Refusal(reason=RefusalReason.SALTED_IDS, message=message)
    bound = spec.vocabulary_tokens if spec.id_tokens == 1 else OWN_BLOCK
    if lowest < 0 or highest >= bound:
        token_id = lowest if lowest < 0 else highest
        message = f"token id {token_id} is not in 0..{bound - 1}"
        return Refusal(reason=RefusalReason.OUT_OF_VOCABULARY, message=message)
    fault = request.sampling.find_fault()
    return None if fault is None else Refusal(reason=RefusalReason.BAD_SAMPLING, message=fault)
