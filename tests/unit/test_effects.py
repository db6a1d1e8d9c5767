"""The words of tool calls: digests, patterns, and gates that are read back as they were asked."""

from __future__ import annotations

import pytest

from perdure.effects import EffectClass, Gate, GateRequest, ToolPolicy, digest_of, gate_request


def gate(**more: object) -> GateRequest:
    request = {
        "gate": Gate.APPROVAL,
        "key": "k",
        "call_id": "c",
        "message_id": "m",
        "tool": "pay",
        "server": None,
        "arguments": {"amount": 5},
        "effect": EffectClass.ONCE,
    }
    return GateRequest(**{**request, **more})  # type: ignore[arg-type]


def test_a_digest_is_the_same_for_the_same_arguments_in_any_order() -> None:
    assert digest_of({"a": 1, "b": [2]}) == digest_of({"b": [2], "a": 1})


@pytest.mark.parametrize("other", [{"a": 1.0}, {"a": True}, {"a": "1"}, {"a": [1]}, {"A": 1}, {}])
def test_a_digest_tells_what_differs_in_json(other: object) -> None:
    assert digest_of({"a": 1}) != digest_of(other)


def test_half_a_surrogate_pair_counts_as_it_is_stored() -> None:
    assert digest_of({"a": "x\ud800"}) == digest_of({"a": "x?"})


def test_a_gate_is_read_back_from_its_interrupt() -> None:
    asked = gate(expires_seconds=5.0, deciders=("ann",), why="it was cut")
    assert gate_request(asked.id, asked.value()) == asked


def test_what_only_looks_like_a_gate_is_a_question_of_the_graphs_own() -> None:
    asked = gate()
    assert gate_request(asked.id, {**asked.value(), "arguments": {"amount": 500}}) is None
    assert gate_request("gate-1", asked.value()) is None
    assert gate_request(asked.id, {"perdure_gate": "approval"}) is None
    assert gate_request(asked.id, "approval") is None


def test_another_start_of_an_uncertain_call_is_another_question() -> None:
    assert gate(gate=Gate.UNCERTAIN, starts=1).id != gate(gate=Gate.UNCERTAIN, starts=2).id
    assert gate(starts=1).id == gate(starts=2).id


def test_the_first_pattern_that_matches_decides_the_class_and_nothing_known_is_once() -> None:
    policy = ToolPolicy(effects=[("fs__read_*", EffectClass.READ), ("fs__*", EffectClass.KEYED)])
    assert policy.effect_of("fs__read_file", None) is EffectClass.READ
    assert policy.effect_of("fs__write_file", EffectClass.READ) is EffectClass.KEYED
    assert policy.effect_of("pay", EffectClass.CHECKABLE) is EffectClass.CHECKABLE
    assert policy.effect_of("pay", None) is EffectClass.ONCE
