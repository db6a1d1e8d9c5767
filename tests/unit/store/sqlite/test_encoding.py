from __future__ import annotations

import enum
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import ormsgpack
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde import _msgpack
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel

from perdure.errors import ConfigurationError, StateTypeNotAllowed
from perdure.store.sqlite import encoding
from perdure.store.sqlite.encoding import StrictSerializer, assert_strict, pack_header, type_names, unpack_header
from tests.conformance.savers import Opened, opened


class Listed(BaseModel):
    a: int


@dataclass
class Plain:
    a: int


class Colour(enum.Enum):
    RED = "red"


class Hidden(BaseModel):
    a: int


class Schema(TypedDict, total=False):
    listed: Listed
    plain: Plain
    colour: Colour
    several: list[Listed]
    anything: Any


HIDDEN = f"{__name__}:Hidden"


def graph_of(database: Opened, anything: Any) -> Any:
    graph = StateGraph(Schema)
    graph.add_node(
        "fill",
        lambda state: {
            "listed": Listed(a=1),
            "plain": Plain(2),
            "colour": Colour.RED,
            "several": [Listed(a=3)],
            "anything": anything,
        },
    )
    graph.add_edge(START, "fill")
    graph.add_edge("fill", END)
    return graph.compile(checkpointer=database.saver)


async def test_types_named_in_the_schema_come_back_as_they_were(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        graph = graph_of(database, {"set": {1, 2}})
        config = {"configurable": {"thread_id": "t"}}
        await graph.ainvoke({"anything": None}, config, durability="sync")
        assert (await graph.aget_state(config)).values == {
            "listed": Listed(a=1),
            "plain": Plain(2),
            "colour": Colour.RED,
            "several": [Listed(a=3)],
            "anything": {"set": {1, 2}},
        }


@pytest.mark.parametrize("value", [Hidden(a=1), [Hidden(a=1)], {"deep": {"er": (Hidden(a=1),)}}])
async def test_a_type_that_could_not_be_read_back_is_refused_when_it_is_written(tmp_path: Path, value: Any) -> None:
    async with opened(tmp_path / "a.db") as database:
        graph = graph_of(database, value)
        config = {"configurable": {"thread_id": "t"}}
        with pytest.raises(StateTypeNotAllowed) as refused:
            await graph.ainvoke({"anything": None}, config, durability="sync")
        assert f'state_types = ["{HIDDEN}"]' in refused.value.message
        assert await database.rows("SELECT count(*) FROM items WHERE instr(data, 'Hidden')") == [(0,)]


async def test_a_type_named_in_the_settings_is_allowed(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db", state_types=[HIDDEN]) as database:
        graph = graph_of(database, [Hidden(a=1)])
        config = {"configurable": {"thread_id": "t"}}
        await graph.ainvoke({"anything": None}, config, durability="sync")
        assert (await graph.aget_state(config)).values["anything"] == [Hidden(a=1)]


async def test_a_type_that_is_no_longer_allowed_raises_when_it_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"configurable": {"thread_id": "t"}}
    async with opened(tmp_path / "a.db", state_types=[HIDDEN]) as database:
        await graph_of(database, Hidden(a=1)).ainvoke({"anything": None}, config, durability="sync")
    async with opened(tmp_path / "a.db") as database:
        with pytest.raises(StateTypeNotAllowed, match="state_types"):
            await graph_of(database, None).aget_state(config)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_class_that_is_gone_raises_instead_of_coming_back_as_a_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    serializer = StrictSerializer(type_names([HIDDEN]))
    stored = serializer.dumps_typed(Hidden(a=1))
    monkeypatch.delattr(sys.modules[__name__], "Hidden")
    monkeypatch.setattr(encoding, "_resolved", set())
    with pytest.raises(StateTypeNotAllowed):
        serializer.loads_typed(stored)


def test_a_class_inside_a_function_is_refused_even_when_it_is_named() -> None:
    class Local(BaseModel):
        a: int

    with pytest.raises(StateTypeNotAllowed, match="Define it at the top of its module"):
        StrictSerializer({(__name__, "Local")}).dumps_typed(Local(a=1))


def test_crafted_bytes_are_never_called() -> None:
    serializer = StrictSerializer()
    call = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(("os.path", "basename", "/etc/passwd"))))
    method = ormsgpack.packb(ormsgpack.Ext(3, ormsgpack.packb(("datetime", "datetime", "now", "utcnow"))))
    for data in (call, method):
        with pytest.raises(StateTypeNotAllowed):
            serializer.loads_typed(("msgpack", data))


@pytest.mark.parametrize("kind", ["pickle", "json", "nonsense"])
def test_only_our_kinds_are_read(kind: str) -> None:
    with pytest.raises(StateTypeNotAllowed):
        StrictSerializer().loads_typed((kind, b"{}"))


def test_a_malformed_state_type_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="module:Class"):
        type_names(["no_colon"])


def test_a_process_that_imported_langgraph_first_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_strict()
    monkeypatch.setattr(_msgpack, "STRICT_MSGPACK_ENABLED", False)
    with pytest.raises(ConfigurationError, match="LANGGRAPH_STRICT_MSGPACK"):
        assert_strict()


def test_a_header_comes_back_whole_and_names_each_version_once() -> None:
    checkpoint = empty_checkpoint()
    version = "00000001.abcdef01"
    checkpoint["channel_versions"] = {"a": version, "b": version, "c": 3, "d": 3.0}
    checkpoint["versions_seen"] = {"node": {"a": version}, "__input__": {}, "other": {"c": 3}}
    checkpoint["updated_channels"] = ["a", "c"]
    inline = {"a": (3, b"\x01", None), "b": (0, b"", "[[[0],7]]")}
    header = pack_header(checkpoint, inline, StrictSerializer())
    read, values = unpack_header(header, checkpoint["id"], StrictSerializer())
    assert repr(sorted(read.items())) == repr(sorted({**checkpoint, "channel_values": {}}.items()))
    assert values == inline
    assert header.count(version.encode()) == 1
