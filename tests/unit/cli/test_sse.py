"""The stream parser: the standard's cases, whatever pieces the bytes come in."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.cli.sse import Parser, ServerSentEvent

WIRE = (
    '\ufeff: a comment\r\nretry: 1500\n\nevent: token\rdata: {"a":\ndata:1}\nid: 7\n\n'
    "data: schön\r\n\r\nevent: lonely\n\ndata\n\nid: 9\ndata: x\n\n"
).encode()

FRAMES = [
    ServerSentEvent("token", '{"a":\n1}', "7"),
    ServerSentEvent("message", "schön"),
    ServerSentEvent("message", ""),
    ServerSentEvent("message", "x", "9"),
]


@given(st.lists(st.integers(0, len(WIRE)), max_size=8))
def test_frames_are_the_same_wherever_the_bytes_are_cut(cuts: list[int]) -> None:
    parser = Parser()
    places = [0, *sorted(cuts), len(WIRE)]
    frames = [frame for start, end in itertools.pairwise(places) for frame in parser.feed(WIRE[start:end])]
    assert frames == FRAMES
    assert parser.retry_seconds == 1.5


def test_a_frame_without_its_blank_line_never_comes_out() -> None:
    assert list(Parser().feed(b"event: end\ndata: {}\n")) == []


@pytest.mark.parametrize("line", [b"id: a\0b", b"retry: soon"])
def test_malformed_fields_are_ignored(line: bytes) -> None:
    parser = Parser()
    assert list(parser.feed(line + b"\ndata: x\n\n")) == [ServerSentEvent("message", "x")]
    assert parser.retry_seconds is None
