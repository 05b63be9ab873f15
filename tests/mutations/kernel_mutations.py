"""Ways to break what the kernels promise: bytes at their places and nowhere else, nothing of what is not to be seen."""

from catalogue import Mutation

TOKENS = ("tests/kernels/test_token_copies.py",)
PAGES = ("tests/kernels/test_page_copies.py",)
DECODE = ("tests/kernels/test_paged_decode_attention.py",)
EXTEND = ("tests/kernels/test_paged_extend_attention.py",)
DELTA = ("tests/kernels/test_gated_delta_rule.py",)
COMPILED = ("tests/kernels/test_sm90.py",)

KERNELS = (
    Mutation(
        "a copy begins where its first page begins",
        "kernels/row_copy/kernel.py",
        "(flat >= first_unit.to(tl.int64) * UNIT) & (flat < end_unit.to(tl.int64) * UNIT)",
        "flat < end_unit.to(tl.int64) * UNIT",
        TOKENS,
    ),
    Mutation(
        "a ring of pages does not wrap around",
        "kernels/row_copy/kernel.py",
        "copy.ring_entries or copy.entries,",
        "max(1, (copy.ring_entries or copy.entries) - 1),",
        TOKENS,
    ),
    Mutation(
        "copies move 8 bytes at a time",
        "kernels/row_copy/kernel.py",
        "size_bytes, common_bytes // size_bytes, size_bytes)",
        "size_bytes, 1, size_bytes)",
        COMPILED,
    ),
    Mutation(
        "every length is compiled for",
        "kernels/paged_decode_attention/kernel.py",
        "@triton.jit(do_not_specialize=_RUNTIME, do_not_specialize_on_alignment=_INDICES)",
        "@triton.jit",
        COMPILED,
    ),
    Mutation(
        "a place may be written twice",
        "kernels/checks.py",
        "if bool((ordered[1:] == ordered[:-1]).any()):",
        "if False:",
        (*PAGES, *TOKENS),
    ),
    Mutation(
        "the page after the last is a page",
        "kernels/checks.py",
        "if least < lowest or most >= limit:",
        "if least < lowest or most > limit:",
        PAGES,
    ),
    Mutation(
        "memory that overlaps is copied",
        "kernels/checks.py",
        "if name in written or other in written:",
        "if False:",
        PAGES,
    ),
    Mutation(
        "two components may write one row",
        "kernels/component_gather/__init__.py",
        "torch.cat(parts[place]) if len(parts[place]) > 1 else parts[place][0]",
        "parts[place][0]",
        ("tests/kernels/test_component_gather.py",),
    ),
    Mutation(
        "two tokens may have one slot",
        "kernels/paged_append/__init__.py",
        'check_distinct("slots", slots[slots >= 0])',
        "pass",
        ("tests/kernels/test_paged_append.py",),
    ),
    Mutation(
        "a plan of another window is taken",
        "kernels/paged_decode_attention/__init__.py",
        "if not torch.equal(tile_offsets, expected):",
        "if False:",
        DECODE,
    ),
    Mutation(
        "a context that is no number is an empty one",
        "kernels/paged_decode_attention/kernel.py",
        "is_any = weight != 0.0",
        "is_any = weight > 0.0",
        DECODE,
    ),
    Mutation(
        "a part that is no number takes no part",
        "kernels/lse_merge/kernel.py",
        'is_full = weight != float("-inf")',
        'is_full = weight > float("-inf")',
        ("tests/kernels/test_lse_merge.py",),
    ),
    Mutation(
        "float8 of no number is a number",
        "kernels/paged_append/kernel.py",
        "bits = tl.where(scaled == scaled,",
        "bits = tl.where(write_at >= 0,",
        ("tests/kernels/test_paged_append.py",),
    ),
    Mutation(
        "a gate that is closed leaves no number",
        "kernels/gated_delta_rule/kernel.py",
        "decay = tl.cumsum(tl.where(gate < LEAST, LEAST, gate), 0)",
        "decay = tl.cumsum(gate, 0)",
        DELTA,
    ),
    Mutation(
        "a token without a slot has the last one",
        "kernels/paged_append/reference.py",
        "kept = slots >= 0",
        "kept = slots >= -1",
        ("tests/kernels/test_paged_append.py",),
    ),
    Mutation(
        "a checksum does not know where its words lie",
        "kernels/canary/kernel.py",
        "(place.to(tl.uint64) * PLACE)",
        "(place.to(tl.uint64) * 0)",
        ("tests/kernels/test_canary.py",),
    ),
    Mutation(
        "an empty part takes part",
        "kernels/lse_merge/kernel.py",
        "added = tl.where(is_full, tl.exp(weight - higher), 0.0)",
        "added = tl.exp(weight - higher)",
        ("tests/kernels/test_lse_merge.py",),
    ),
    Mutation(
        "a window is a token longer",
        "kernels/paged_decode_attention/kernel.py",
        "first_token = tl.maximum(length - window_tokens, 0)",
        "first_token = tl.maximum(length - window_tokens - 1, 0)",
        DECODE,
    ),
    Mutation(
        "programs without a tile leave a partial",
        "kernels/paged_decode_attention/kernel.py",
        "(part <= last_program) & (part * total // programs < (part + 1) * total // programs)",
        "part <= last_program",
        DECODE,
    ),
    Mutation(
        "a token sees the next one",
        "kernels/paged_extend_attention/kernel.py",
        "is_visible = position[None, :] <= stand[:, None]",
        "is_visible = position[None, :] <= stand[:, None] + 1",
        EXTEND,
    ),
    Mutation(
        "a drafted token stands where it lies",
        "kernels/paged_extend_attention/kernel.py",
        "(mask & is_own).sum(1)",
        "(mask | is_own).sum(1)",
        EXTEND,
    ),
    Mutation(
        "chunks begin where rows begin",
        "kernels/gated_delta_rule/kernel.py",
        "    start = position % CHUNK\n",
        "    start = position * 0\n",
        DELTA,
    ),
    Mutation(
        "the inverse ends with its diagonal blocks",
        "kernels/gated_delta_rule/kernel.py",
        "inverse -= tl.dot(inverse, below",
        "inverse -= 0 * tl.dot(inverse, below",
        DELTA,
    ),
    Mutation(
        "all layers of a component lie on the first",
        "kernels/component_gather/kernel.py",
        "packed_row = layer * rows + row",
        "packed_row = row",
        ("tests/kernels/test_component_gather.py",),
    ),
    Mutation(
        "an empty sequence has a slot",
        "kernels/index_build/kernel.py",
        "page * page_tokens + last % page_tokens, -1)",
        "page * page_tokens + last % page_tokens, 0)",
        ("tests/kernels/test_index_build.py",),
    ),
)
