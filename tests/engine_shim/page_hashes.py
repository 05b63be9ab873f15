"""Hashes of all pages of a prompt at once, where an engine names them one by one."""

from itertools import pairwise

from engine_shim.engine.cache.page_hash import chain_digests, event_hash, namespace_digest
from engine_shim.engine.cache.token_bytes import pack_tokens


def page_hashes(token_ids, page_tokens, *, cache_salt=None, bigram=False):
    """Event hashes of the full pages; under `bigram` a page holds `page_tokens` pairs of neighbours."""
    units = [token_id for pair in pairwise(token_ids) for token_id in pair] if bigram else token_ids
    width = 2 * page_tokens if bigram else page_tokens
    return [event_hash(digest) for digest in chain_digests(namespace_digest(cache_salt), pack_tokens(units), width)]
