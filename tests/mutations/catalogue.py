"""Ways to break what the project promises, each with the tests that must turn red.

A mutation is a text that stands in a file just once, and what takes its place. One whose text is not found is an
error, so that the catalogue moves on with the source.
"""

from typing import NamedTuple

HYBRID = ("tests/contracts/test_index_hybrid_contract.py",)
TIERS = ("tests/contracts/test_index_contract.py", "tests/contracts/test_index_tiers_contract.py")
STREAM = ("tests/prefix_index/test_sequence.py", "tests/prefix_index/test_stream.py")
SNAPSHOT = ("tests/prefix_index/test_stream_snapshots.py", "tests/prefix_index/test_sequence.py")
PROMPTS = ("tests/router/prompt/test_incremental_prompts.py", "tests/router/prompt/test_segmented_tokenizer.py")
CONTRACTS = (*TIERS, *HYBRID)
BAD_EVENTS = ("tests/loop/test_bad_events.py",)
NATIVE = ("tests/contracts/test_index_contract.py", "tests/models/test_index_twins.py")


class Mutation(NamedTuple):
    """One way to break one file."""

    name: str
    path: str
    find: str
    put: str
    tests: tuple[str, ...]


RESIDENCY = "prefix_index/residency.py"
NAIVE = "prefix_index/naive.py"
COMPONENTS = "prefix_index/components.py"
REUSE = "prefix_index/reuse.py"
SEQUENCE = "prefix_index/sequence.py"

PYTHON = (
    Mutation(
        "a life that a late batch had ended never begins again",
        "prefix_index/stream.py",
        "        if is_old:\n",
        "        if is_old or self._lives.has_ended(header.incarnation):\n",
        SNAPSHOT,
    ),
    Mutation(
        "a copy too many is removed",
        RESIDENCY,
        "count = block.copies.get(slot, 1) - 1\n",
        "count = max(0, block.copies.get(slot, 1) - 2)\n",
        TIERS,
    ),
    Mutation(
        "second copies are not counted",
        RESIDENCY,
        "slot: block.copies.get(slot, 0) + (adds_copy or slot not in block.copies)}",
        "slot: 1}",
        TIERS,
    ),
    Mutation(
        "every store is a copy, told again or not",
        RESIDENCY,
        "(adds_copy or slot not in block.copies)}",
        "1}",
        TIERS,
    ),
    Mutation(
        "a removal takes from the device whatever its tier",
        RESIDENCY,
        "        slot = (event.group_idx, tier or Medium.DEVICE)\n",
        "        slot = (event.group_idx, Medium.DEVICE)\n",
        TIERS,
    ),
    Mutation(
        "a store goes to the device whatever its tier",
        RESIDENCY,
        "self._store(event, (event.group_idx, tier),",
        "self._store(event, (event.group_idx, Medium.DEVICE),",
        TIERS,
    ),
    Mutation(
        "groups share their removals",
        RESIDENCY,
        "        slot = (event.group_idx, tier or Medium.DEVICE)\n",
        "        slot = (next(iter(self.told.groups)), tier or Medium.DEVICE)\n",
        TIERS,
    ),
    Mutation(
        "a block of an unknown parent starts a prompt",
        RESIDENCY,
        "        if parent is None:\n            seed",
        "        if parent not in self.blocks:\n            seed",
        TIERS,
    ),
    Mutation(
        "a clear keeps the names of what was there",
        RESIDENCY,
        "for each in (self.blocks, self.parked,",
        "for each in (self.parked,",
        TIERS,
    ),
    Mutation(
        "one doubted block is proved at a time",
        RESIDENCY,
        "            names = claims.get(block.place.above, [])\n",
        "            names = []\n",
        (*CONTRACTS, *STREAM),
    ),
    Mutation(
        "a window is a token short",
        COMPONENTS,
        "end_tokens - self.window_tokens + 1)",
        "end_tokens - self.window_tokens + 2)",
        HYBRID,
    ),
    Mutation(
        "a window is a token long",
        COMPONENTS,
        "end_tokens - self.window_tokens + 1)",
        "end_tokens - self.window_tokens)",
        HYBRID,
    ),
    Mutation(
        "a checkpoint one block before is taken",
        REUSE,
        "ending.setdefault(index * size, [])",
        "ending.setdefault((index + 1) * size, [])",
        HYBRID,
    ),
    Mutation(
        "a checkpoint one block after is taken",
        REUSE,
        "ending.setdefault(index * size, [])",
        "ending.setdefault((index - 1) * size, [])",
        HYBRID,
    ),
    Mutation(
        "no checkpoint is needed",
        COMPONENTS,
        "return max(0, end_tokens - 1)",
        "return end_tokens",
        HYBRID,
    ),
    Mutation(
        "a single block told again adds no copy",
        RESIDENCY,
        "parent is not None or len(names) < 2 or",
        "parent is not None or",
        BAD_EVENTS,
    ),
    Mutation(
        "the group that decides is not waited for",
        REUSE,
        "return numbers == list(range(len(numbers)))",
        "return True",
        HYBRID,
    ),
    Mutation(
        "the last token is not computed again",
        NAIVE,
        "    views, limit = _find_views(rank, chain), chain.token_count - 1\n",
        "    views, limit = _find_views(rank, chain), chain.token_count\n",
        CONTRACTS,
    ),
    Mutation(
        "replayed batches are applied again",
        SEQUENCE,
        "        if self._torn or seq < self._next:\n",
        "        if self._torn:\n",
        STREAM,
    ),
    Mutation(
        "live batches are applied again after a replay",
        SEQUENCE,
        "        if self.applied is not None and seq <= self.applied:\n            return step\n        if is_damaged",
        "        if is_damaged",
        STREAM,
    ),
    Mutation(
        "gaps are not seen",
        SEQUENCE,
        "        elif seq == self._next and seq not in",
        "        elif seq >= self._next and seq not in",
        STREAM,
    ),
    Mutation(
        "a number that goes backwards is no restart",
        SEQUENCE,
        "        if is_behind or self._contradicts(seq, mark):\n",
        "        if self._contradicts(seq, mark):\n",
        STREAM,
    ),
    Mutation(
        "the batch of the watermark is applied again",
        SEQUENCE,
        "            self.applied = watermark\n",
        "            self.applied = watermark - 1\n",
        SNAPSHOT,
    ),
    Mutation(
        "the batch after the watermark is lost",
        SEQUENCE,
        "            self.applied = watermark\n",
        "            self.applied = watermark + 1\n",
        SNAPSHOT,
    ),
    Mutation(
        "events of an earlier registration count",
        NAIVE,
        "        if rank is None or generation not in (None, rank.generation):\n",
        "        if rank is None:\n",
        TIERS,
    ),
    Mutation(
        "salts share their blocks",
        "wire/block_hash.py",
        "for text in (model, adapter, cache_salt))",
        "for text in (model, adapter, None))",
        ("tests/wire/test_block_hash.py",),
    ),
    Mutation(
        "images enter without their place in the block",
        "router/prompt/media.py",
        "keys += (item.key, item.offset - start)",
        "keys += (item.key, item.offset)",
        ("tests/router/prompt/test_prompt_identity.py",),
    ),
    Mutation(
        "texts are cut after tokens that swallow blanks",
        "router/prompt/added.py",
        "if content not in widened and content not in swallowed",
        "if content not in swallowed",
        PROMPTS,
    ),
    Mutation(
        "a turn keeps a token too many",
        "router/prompt/turns.py",
        "kept_tokens + len(more))",
        "kept_tokens + len(more) + 1)",
        PROMPTS,
    ),
    Mutation(
        "a first request's tokens behind its last cut are kept",
        "router/prompt/turns.py",
        "known.tokens - len(self._tokenizer.encode(rest))",
        "known.tokens",
        PROMPTS,
    ),
    Mutation(
        "tools make no chat longer",
        "router/prompt/turns.py",
        "len(messages) + (0 if tools is None else len(tools))",
        "len(messages)",
        PROMPTS,
    ),
    Mutation(
        "a short chat of many messages is rendered anew",
        "router/prompt/turns.py",
        "size_bytes <= FEW_BYTES and len(find_roles(messages, FEW_MESSAGES + 1)) <= FEW_MESSAGES",
        "size_bytes <= FEW_BYTES",
        PROMPTS,
    ),
    Mutation(
        "an end that goes takes its length with it",
        "router/prompt/prefixes.py",
        "        if left:\n            self._counts[length] = left\n        else:\n",
        "        if left >= 0:\n",
        ("tests/router/prompt/test_prefixes.py",),
    ),
    Mutation(
        "how a first request ends is told by how the next one ends",
        "router/prompt/append.py",
        "setting, asks=opening.asks)",
        "setting, asks=setting.renders_generation())",
        PROMPTS,
    ),
    Mutation(
        "a first request is rendered as often as one that goes on",
        "router/prompt/turns.py",
        "            known = KnownPart(opening, len(run.ids))\n",
        "            self._appender.settle(opening, _setting(request, options, form))\n"
        "            known = KnownPart(opening, len(run.ids))\n",
        PROMPTS,
    ),
)

HOLDER = "prefix_index/core/holder.cpp"
CHANGE = "prefix_index/core/holder_change.cpp"
CORE_RULES = "prefix_index/core/component.hpp"
NATIVE_HYBRID = (*HYBRID, "tests/models/test_index_twins.py")

SCAN = "router/prompt/text/scan.cpp"
SCAN_TESTS = ("tests/router/prompt/test_native_text.py",)

LINES = "router/proxy/header_lines/lines.cpp"
LINES_MODULE = "router/proxy/header_lines/module.cpp"
LINES_TESTS = ("tests/router/proxy/test_native_lines.py",)

GLANCE = "router/proxy/event_text/alike.cpp"
GLANCE_TESTS = ("tests/router/proxy/test_native_alike.py", "tests/router/proxy/test_alike.py")

NATIVE_CODE = (
    Mutation(
        "native: a text that ends its field is more of the same",
        GLANCE,
        "std::memchr(text.data(), '\"', text.size()) != nullptr) return false",
        "std::memchr(text.data(), '\"', text.size()) != nullptr) {}",
        GLANCE_TESTS,
    ),
    Mutation("native: a quote may be escaped", GLANCE, "event[end - 1] != '\\\\'", "true", GLANCE_TESTS),
    Mutation("native: a chunk may be of any length", GLANCE, " || size > kMaxChunkBytes", "", GLANCE_TESTS),
    Mutation(
        "native: behind a chunk anything may stand",
        GLANCE,
        " || !data.substr(size).starts_with(kLineEnd)",
        "",
        GLANCE_TESTS,
    ),
    Mutation("native: a line end within a line passes", LINES, " || holds(text, '\\r')", "", LINES_TESTS),
    Mutation("native: another coding than chunks passes", LINES, "++other_codings;", ";", LINES_TESTS),
    Mutation(
        "native: lines that the connection names cross",
        LINES_MODULE,
        "(!named.empty() && named.contains(lowered)) || ",
        "",
        LINES_TESTS,
    ),
    Mutation("native: the router's own line stands twice", LINES_MODULE, " || own.contains(name)", "", LINES_TESTS),
    Mutation("native: trailers are lines of a head", LINES_MODULE, "!is_open_ || ", "", LINES_TESTS),
    Mutation(
        "native: a head has any number of lines",
        LINES_MODULE,
        " || static_cast<std::size_t>(PyList_GET_SIZE(lines_.ptr())) == max_lines_",
        "",
        LINES_TESTS,
    ),
    Mutation(
        "native: a byte that all of the interpreter shares is written",
        LINES_MODULE,
        "PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(before",
        "PyBytes_FromStringAndSize(before.data(), static_cast<Py_ssize_t>(before",
        LINES_TESTS,
    ),
    Mutation("native: half a surrogate pair is text", SCAN, "second <= 0xDFFF;", "second <= 0xFFFF;", SCAN_TESTS),
    Mutation(
        "native: an escaped quote ends its string",
        SCAN,
        "(mask_of(quotes) & ~escaped)",
        "mask_of(quotes)",
        SCAN_TESTS,
    ),
    Mutation("native: any character may be escaped", SCAN, " | (wrong >> 1);", ";", SCAN_TESTS),
    Mutation("native: every backslash of a row escapes", SCAN, "(odd_begins + escaping)", "odd_begins", SCAN_TESTS),
    Mutation("native: a surrogate is UTF-8", SCAN, "(c == 0xED && next > 0x9F) || ", "", SCAN_TESTS),
    Mutation(
        "native: longer forms of one byte are text",
        SCAN,
        "(begins & 0x0080008000800080u) != 0x",
        "(begins & 0) != 0 * 0x",
        SCAN_TESTS,
    ),
    Mutation("native: a member may stand twice", SCAN, " || is_known(members, member)", "", SCAN_TESTS),
    Mutation(
        "native: a chunk forgets those before it", "router/prompt/text/chunks.hpp", "before_ = hash;", "", SCAN_TESTS
    ),
    Mutation(
        "native: one removal takes all copies",
        CHANGE,
        "copies.set(id, count > 0 ? count - 1 : 0);",
        "copies.set(id, 0);",
        NATIVE,
    ),
    Mutation(
        "native: a removal takes two copies",
        CHANGE,
        "copies.set(id, count > 0 ? count - 1 : 0);",
        "copies.set(id, count > 1 ? count - 2 : 0);",
        NATIVE,
    ),
    Mutation(
        "native: second copies are not counted",
        HOLDER,
        "copies.set(arrival.shelf_id, count + 1);",
        "copies.set(arrival.shelf_id, 1);",
        NATIVE,
    ),
    Mutation(
        "native: a removal takes from the device whatever its tier",
        CHANGE,
        "const ShelfId id = group->tiers[event.tier].shelf;",
        "const ShelfId id = group->tiers[group->tiers[kDevice].is_open() ? kDevice : event.tier].shelf;",
        NATIVE,
    ),
    Mutation(
        "native: a store goes to the device whatever its tier",
        HOLDER,
        "shelf = open_shelf(*group, event.tier, event.block_tokens, delta);",
        "shelf = open_shelf(*group, kDevice, event.block_tokens, delta);",
        NATIVE,
    ),
    Mutation(
        "native: a window is a token short",
        CORE_RULES,
        "? end_tokens - component.window_tokens + 1 : 0;",
        "? end_tokens - component.window_tokens + 2 : 0;",
        NATIVE_HYBRID,
    ),
    Mutation(
        "native: a window is a token long",
        CORE_RULES,
        "? end_tokens - component.window_tokens + 1 : 0;",
        "? end_tokens - component.window_tokens : 0;",
        NATIVE_HYBRID,
    ),
    Mutation(
        "native: no checkpoint is needed",
        CORE_RULES,
        "return end_tokens > 0 ? end_tokens - 1 : 0;",
        "return end_tokens;",
        NATIVE_HYBRID,
    ),
    Mutation(
        "native: a checkpoint one block before is taken",
        "prefix_index/core/reuse.cpp",
        "prompt.tree.find(chain->at(index - 1))",
        "prompt.tree.find(chain->at(index > 1 ? index - 2 : 0))",
        NATIVE_HYBRID,
    ),
    Mutation(
        "native: a checkpoint one block after is taken",
        "prefix_index/core/reuse.cpp",
        "prompt.tree.find(chain->at(index - 1))",
        "prompt.tree.find(chain->at(index < chain->count ? index : index - 1))",
        NATIVE_HYBRID,
    ),
    Mutation(
        "native: a single block told again adds no copy",
        HOLDER,
        "event.name_count < 2",
        "event.name_count < 1",
        BAD_EVENTS,
    ),
    Mutation(
        "native: more hashes than allowed are read",
        "prefix_index/core/decode.cpp",
        "if (count > kMaxHashes || count > in_.left()) return in_.fail();",
        "if (count > in_.left()) return in_.fail();",
        BAD_EVENTS,
    ),
)
