"""The committed tokenizer: any text has ids and comes back, and the files say what the engine needs."""

import json
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_shim.engine.tokenizer import TOY_FOLDER, Tokenizer
from engine_shim.engine.tokenizer.corpus import iter_conversations
from engine_shim.engine.tokenizer.train import (
    SPECIAL_TOKENS,
    TEMPLATE_PATH,
    VOCABULARY_TOKENS,
    build_config,
    train_tokenizer,
    write_tokenizer,
)

TOY = Tokenizer(TOY_FOLDER)


@given(st.text())
def test_any_text_comes_back_from_its_ids(text):
    assert TOY.decode(TOY.encode(text)) == text


@given(st.lists(st.sampled_from([*SPECIAL_TOKENS, "a", " ", "\n", "é", "🐦"])).map("".join))
def test_special_tokens_come_back_from_their_ids(text):
    assert TOY.decode(TOY.encode(text)) == text


@given(st.lists(st.integers(0, VOCABULARY_TOKENS - 1)))
def test_ids_decode_as_the_tokenizers_library_decodes_them(token_ids):
    library = tokenizers.Tokenizer.from_file(str(TOY_FOLDER / "tokenizer.json"))
    ordinary = [token_id for token_id in token_ids if token_id >= len(SPECIAL_TOKENS)]
    assert TOY.decode(ordinary) == library.decode(ordinary, skip_special_tokens=False)


def test_the_vocabulary_has_4096_entries_and_special_tokens_come_first():
    assert TOY.vocabulary_tokens == VOCABULARY_TOKENS == 4_096
    assert [TOY.encode(token) for token in SPECIAL_TOKENS] == [[index] for index in range(len(SPECIAL_TOKENS))]
    assert TOY.token_name(TOY.eos_id) == "<|im_end|>"


def test_special_tokens_swallow_no_neighbouring_blanks():
    assert TOY.encode(" <|im_end|> x") == [*TOY.encode(" "), TOY.eos_id, *TOY.encode(" x")]


def test_no_token_is_added_that_the_text_does_not_name():
    assert TOY.encode("") == []
    assert not set(TOY.encode("plain text, nothing special")) & set(range(len(SPECIAL_TOKENS)))


def test_text_without_a_utf8_form_is_refused():
    with pytest.raises(ValueError):
        TOY.encode("\ud800")


def test_the_committed_files_are_small_and_hold_the_template_that_is_reviewed():
    files = [TOY_FOLDER / "tokenizer.json", TOY_FOLDER / "tokenizer_config.json"]
    assert sum(path.stat().st_size for path in files) < 500_000
    config = json.loads(files[1].read_text(encoding="utf-8"))
    assert config == build_config()
    assert config["chat_template"] == TEMPLATE_PATH.read_text(encoding="utf-8")


def test_training_on_the_same_texts_gives_the_same_tokenizer():
    texts = list(iter_conversations(7, 40))
    assert texts == list(iter_conversations(7, 40))
    assert train_tokenizer(texts, 600).to_str() == train_tokenizer(texts, 600).to_str()


def test_a_tokenizer_trained_on_this_python_has_the_same_shape_as_the_committed_one(tmp_path: Path):
    write_tokenizer(tmp_path)
    trained = Tokenizer(tmp_path)
    assert (trained.vocabulary_tokens, trained.eos_id) == (TOY.vocabulary_tokens, TOY.eos_id)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"eos_token": "<|nope|>"}, "nope"),
        ({"eos_token": None}, "eos_token"),
        ({"chat_template": None}, "chat_template"),
        ({"chat_template": "{% for %}"}, "compiled"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_in_words(tmp_path: Path, changes, named):
    (tmp_path / "tokenizer.json").write_bytes((TOY_FOLDER / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(build_config() | changes))
    with pytest.raises(ValueError, match=named):
        Tokenizer(tmp_path)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"model": {"type": "BPE"}}'])
def test_a_tokenizer_file_that_is_none_is_refused_with_its_name(tmp_path: Path, text):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        Tokenizer(tmp_path)


def test_a_vocabulary_that_is_not_byte_level_is_refused(tmp_path: Path):
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<|im_end|>": 0, "wörd ": 1}, unk_token="<|im_end|>"))
    words.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(build_config()))
    with pytest.raises(ValueError, match="byte-level"):
        Tokenizer(tmp_path)


@settings(max_examples=20)
@given(st.text(min_size=1, max_size=40), st.text(max_size=40))
def test_ids_up_to_a_special_token_do_not_depend_on_what_follows(before, after):
    joined = TOY.encode(f"{before}<|im_end|>{after}")
    assert joined == [*TOY.encode(before), *TOY.encode(f"<|im_end|>{after}")]
