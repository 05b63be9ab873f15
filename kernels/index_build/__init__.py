"""What a decode step needs to know of its sequences, made on the device from lengths that only the device knows."""

from torch import Tensor

from kernels.checks import check_index, check_integers, check_like, check_range
from kernels.dispatch import check_devices, implementation
from kernels.errors import ShapeMismatch
from kernels.index_build.indices import TILE_TOKENS, DecodeIndices

__all__ = ["TILE_TOKENS", "DecodeIndices", "build_decode_indices", "build_split_plan"]


def build_decode_indices(
    page_table: Tensor,
    request_ids: Tensor,
    seq_lens: Tensor,
    *,
    page_tokens: int,
    window_tokens: int | None = None,
    out: DecodeIndices | None = None,
) -> DecodeIndices:
    """Make all indices of a step in one launch, without a look at the lengths from the host.

    Args:
        page_table: Pages of all requests in order, [requests, pages_max], int32 or int64.
        request_ids: Which request each sequence of the step is, [sequences], int32 or int64.
        seq_lens: Length of each, the new token included, [sequences], same dtype; 0 for a place that is empty.
        page_tokens: Tokens in a page.
        window_tokens: Only the last so many tokens are to be read.
        out: Written when given, so that a captured graph finds it where it was: `DecodeIndices.empty(...)`.

    Returns:
        `out`, or new tensors.

    Raises:
        ShapeMismatch: Dimensions do not fit.
        DtypeMismatch: Dtypes or devices differ.
        PageOutOfRange: A request is not one of the table's, or a sequence longer than its line of it.

    Cost: each sequence's pages read and written once; one launch; no sync.
    Reference: kernels/index_build/reference.py.
    """
    if page_table.dim() != 2:
        raise ShapeMismatch(f"page_table is {tuple(page_table.shape)}, not [requests, pages_max]")
    if page_tokens < 1:
        raise ShapeMismatch(f"pages of {page_tokens} tokens")
    check_integers("page_table", page_table)
    check_index("request_ids", request_ids, limit=page_table.shape[0])
    check_like("seq_lens", seq_lens, tuple(request_ids.shape), request_ids.dtype)
    check_range("seq_lens", seq_lens, limit=page_table.shape[1] * page_tokens + 1)
    _check_window(window_tokens)
    if out is None:
        out = DecodeIndices.empty(len(seq_lens), page_table)
    _check_room(out, page_table, len(seq_lens))
    check_devices(page_table=page_table, request_ids=request_ids, seq_lens=seq_lens)
    module = implementation("index_build", page_table)
    module.build_decode_indices(page_table, request_ids, seq_lens, page_tokens, window_tokens, out)
    return out


def build_split_plan(seq_lens: Tensor, *, window_tokens: int | None = None, out: Tensor | None = None) -> Tensor:
    """How many tiles of `TILE_TOKENS` tokens lie before each sequence: what programs of an attention share.

    Args:
        seq_lens: [sequences], int32 or int64.
        window_tokens: Only the last so many tokens are to be read; tiles start at multiples of `TILE_TOKENS`.
        out: Written when given, [sequences + 1], int32.

    Returns:
        `out`, or a new tensor: a running sum from 0.

    Raises:
        ShapeMismatch: Dimensions do not fit.
        DtypeMismatch: Dtypes or devices differ.

    Cost: one launch; no sync.
    Reference: kernels/index_build/reference.py.
    """
    check_index("seq_lens", seq_lens, limit=2**31)
    _check_window(window_tokens)
    if out is None:
        out = seq_lens.new_empty((len(seq_lens) + 1,), dtype=DecodeIndices.OFFSET_DTYPE)
    check_like("out", out, (len(seq_lens) + 1,), DecodeIndices.OFFSET_DTYPE)
    check_devices(seq_lens=seq_lens, out=out)
    implementation("index_build", seq_lens).build_split_plan(seq_lens, window_tokens, out)
    return out


def _check_window(window_tokens: int | None) -> None:
    if window_tokens is not None and window_tokens < 1:
        raise ShapeMismatch(f"a window of {window_tokens} tokens")


def _check_room(out: DecodeIndices, page_table: Tensor, sequences: int) -> None:
    pages = sequences * page_table.shape[1]
    if out.page_ids.dim() != 1 or len(out.page_ids) < pages:
        raise ShapeMismatch(f"{sequences} sequences have {pages} pages, `out` takes {tuple(out.page_ids.shape)}")
    check_like("page_ids of `out`", out.page_ids, tuple(out.page_ids.shape), page_table.dtype)
    check_like("page_offsets of `out`", out.page_offsets, (sequences + 1,), DecodeIndices.OFFSET_DTYPE)
    check_like("tile_offsets of `out`", out.tile_offsets, (sequences + 1,), DecodeIndices.OFFSET_DTYPE)
    check_like("slots of `out`", out.slots, (sequences,), DecodeIndices.SLOT_DTYPE)
    places = {name: getattr(out, name) for name in ("page_ids", "page_offsets", "tile_offsets", "slots")}
    check_devices(page_table=page_table, **places)
