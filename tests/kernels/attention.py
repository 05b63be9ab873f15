"""What the tests of both paged attentions share: contexts in shuffled pages, and attention as two loops in double."""

import math

import torch


def make_pools(contexts, page_tokens, *, device, spare_pages=3):
    """Pools that hold the contexts' keys and values, NaN elsewhere, and each context's pages.

    `contexts` are pairs of keys and values [tokens, kv_heads, head_dim], all of one dtype.
    """
    needed = [-(-len(keys) // page_tokens) for keys, _ in contexts]
    chance = torch.Generator().manual_seed(7)
    numbers = torch.randperm(sum(needed) + spare_pages, generator=chance).tolist()
    pages = [[numbers.pop() for _ in range(count)] for count in needed]
    row = contexts[0][0].shape[1:] if contexts else (1, 8)
    dtype = contexts[0][0].dtype if contexts else torch.float32
    pools = [torch.full((sum(needed) + spare_pages, page_tokens, *row), math.nan, dtype=dtype) for _ in range(2)]
    for listed, context in zip(pages, contexts, strict=True):
        for pool, rows in zip(pools, context, strict=True):
            for position, one in enumerate(rows):
                pool[listed[position // page_tokens], position % page_tokens] = one
    return pools[0].to(device), pools[1].to(device), pages


def make_contexts(lengths, kv_heads, head_dim, dtype):
    chance = torch.Generator().manual_seed(11)
    return [
        tuple(torch.randn(length, kv_heads, head_dim, generator=chance).to(dtype) for _ in range(2))
        for length in lengths
    ]


def attend(query, keys, values, visible, scale, sink=None):
    """One query head [head_dim] over its key head's context, in double: output and logarithm of the sum."""
    scores = (keys.double() @ query.double() * scale)[visible]
    sunk = scores if sink is None else torch.cat((scores, sink.double().reshape(1)))
    if not len(sunk):
        return torch.zeros(len(query), dtype=torch.float64), -math.inf
    lse = torch.logsumexp(sunk, 0)
    return torch.exp(scores - lse) @ values.double()[visible], float(lse)


def attend_all(queries, keys, values, sees, scale, sinks=None):
    """Every query head of each query of one sequence; `sees[query]` are the positions it sees."""
    group = queries.shape[1] // keys.shape[1]
    outs, lses = torch.zeros(queries.shape, dtype=torch.float64), torch.zeros(queries.shape[:2], dtype=torch.float64)
    for number, query in enumerate(queries):
        for head, one in enumerate(query):
            seen = torch.tensor(sees[number], dtype=torch.long)
            own = keys[:, head // group], values[:, head // group]
            sink = None if sinks is None else sinks[head]
            outs[number, head], lses[number, head] = attend(one, *own, seen, scale, sink)
    return outs, lses
