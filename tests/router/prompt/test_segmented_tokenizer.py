"""Ids always equal a full tokenization, however much of the text is remembered."""

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from router.prompt.segments import SegmentCache
from router.prompt.tokenizer import Tokenizer as Segmented
from router.prompt.tokenizer import load_tokenizer

TOY = Path(__file__).parents[3] / "engine_shim/engine/tokenizer/toy"
PIECES = st.sampled_from(
    [
        *["a", "b ", "  ", "\n", "\n\n ", "\r\n", "\t", "123", "'s", "é", "e\u0301", "\u0301", "🐦", "\u200d", "中"],
        *["<|im_end|>", "<|im_start|>", "<|", "im_end", "|>", "<|im", "_start|>", "<think>", "\u00a0", ".", "word"],
    ]
)
TEXTS = st.lists(PIECES, max_size=25).map("".join)


@pytest.fixture(scope="module")
def toy():
    return load_tokenizer(TOY)


def full(text):
    return tokenizers.Tokenizer.from_file(str(TOY / "tokenizer.json")).encode(text, add_special_tokens=False).ids


MODEL = tokenizers.Tokenizer.from_file(str(TOY / "tokenizer.json"))


@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_ids_equal_a_full_tokenization(toy, texts):
    assert toy.is_incremental
    for text in texts:
        assert list(toy.encode(text)) == MODEL.encode(text, add_special_tokens=False).ids


@given(base=TEXTS, new=TEXTS, place=st.integers(0, 200))
def test_an_edited_text_has_the_ids_of_the_whole(toy, base, new, place):
    toy.encode(base)
    edited = base[: place % (len(base) + 1)] + new
    assert list(toy.encode(edited)) == MODEL.encode(edited, add_special_tokens=False).ids


def test_an_appended_conversation_encodes_only_what_is_new(toy, monkeypatch):
    turns = [f"<|im_start|>user\nturn {turn} says something<|im_end|>\n" for turn in range(20)]
    toy.encode("".join(turns[:19]))
    encoded = []
    whole = toy._encode_whole
    monkeypatch.setattr(toy, "_encode_whole", lambda texts, **more: encoded.extend(texts) or whole(texts, **more))
    assert list(toy.encode("".join(turns))) == full("".join(turns))
    assert sum(map(len, encoded)) <= len(turns[19]) + 1


def train(normalizer, pre_tokenizer, added):
    model = Tokenizer(models.BPE(unk_token=None))
    model.normalizer, model.pre_tokenizer, model.decoder = normalizer, pre_tokenizer, decoders.ByteLevel()
    model.train_from_iterator(
        ["hello world of words"] * 3,
        tokenizers.trainers.BpeTrainer(
            vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
        ),
    )
    model.add_special_tokens(added)
    return model


def test_a_tokenizer_whose_parts_do_not_stand_alone_is_encoded_whole():
    prefixed = train(None, pre_tokenizers.ByteLevel(add_prefix_space=True), [AddedToken("<s>", normalized=False)])
    text = "hello<s>world<s> of words"
    segmented = Segmented(prefixed)
    assert list(segmented.encode(text)) == prefixed.encode(text, add_special_tokens=False).ids


def test_only_tokens_that_end_where_their_text_ends_are_cuts():
    added = [
        AddedToken("<s>", normalized=False),
        AddedToken("<s>x", normalized=False),
        AddedToken("<l>", normalized=False, lstrip=True),
        AddedToken("aba", normalized=False),
        AddedToken("<n>", normalized=True),
    ]
    model = train(normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=False), added)
    segmented = Segmented(model)
    for text in ("a<s>x <l> b", "ababa", "<n> <s>", "  <l>", "<n>  <l>x", "<s><n><s>x"):
        assert list(segmented.encode(text)) == model.encode(text, add_special_tokens=False).ids


def test_a_token_that_swallows_blanks_behind_it_is_no_cut_and_the_others_still_are():
    plain = [AddedToken(f"<{name}>", normalized=False) for name in "abcde"]
    swallowing = [AddedToken("<y>", normalized=False, rstrip=True), AddedToken("<z>", normalized=False, lstrip=True)]
    model = train(None, pre_tokenizers.ByteLevel(add_prefix_space=False), [*plain, *swallowing])
    segmented = Segmented(model)
    assert segmented.is_incremental
    assert segmented.cuts.contents == {token.content for token in plain}
    for text in ("<a>  word<y>  word<z>", "x <z><y> \n<e> hello", "<y> <y>  <a>", "  <z>  <y>"):
        assert list(segmented.encode(text)) == model.encode(text, add_special_tokens=False).ids


def test_the_cache_is_bounded_and_drops_what_was_not_used_longest():
    cache = SegmentCache(limit_tokens=20)
    for name in "abc":
        cache.put(name, [0] * 5)
    cache.find("a")
    cache.put("d", [0] * 5)
    assert cache.held_tokens <= 20
    assert cache.find("b") is None
    assert cache.find("a") is not None
    cache.put("huge", [0] * 50)
    assert cache.find("huge") is None


def test_the_cache_is_bounded_by_bytes_too():
    cache = SegmentCache(limit_bytes=3_000)
    for number in range(20):
        cache.put(f"{number}" * 100, [0] * 5)
        assert cache.held_bytes <= 3_000
    cache.put("x" * 5_000, [0])
    assert cache.find("x" * 5_000) is None
    assert cache.find("19" * 100) is not None


def test_the_cache_of_a_tokenizer_stays_below_its_limit():
    toy = load_tokenizer(TOY, cache=SegmentCache(limit_tokens=200))
    for turn in range(50):
        text = f"<|im_start|>user\nsome words of turn {turn}<|im_end|>" * 3
        assert list(toy.encode(text)) == full(text)
        assert toy.cache.held_tokens <= 200


def test_a_folder_without_a_tokenizer_says_so(tmp_path):
    with pytest.raises(ValueError, match="No such file"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": 1}')
    with pytest.raises(ValueError, match="not a tokenizer"):
        load_tokenizer(tmp_path)
