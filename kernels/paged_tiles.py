"""Where the tokens of a tile lie, in Triton: what both paged attentions read keys and values by."""

import triton
import triton.language as tl


@triton.jit
def load_pages(
    pages: tl.tensor,
    tile: tl.tensor,
    end_token: tl.tensor,
    PAGE_TOKENS: tl.constexpr,
    TILE: tl.constexpr,
) -> tl.tensor:
    """The page of each token of a tile, [TILE], or the one page that holds them all; 0 from `end_token` on."""
    if PAGE_TOKENS % TILE == 0:
        first = tile * TILE
        page = tl.load(pages + first // PAGE_TOKENS, mask=first < end_token, other=0)
    else:
        token = tile * TILE + tl.arange(0, TILE)
        page = tl.load(pages + token // PAGE_TOKENS, mask=token < end_token, other=0)
    return page
