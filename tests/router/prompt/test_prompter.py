"""What a request's prompt is, or in one word why it cannot be known."""

import json
from array import array
from pathlib import Path

import pytest

from router.prompt import ModelPrompts, PromptCatalogue, Prompter, PromptInput, Unrenderable
from router.prompt.engine_form import CallForm, EngineForm
from router.prompt.template import ChatTemplate
from wire.block_hash import block_hashes, namespace_seed

TOY = Path(__file__).parents[3] / "engine_shim/engine/tokenizer/toy"
CALLS = "{% for m in messages %}{{ m.tool_calls | tojson }}{% endfor %}"
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def prompter():
    return Prompter.load(TOY)


def test_a_chat_has_the_ids_of_its_rendered_text(prompter):
    prompt = prompter.prepare(PromptInput(messages=HELLO))
    assert prompt.token_ids == prompter.tokenizer.encode("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")


def test_a_completion_is_text_or_ids(prompter):
    ids = prompter.tokenizer.encode("once upon")
    assert prompter.prepare(PromptInput(prompt="once upon")).token_ids == ids
    assert prompter.prepare(PromptInput(prompt=["once upon"])).token_ids == ids
    assert prompter.prepare(PromptInput(prompt=list(ids))).token_ids == ids
    assert prompter.prepare(PromptInput(prompt=[list(ids)])).token_ids == array("I", ids)


@pytest.mark.parametrize(
    ("request_fields", "reason"),
    [
        ({"messages": [{"role": "nobody", "content": "a"}]}, "template"),
        ({"messages": ["text"]}, "shape"),
        ({"messages": HELLO, "field_names": frozenset({"chat_template"})}, "opaque_field"),
        ({"messages": HELLO, "field_names": frozenset({"extra_key"})}, "unmodelled_field"),
        ({"messages": HELLO, "cache_salt": ["a"]}, "shape"),
        ({"prompt": ["a", "b"]}, "batch"),
        ({"prompt": []}, "shape"),
        ({"prompt": {"a": 1}}, "shape"),
        ({"prompt": [1, -1]}, "shape"),
        ({"prompt": [1, True]}, "shape"),
        ({"prompt": [1, 1 << 40]}, "shape"),
    ],
)
def test_what_cannot_be_known_is_said(prompter, request_fields, reason):
    assert prompter.prepare(PromptInput(**request_fields)) == Unrenderable(reason)


def test_calls_that_the_engine_made_keep_their_order_and_are_a_conversation_of_their_own(prompter):
    showing = Prompter(prompter.tokenizer, ChatTemplate(CALLS, {}))
    showing.form = EngineForm(calls=CallForm.TYPED)
    function = {"name": "f", "arguments": "{}"}
    messages = [{"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": function, "type": "x"}]}]
    told = json.dumps(messages).encode()
    texts = {}
    for is_made in (False, True, False):
        request = PromptInput(messages_json=told, has_made_calls=is_made)
        ids = showing.prepare(request).token_ids
        assert texts.setdefault(is_made, ids) == ids
    assert texts[True] == prompter.tokenizer.encode(
        '[{"id": "c", "function": {"name": "f", "arguments": {}}, "type": "x"}]'
    )
    assert texts[True] != texts[False]


TURNS = "{% for m in messages %}{{ m.content }}{% endfor %}"
OFF = "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (TURNS, None),
        (TURNS + "{{ reasoning_effort }}", "opaque_field"),
        (TURNS + "{% if add_generation_prompt %}" + OFF + "{% endif %}", None),
        (OFF + TURNS, "opaque_field"),
        ("{{ 'think' if enable_thinking }}" + TURNS, "opaque_field"),
    ],
)
def test_an_effort_takes_the_credit_of_prompts_that_show_it_before_their_end(prompter, template, reason):
    showing = Prompter(prompter.tokenizer, ChatTemplate(template, {}))
    prompt = showing.prepare(PromptInput(messages=HELLO, field_names=frozenset({"reasoning_effort"})))
    assert prompt == Unrenderable(reason) if reason else not isinstance(prompt, Unrenderable)
    told = PromptInput(
        messages=HELLO, field_names=frozenset({"reasoning_effort"}), template_options={"enable_thinking": True}
    )
    assert isinstance(showing.prepare(told), Unrenderable) == ("reasoning_effort" in template)


def test_chains_start_in_the_namespace_of_model_adapter_and_salt(prompter):
    prompt = prompter.prepare(PromptInput(prompt="some words " * 30, cache_salt="s"))
    chain = prompter.find_chain(prompt, block_tokens=8, model="m", adapter="a")
    seed = namespace_seed("m", adapter="a", cache_salt="s")
    assert chain.hashes == tuple(block_hashes(prompt.token_ids, 8, seed))
    assert chain.token_count == len(prompt.token_ids)


@pytest.fixture
def catalogue():
    catalogue = PromptCatalogue(block_sizes=lambda: {16, 4}, inline_bytes=1_000)
    yield catalogue
    catalogue.close()


async def test_a_prompt_has_one_chain_in_all_block_sizes_smallest_first(catalogue, prompter):
    catalogue.put("m", ModelPrompts(prompter, "m"))
    for size_bytes in (10, 100_000):
        prepared = await catalogue.prepare("m", PromptInput(prompt="word " * 100), size_bytes)
        assert [list(chain.by_size) for chain in prepared.chains] == [[16, 4]]
        assert prepared.plain.block_tokens == 4
        assert prepared.uncredited is None
        assert prepared.prompt_tokens == prepared.chains[0].token_count


async def test_before_an_engine_told_its_block_size_a_prompt_has_a_chain_that_is_made_anew_later(prompter):
    sizes = set()
    catalogue = PromptCatalogue(block_sizes=lambda: sizes)
    catalogue.put("m", ModelPrompts(prompter, "m"))
    prepared = await catalogue.prepare("m", PromptInput(prompt="word " * 100), 10)
    assert prepared.plain.block_tokens == 16
    sizes.add(8)
    (chain,) = prepared.rehash()
    assert chain.block_tokens == 8
    assert (await catalogue.prepare("m", PromptInput(prompt="word " * 100), 10)).rehash is None
    catalogue.close()


async def test_A19_where_an_engine_has_keys_of_pairs_a_prompt_has_a_chain_of_their_namespace(prompter):
    catalogue = PromptCatalogue(block_sizes=lambda: {4}, has_bigram=lambda: True)
    catalogue.put("m", ModelPrompts(prompter, "m"))
    prepared = await catalogue.prepare("m", PromptInput(prompt="word " * 100), 10)
    seed = namespace_seed("m", bigram=True)
    ids = prompter.prepare(PromptInput(prompt="word " * 100)).token_ids
    assert prepared.pairs.hashes == tuple(block_hashes(ids, 4, seed))
    assert prepared.pairs.token_count == prepared.plain.token_count - 1
    assert not set(prepared.pairs.hashes) & set(prepared.plain.hashes)
    catalogue.close()


async def test_without_a_tokenizer_length_is_an_estimate_and_credit_is_none(catalogue):
    prepared = await catalogue.prepare("m", PromptInput(prompt="x" * 398), 500)
    assert (prepared.prompt_tokens, prepared.chains, prepared.uncredited) == (100, (), "no_tokenizer")
    assert prepared.credit == "none: no_tokenizer"
    assert len(prepared.text.hashes) == 1


async def test_a_request_without_a_model_takes_the_only_one_there_is(catalogue, prompter):
    catalogue.put("m", ModelPrompts(prompter, "m"))
    catalogue.put("lora", ModelPrompts(prompter, "m", "lora"))
    assert catalogue.find(None).base == "m"
    catalogue.put("other", ModelPrompts(prompter, "other"))
    assert catalogue.find(None) is None
    assert (await catalogue.prepare("lora", PromptInput(prompt="a" * 99), 9)).chains != (
        await catalogue.prepare("m", PromptInput(prompt="a" * 99), 9)
    ).chains
