from __future__ import annotations

import socket
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI

from perdure.graph.demo import DemoModel
from perdure.graph.errors import ModelNotConfigured
from perdure.graph.models import ModelSource


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "MISTRAL_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("creating a model called the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


async def test_demo_needs_nothing() -> None:
    source = ModelSource("demo")
    assert isinstance(await source.get(), DemoModel)
    assert source.problems() == []


async def test_a_model_is_created_once() -> None:
    source = ModelSource("ollama:llama3.2")
    assert await source.get() is await source.get()


async def test_each_provider_is_created_by_its_name_and_never_retries_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert isinstance(await ModelSource("ollama:a", "http://127.0.0.1:9").get(), ChatOllama)
    openai = await ModelSource("openai:b", "http://127.0.0.1:9/v1").get()
    assert isinstance(openai, ChatOpenAI)
    assert (openai.max_retries, openai.openai_api_base) == (0, "http://127.0.0.1:9/v1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    anthropic = await ModelSource("anthropic:c").get()
    assert isinstance(anthropic, ChatAnthropic)
    assert anthropic.max_retries == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("openai:gpt-5.5", "set the variable OPENAI_API_KEY"),
        ("anthropic:claude", "set the variable ANTHROPIC_API_KEY"),
        ("mistralai:large", "pip install langchain-mistralai"),
        ("nobody:knows", "cannot be created"),
    ],
)
async def test_what_is_missing_is_named_and_that_demo_needs_none(name: str, words: str) -> None:
    source = ModelSource(name)
    with pytest.raises(ModelNotConfigured, match=words) as caught:
        await source.get()
    assert "`demo` needs no key" in caught.value.message
    assert caught.value.failure.reason == "model_not_configured"


async def test_a_key_that_is_set_later_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    source = ModelSource("openai:gpt-5.5")
    assert source.problems() != []
    with pytest.raises(ModelNotConfigured):
        await source.get()
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    assert source.problems() == []
    assert isinstance(await source.get(), ChatOpenAI)


def test_a_failing_call_is_a_problem_until_one_succeeds() -> None:
    source = ModelSource("demo")
    source.failed("it is down")
    assert source.problems() == ["it is down"]
    source.succeeded()
    assert source.problems() == []
