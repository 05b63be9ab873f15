"""The official `openai` client reads the engine's answers, whole and streamed."""

import openai
import pytest


@pytest.fixture
def official(served):
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_the_official_client_reads_a_chat_answer(official):
    answer = official.chat.completions.create(
        model="dovecote-toy", messages=[{"role": "user", "content": "hello"}], max_tokens=5
    )
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.content
    assert answer.usage.completion_tokens == 5
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


def test_the_official_client_reads_a_chat_stream_with_usage(official):
    fields = {"model": "dovecote-toy", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 12}
    whole = official.chat.completions.create(**fields).choices[0].message.content
    stream = official.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == whole
    assert chunks[-1].usage.completion_tokens == 12


def test_the_official_client_reads_completions(official):
    whole = official.completions.create(model="dovecote-toy", prompt="once", max_tokens=6).choices[0].text
    stream = official.completions.create(model="dovecote-toy", prompt="once", max_tokens=6, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == whole


def test_the_official_client_lists_the_model(official):
    assert [model.id for model in official.models.list()] == ["dovecote-toy"]


@pytest.mark.parametrize("stream", [False, True])
def test_the_official_client_knows_the_errors(official, stream):
    with pytest.raises(openai.NotFoundError, match="nope"):
        official.chat.completions.create(model="nope", messages=[{"role": "user", "content": "x"}], stream=stream)
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        official.chat.completions.create(
            model="dovecote-toy", messages=[{"role": "user", "content": "x"}], max_tokens=0, stream=stream
        )


def test_the_official_client_sends_tools_and_tool_results(official):
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
    answer = official.chat.completions.create(
        model="dovecote-toy",
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "read a"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "nothing in it"},
        ],
        tools=[{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}],
        max_tokens=2,
    )
    assert answer.usage.completion_tokens == 2
