"""Tokenizer folders that are damaged: an error that names the file and what is wrong, and the router serves without it.

Files cut short, with bits flipped, of absurd sizes, types and numbers, that are no files, or change while they are
read.
"""

import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.prompt import Prompter, PromptInput
from router.prompt import files as prompt_files
from router.prompt.description import MAX_TOKEN_ID, check_description
from router.prompt.files import read_file, read_object, read_text
from router.prompt.loading import has_tokenizer, load_prompter
from router.prompt.template import load_chat_template
from router.prompt.tokenizer import load_tokenizer
from tests.router.prompt.real_tokenizers import FAST, TOY, load_model
from tests.router.prompt.real_tokenizers import load_prompter as load_published

TOKENIZER = (TOY / "tokenizer.json").read_bytes()
DESCRIPTION = json.loads(TOKENIZER)
TEXTS = ("hello <|im_start|> world", "", "é\n\n  12", "\x00")


@pytest.fixture
def folder(tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((TOY / name).read_bytes())
    return tmp_path


def refuse(folder, name, problem):
    """Loading says which file, and what about it."""
    with pytest.raises(ValueError, match=problem) as raised:
        load_prompter(folder)
    assert str(folder / name) in str(raised.value)


def try_to_load(folder):
    """The prompter, or what the error says."""
    try:
        return load_prompter(folder)
    except ValueError as error:
        return str(error)


def change(folder, **fields):
    (folder / "tokenizer.json").write_text(json.dumps({**DESCRIPTION, **fields}))


def change_model(folder, **fields):
    change(folder, model={**DESCRIPTION["model"], **fields})


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"\xff\xfe{}", "not a JSON object"),
        (TOKENIZER[:50_000], "not a JSON object"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not a JSON object"),
    ],
)
def test_a_file_that_is_no_json_object_is_named(folder, name, data, problem):
    (folder / name).write_bytes(data)
    refuse(folder, name, problem)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"model": None}, "no model"),
        ({"model": []}, "no model"),
        ({"model": {"type": "BPE"}}, "vocabulary"),
        ({"model": {**DESCRIPTION["model"], "type": "Rnn"}}, "not a tokenizer"),
        ({"added_tokens": {}}, "added tokens"),
        ({"added_tokens": [5]}, "an added token has the id None"),
        ({"added_tokens": [{"id": -1}]}, "an added token has the id -1"),
        ({"added_tokens": [{"id": 4}]}, "not a tokenizer"),
        ({"added_tokens": [{"id": 4}] * 70_000}, "added tokens are no list of at most"),
        ({"normalizer": "none"}, "not a tokenizer"),
        ({"normalizer": {"type": "Sequence", "normalizers": [None]}}, "not a tokenizer"),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}}}, "not a tokenizer"),
        ({"post_processor": 7}, "not a tokenizer"),
        ({"truncation": []}, "not a tokenizer"),
    ],
)
def test_fields_of_the_wrong_kind_are_refused(folder, fields, problem):
    change(folder, **fields)
    refuse(folder, "tokenizer.json", problem)


VOCABULARY = DESCRIPTION["model"]["vocab"]
MERGES = DESCRIPTION["model"]["merges"]
FIRST, SECOND = list(VOCABULARY)[300:302]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"vocab": {}}, "vocabulary is none"),
        ({"vocab": 7}, "vocabulary is none"),
        ({"vocab": {**VOCABULARY, FIRST: VOCABULARY[SECOND]}}, "one id to two tokens"),
        # The library would count up to it, which takes minutes.
        ({"vocab": {**VOCABULARY, FIRST: 2**31}}, "the id 2147483648"),
        ({"vocab": {**VOCABULARY, FIRST: 2**63}}, "the id 9223372036854775808"),
        ({"vocab": {**VOCABULARY, FIRST: -1}}, "the id -1"),
        ({"vocab": {**VOCABULARY, FIRST: 1.0}}, "the id 1.0"),
        ({"vocab": {**VOCABULARY, FIRST: True}}, "the id True"),
        ({"vocab": {**VOCABULARY, FIRST: "x" * 999}}, "the id 'xxx"),
        ({"merges": 7}, "merges are no list"),
        ({"merges": [[["a"]]]}, "not a tokenizer"),
        ({"merges": ["a"]}, "not a tokenizer"),
        ({"merges": [*MERGES, "zz zz"]}, "not a tokenizer"),
        ({"dropout": 7.0}, "not a tokenizer"),
        ({"byte_fallback": 7}, "not a tokenizer"),
    ],
)
def test_models_that_cannot_be_meant_are_refused(folder, fields, problem):
    change_model(folder, **fields)
    refuse(folder, "tokenizer.json", problem)


def test_merges_in_a_circle_and_twice_give_the_ids_of_the_library(folder):
    # `a b` makes `ab`, which with a part of itself makes no new token: merging only ever shortens a text.
    circle = [*MERGES, MERGES[5], MERGES[0]]
    change_model(folder, merges=circle)
    tokenizer = load_tokenizer(folder)
    library = load_model("toy").from_str((folder / "tokenizer.json").read_text())
    for text in TEXTS:
        assert tokenizer.encode(text).tolist() == library.encode(text, add_special_tokens=False).ids


def test_a_vocabulary_of_pieces_with_scores_is_for_the_library_to_judge():
    check_description({"model": {"vocab": [["a", 0.5], ["b", 0.5]]}})
    check_description({"model": {"vocab": {"a": MAX_TOKEN_ID}}, "added_tokens": None})


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_flipped_bits_and_cut_ends_give_a_tokenizer_or_an_error_with_the_file(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("flipped")
    damaged = bytearray(TOKENIZER[: data.draw(st.integers(0, len(TOKENIZER)) | st.just(len(TOKENIZER)))])
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    for _ in range(data.draw(st.integers(0, 4))):
        if damaged:
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    (folder / "tokenizer.json").write_bytes(damaged)
    loaded = try_to_load(folder)
    if isinstance(loaded, str):
        assert str(folder / "tokenizer.json") in loaded
        return
    for text in TEXTS:
        loaded.prepare(PromptInput(prompt=text))


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        (5, "neither text nor a list of named texts"),
        ({"default": "x"}, "neither text nor a list of named texts"),
        (["x"], "neither text nor a list of named texts"),
        ([{"name": "default", "template": 5}], "default chat template is not text"),
        ("{% if %}", "does not compile"),
        ("{{ '" + "x" * (1 << 18) + "' }}", "larger than"),
    ],
)
def test_a_chat_template_that_is_none_is_told_with_its_file(folder, template, problem):
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    refuse(folder, "tokenizer_config.json", problem)


@pytest.mark.parametrize("template", [None, [], [{}], [{"name": ["x"], "template": "x"}], [{"name": "other"}]])
def test_a_folder_may_have_no_default_template(folder, template):
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    assert load_chat_template(folder) is None


@pytest.mark.parametrize(
    ("data", "problem"),
    [(b"\xff\xfe", "not UTF-8"), (b"{{", "does not compile"), (b"x" * (2 << 20), "bytes, more than")],
)
def test_a_template_file_that_is_none_is_named(folder, data, problem):
    (folder / "chat_template.jinja").write_bytes(data)
    refuse(folder, "chat_template.jinja", problem)


def test_special_tokens_of_other_kinds_are_left_out(folder):
    config = {
        "chat_template": "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}",
        "bos_token": 5,
        "eos_token": {"content": []},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "pad_token": {"content": "p"}}))
    assert load_chat_template(folder).render([], None) == "||p"


def make_loop(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


def make_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def make_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def make_endless(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def make_dangling(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("nowhere")


@pytest.mark.parametrize("name", ["tokenizer_config.json", "chat_template.jinja"])
@pytest.mark.parametrize("damage", [make_loop, make_folder, make_pipe, make_endless, make_dangling])
def test_what_is_no_file_is_refused_and_never_waited_for(folder, name, damage):
    damage(folder / name)
    refuse(folder, name, "cannot be read|not a regular file")


@pytest.mark.parametrize("damage", [make_loop, make_folder, make_pipe, make_endless, make_dangling])
def test_a_tokenizer_that_is_no_file_is_no_tokenizer(folder, damage):
    damage(folder / "tokenizer.json")
    assert not has_tokenizer(folder)
    refuse(folder, "tokenizer.json", "cannot be read|not a regular file")


@pytest.mark.parametrize("name", ["a\0b", "x" * 5_000, "/proc/self/mem", "../" * 2_000])
def test_a_folder_that_cannot_be_named_has_no_tokenizer(name):
    assert not has_tokenizer(Path(name))
    with pytest.raises(ValueError, match=r"cannot be read|null byte"):
        load_prompter(Path(name))


def test_files_over_their_limit_are_not_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_file(path, 5) == b"12345"
    for read in (read_file, read_text, read_object):
        with pytest.raises(ValueError, match="5 bytes, more than 4"):
            read(path, 4)
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="1,099,511,627,776 bytes"):
        read_file(path, 1 << 28)


@pytest.mark.parametrize("written", [b"123", b"123456789", b"54321"])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, written, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    os.utime(path, ns=(1, 1))
    stat_now = os.fstat

    def write_after_the_first_look(descriptor):
        seen = stat_now(descriptor)
        monkeypatch.setattr(prompt_files.os, "fstat", stat_now)
        path.write_bytes(written)
        return seen

    monkeypatch.setattr(prompt_files.os, "fstat", write_after_the_first_look)
    with pytest.raises(ValueError, match="changed while it was read"):
        read_file(path, 100)


def test_a_file_that_is_replaced_while_it_is_read_is_read_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    stat_now = os.fstat

    def replace_after_the_first_look(descriptor):
        seen = stat_now(descriptor)
        monkeypatch.setattr(prompt_files.os, "fstat", stat_now)
        (tmp_path / "other").write_bytes(b"other")
        (tmp_path / "other").replace(path)
        return seen

    monkeypatch.setattr(prompt_files.os, "fstat", replace_after_the_first_look)
    assert read_file(path, 100) == b"12345"


@pytest.mark.parametrize("name", FAST)
def test_a_million_blanks_overflow_no_stack(name):
    # The fast encoder gives up on them with an error that is no `Exception`.
    text = "a" + " " * 1_000_001 + "b"
    prompt = load_published(name).prepare(PromptInput(prompt=text, add_special_tokens=False))
    assert prompt.token_ids.tolist() == load_model(name).encode(text, add_special_tokens=False).ids


def test_the_prompter_of_a_whole_folder_is_named_by_its_content(folder):
    same = Prompter.load(folder).identity
    assert same == Prompter.load(TOY).identity
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert Prompter.load(folder).identity != same
