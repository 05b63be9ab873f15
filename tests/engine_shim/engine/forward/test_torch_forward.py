"""The torch model: what it computes does not depend on how the work was cut, and is not dull."""

import pytest
import torch

from engine_shim.engine.cache.token_bytes import pack_tokens
from engine_shim.engine.forward.base import Draw, ForwardRow
from engine_shim.engine.forward.decoder import Decoder
from engine_shim.engine.forward.rotary import RotaryTable
from engine_shim.engine.forward.torch_forward import TorchForward
from engine_shim.engine.forward.toy import build_torch_forward
from engine_shim.engine.memory.kv_pool import KvPool
from engine_shim.engine.spec import EngineSpec, ModelSpec
from kernels.paged_rows import PagedRows

MODEL = ModelSpec(layers=2, hidden_dim=32, query_heads=4, kv_heads=2, head_dim=8, feed_forward_dim=48)
SPEC = EngineSpec(page_tokens=4, pool_pages=32, vocabulary_tokens=64, model=MODEL)
GREEDY = Draw(temperature=0.0, top_p=1.0, uniform=0.0)


def logits_of(token_ids, cuts=(), pages=range(32), seed=0):
    """Logits after each token, computed in chunks that end at `cuts`."""
    decoder, pool = Decoder(SPEC, seed=seed), KvPool(SPEC, dtype=torch.float32)
    parts, start = [], 0
    for end in (*cuts, len(token_ids)):
        rows = PagedRows.of([list(pages)], [start], [end - start], page_tokens=4)
        part = torch.tensor(token_ids[start:end])
        parts.append(decoder.forward(part, rows, torch.arange(start, end), pool, torch.arange(end - start)))
        start = end
    return torch.cat(parts)


TOKENS = torch.randint(64, (23,), generator=torch.Generator().manual_seed(1)).tolist()


@pytest.mark.parametrize("cuts", [(1,), (4,), (7, 9), tuple(range(1, 23))])
def test_logits_are_the_same_however_the_prompt_is_cut_and_wherever_its_pages_lie(cuts):
    whole = logits_of(TOKENS)
    torch.testing.assert_close(logits_of(TOKENS, cuts, range(31, -1, -1)), whole, rtol=1e-4, atol=1e-4)


def test_a_token_changes_what_comes_after_it_and_nothing_before():
    changed = TOKENS.copy()
    changed[9] = (changed[9] + 1) % 64
    distance = (logits_of(TOKENS) - logits_of(changed)).abs().amax(dim=-1)
    assert distance[:9].max() < 1e-5
    assert distance[9:].min() > 0.05


def test_the_order_of_earlier_tokens_counts():
    swapped = [TOKENS[1], TOKENS[0], *TOKENS[2:]]
    assert (logits_of(TOKENS)[-1] - logits_of(swapped)[-1]).abs().max() > 0.01


def test_equal_seeds_give_equal_weights_and_others_do_not():
    assert torch.equal(logits_of(TOKENS, seed=5), logits_of(TOKENS, seed=5))
    assert not torch.allclose(logits_of(TOKENS, seed=5), logits_of(TOKENS, seed=6))


def test_an_end_of_sequence_token_is_less_likely():
    spec = EngineSpec(vocabulary_tokens=64, eos_token_ids=(3, 9), model=MODEL)
    assert (Decoder(spec, seed=0)._bias < 0).nonzero().flatten().tolist() == [3, 9]


def test_greedy_output_of_random_weights_is_varied_and_seldom_stops():
    spec = EngineSpec(pool_pages=16, eos_token_ids=(0, 1))
    forward = build_torch_forward(spec, seed=0)
    (token,) = forward.run([ForwardRow(token_bytes=pack_tokens(TOKENS), start_token=0, pages=range(16), draw=GREEDY)])
    output = []
    while len(output) < 96:
        output.append(token)
        start = len(TOKENS) + len(output) - 1
        (token,) = forward.run(
            [ForwardRow(token_bytes=pack_tokens([token]), start_token=start, pages=range(16), draw=GREEDY)]
        )
    assert len(set(output)) > 48
    assert not {0, 1} & set(output)


def test_rows_of_one_batch_do_not_see_each_other():
    forward = TorchForward(SPEC, seed=0)
    first, second = TOKENS[:9], TOKENS[9:]

    def make_row(tokens, pages, draw=GREEDY):
        return ForwardRow(token_bytes=pack_tokens(tokens), start_token=0, pages=pages, draw=draw)

    together = forward.run(
        [make_row(first, [0, 1, 2]), make_row(TOKENS[:5], [8, 9], None), make_row(second, [4, 5, 6, 7])]
    )
    alone = [TorchForward(SPEC, seed=0).run([make_row(tokens, range(9))])[0] for tokens in (first, second)]
    assert together == [alone[0], None, alone[1]]


def test_a_step_in_which_nothing_is_sampled_answers_nothing():
    forward = TorchForward(SPEC, seed=0)
    assert forward.run([ForwardRow(token_bytes=pack_tokens([1, 2]), start_token=0, pages=[0], draw=None)]) == [None]


def test_rotated_heads_keep_their_length_and_scores_depend_on_distance_only():
    table = RotaryTable(8, 10_000.0)
    query, key = torch.randn(2, 1, 1, 8, generator=torch.Generator().manual_seed(2))

    def score(at, behind):
        here, there = table.turns(torch.tensor([at])), table.turns(torch.tensor([at - behind]))
        return (table.rotate(query, here) * table.rotate(key, there)).sum()

    torch.testing.assert_close(table.rotate(query, table.turns(torch.tensor([9]))).norm(), query.norm())
    torch.testing.assert_close(score(100_000, 7), score(7, 7), rtol=1e-4, atol=1e-5)
    assert (score(9, 7) - score(9, 3)).abs() > 1e-3


def test_a_spec_that_makes_no_model_is_refused_before_anything_is_built():
    with pytest.raises(ValueError, match="head_dim=7"):
        build_torch_forward(EngineSpec(model=ModelSpec(head_dim=7)), seed=0)
