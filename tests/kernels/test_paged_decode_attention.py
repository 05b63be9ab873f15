"""Decode attention equals attention written as loops, however contexts are paged, listed, cut and shared out."""

import pytest
import torch
from attention import attend_all, make_contexts, make_pools

from kernels.errors import DeviceMismatch, DtypeMismatch, PageOutOfRange, ShapeMismatch
from kernels.index_build import build_split_plan
from kernels.lse_merge import lse_merge
from kernels.paged_decode_attention import _check_pages, paged_decode_attention, paged_decode_attention_with_lse
from kernels.testing import assert_close

SCALE = 0.4


def build(lengths, *, page_tokens=4, query_heads=4, kv_heads=2, head_dim=16, dtype=torch.float32, device="cpu"):
    contexts = make_contexts(lengths, kv_heads, head_dim, dtype)
    key_pool, value_pool, pages = make_pools(contexts, page_tokens, device=device)
    width = max(map(len, pages), default=0)
    # What a table holds behind a sequence's pages is no page of any pool.
    table = torch.tensor([[*row, *[10**6] * (width - len(row))] for row in pages], dtype=torch.int32).reshape(
        len(pages), width
    )
    chance = torch.Generator().manual_seed(3)
    queries = torch.randn(len(lengths), query_heads, head_dim, generator=chance).to(dtype)
    call = {
        "queries": queries.to(device),
        "key_pool": key_pool,
        "value_pool": value_pool,
        "page_ids": table.to(device),
        "seq_lens": torch.tensor(lengths, dtype=torch.int32, device=device),
        "scale": SCALE,
    }
    return call, contexts, pages


def expect(call, contexts, window=None, sinks=None):
    outs, lses = [], []
    for query, (keys, values) in zip(call["queries"].cpu(), contexts, strict=True):
        sees = [range(max(0, len(keys) - window) if window else 0, len(keys))]
        out, lse = attend_all(query[None], keys, values, sees, SCALE, sinks)
        outs.append(out)
        lses.append(lse)
    return torch.cat(outs).to(call["queries"].dtype), torch.cat(lses).float()


def check(got, expected):
    assert_close("out", got[0].cpu(), expected[0])
    assert_close("lse", got[1].cpu(), expected[1])


@pytest.mark.parametrize("page_tokens", [1, 5, 64, 128])
@pytest.mark.parametrize("lengths", [[1], [64], [65, 1, 130], [0, 200, 0, 3, 64], [300, 0]])
def test_it_equals_attention_written_as_loops(device, lengths, page_tokens):
    call, contexts, _ = build(lengths, page_tokens=page_tokens, device=device)
    check(paged_decode_attention_with_lse(**call), expect(call, contexts))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("query_heads", "kv_heads", "head_dim"), [(1, 1, 3), (6, 2, 24), (3, 3, 64), (20, 1, 16)])
def test_query_heads_share_key_heads_in_groups(device, query_heads, kv_heads, head_dim, dtype):
    sizes = {"query_heads": query_heads, "kv_heads": kv_heads, "head_dim": head_dim}
    call, contexts, _ = build([9, 70], **sizes, dtype=dtype, device=device)
    check(paged_decode_attention_with_lse(**call), expect(call, contexts))


@pytest.mark.parametrize("window", [1, 3, 64, 65, 1000])
def test_a_window_sees_the_last_tokens_and_reads_no_others(device, window):
    """What lies before the window is NaN, as pages given back may be, and its pages are no longer the sequence's."""
    lengths = [1, 66, 150, 0]
    call, contexts, pages = build(lengths, device=device)
    for number, (length, listed) in enumerate(zip(lengths, pages, strict=True)):
        for position in range(max(0, length - window)):
            for pool in (call["key_pool"], call["value_pool"]):
                pool[listed[position // 4], position % 4] = torch.nan
        call["page_ids"][number, : max(0, length - window) // 64 * 16] = 0
    check(paged_decode_attention_with_lse(**call, window_tokens=window), expect(call, contexts, window))


def test_sinks_take_part_without_a_value(device):
    sinks = torch.tensor([0.3, -2.0, 5.0, -1e4])
    call, contexts, _ = build([7, 100, 0], device=device)
    expected = expect(call, contexts, sinks=sinks)
    check(paged_decode_attention_with_lse(**call, sinks=sinks.to(device)), expected)
    assert torch.allclose(expected[1][2], sinks)


def test_pages_may_be_listed_one_sequence_after_the_other(device):
    lengths = [9, 0, 130]
    call, contexts, pages = build(lengths, device=device)
    call["page_ids"] = torch.tensor([page for row in pages for page in row], device=device)
    offsets = torch.tensor([0, *torch.tensor([len(row) for row in pages]).cumsum(0).tolist()], device=device)
    check(paged_decode_attention_with_lse(**call, page_offsets=offsets), expect(call, contexts))


@pytest.mark.parametrize("programs", [1, 4, 7])
def test_it_is_right_however_many_programs_share_the_tiles(device, programs, monkeypatch):
    """Of more programs than tiles some have none, also between two that share a context."""
    if device.type == "cpu":
        monkeypatch.setattr("kernels.paged_decode_attention.kernel.INTERPRETED_PROGRAMS", programs)
    for lengths in ([70], [130, 0, 5]):
        call, contexts, _ = build(lengths, query_heads=2, device=device)
        check(paged_decode_attention_with_lse(**call), expect(call, contexts))


def test_a_wider_table_of_pages_changes_nothing(device):
    call, contexts, _ = build([9, 130, 70], device=device)
    narrow = paged_decode_attention_with_lse(**call)
    check(narrow, expect(call, contexts))
    call["page_ids"] = torch.nn.functional.pad(call["page_ids"], (0, 5), value=10**6)
    wide = paged_decode_attention_with_lse(**call)
    assert torch.equal(wide[0], narrow[0])
    assert torch.equal(wide[1], narrow[1])


def test_a_plan_made_once_serves_all_layers(device):
    call, contexts, _ = build([9, 0, 130], device=device)
    plan = build_split_plan(call["seq_lens"], window_tokens=70)
    for _ in range(2):
        got = paged_decode_attention_with_lse(**call, window_tokens=70, tile_offsets=plan)
        check(got, expect(call, contexts, 70))


def test_shards_of_a_sequence_merged_are_the_whole_also_where_one_is_empty(device):
    """Page p of the sequence lies on rank p mod ranks; each attends to what it has."""
    call, contexts, pages = build([23, 9, 3], device=device)
    whole = expect(call, contexts)
    outs, lses = [], []
    for rank in range(3):
        own = [row[rank::3] for row in pages]
        counts = [sum(min(4, length - 4 * page) for page in range(rank, -(-length // 4), 3)) for length in (23, 9, 3)]
        table = torch.zeros(3, 2, dtype=torch.int32)
        for number, row in enumerate(own):
            table[number, : len(row)] = torch.tensor(row)
        shard = {**call, "page_ids": table.to(device), "seq_lens": torch.tensor(counts, device=device)}
        out, lse = paged_decode_attention_with_lse(**shard)
        outs.append(out)
        lses.append(lse)
    assert min(map(float, lses[2][2])) == -torch.inf
    check(lse_merge(torch.stack(outs), torch.stack(lses)), whole)


def test_a_float8_pool_is_read_with_its_scales(device):
    call, contexts, _ = build([70, 5], device=device)
    for name in ("key_pool", "value_pool"):
        call[name] = call[name].nan_to_num().to(torch.float8_e4m3fn)
    rounded = [tuple(part.to(torch.float8_e4m3fn).float() for part in one) for one in contexts]
    scaled = [(keys * 0.5, values * 3.0) for keys, values in rounded]
    check(paged_decode_attention_with_lse(**call, key_scale=0.5, value_scale=3.0), expect(call, scaled))


def test_a_context_that_holds_no_number_is_not_an_empty_one(device):
    """Else a shard that went wrong would be left out of the merge, and the result look right."""
    call, contexts, pages = build([9, 70], device=device)
    call["key_pool"][pages[1][0], 0] = torch.nan
    out, lse = paged_decode_attention_with_lse(**call)
    assert out[1].isnan().all()
    assert lse[1].isnan().all()
    expected = expect(call, contexts)
    check((out[:1], lse[:1]), (expected[0][:1], expected[1][:1]))


def test_nothing_is_computed_to_check_what_cannot_be_read(monkeypatch):
    """On a device each such computation would be a launch a layer."""
    call, _, _ = build([9, 130])
    monkeypatch.setattr("kernels.paged_decode_attention.can_read", lambda _: False)
    monkeypatch.setattr("kernels.checks.can_read", lambda _: False)
    offsets = torch.tensor([0, 3, 36])
    with torch.profiler.profile() as watched:
        _check_pages(call["page_ids"], None, call["seq_lens"], call["key_pool"])
        _check_pages(torch.zeros(36).int(), offsets, call["seq_lens"], call["key_pool"])
    computed = {event.key for event in watched.key_averages()} - {"aten::zeros", "aten::empty", "aten::zero_"}
    assert computed <= {"aten::to", "aten::_to_copy", "aten::empty_strided", "aten::copy_", "aten::fill_"}


def test_no_sequence_gives_no_output(device):
    call, _, _ = build([], device=device)
    call["queries"] = torch.zeros(0, 2, 8, device=device)
    assert paged_decode_attention(**call).shape == (0, 2, 8)


def bad_calls():
    call, _, _ = build([9, 5])
    yield "other head_dim", ShapeMismatch, {"queries": call["queries"][..., :4].contiguous()}
    yield "strided queries", ShapeMismatch, {"queries": call["queries"].transpose(0, 1).contiguous().transpose(0, 1)}
    yield "heads that do not divide", ShapeMismatch, {"queries": call["queries"][:, :3].contiguous()}
    yield "half queries", DtypeMismatch, {"queries": call["queries"].half()}
    yield "queries in double", DtypeMismatch, {"queries": call["queries"].double()}
    yield "too few lengths", ShapeMismatch, {"seq_lens": call["seq_lens"][:1]}
    yield "negative length", PageOutOfRange, {"seq_lens": call["seq_lens"] - 6}
    yield "longer than its pages", ShapeMismatch, {"seq_lens": call["seq_lens"] + 8}
    yield "page past the pool", PageOutOfRange, {"page_ids": call["page_ids"] + 8}
    yield "short table", ShapeMismatch, {"page_ids": call["page_ids"][:1]}
    yield "table of floats", DtypeMismatch, {"page_ids": call["page_ids"].float()}
    yield (
        "offsets past the list",
        PageOutOfRange,
        {
            "page_ids": torch.zeros(3).int(),
            "page_offsets": torch.tensor([0, 3, 5]),
        },
    )
    yield "too few offsets", ShapeMismatch, {"page_ids": torch.zeros(3).int(), "page_offsets": torch.tensor([0, 3])}
    yield "no window", ShapeMismatch, {"window_tokens": 0}
    yield "sinks of two heads", ShapeMismatch, {"sinks": torch.zeros(2)}
    yield "half sinks", DtypeMismatch, {"sinks": torch.zeros(4).half()}
    yield "sinks elsewhere", DeviceMismatch, {"sinks": torch.zeros(4, device="meta")}
    yield "a scale without float8", DtypeMismatch, {"key_scale": 2.0}
    yield "a plan of another window", ShapeMismatch, {"tile_offsets": torch.tensor([0, 0, 1], dtype=torch.int32)}
    yield "a plan of other sequences", ShapeMismatch, {"tile_offsets": torch.zeros(2, dtype=torch.int32)}


@pytest.mark.parametrize(("error", "change"), [case[1:] for case in bad_calls()], ids=[case[0] for case in bad_calls()])
def test_what_does_not_fit_is_refused(error, change):
    with pytest.raises(error):
        paged_decode_attention(**{**build([9, 5])[0], **change})
