from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from perdure.clock import SystemClock
from perdure.config import AgentSettings, Settings
from perdure.errors import ConfigurationError
from perdure.graph.load import HostedGraph, load_agent, load_agents
from perdure.graph.sources import load_attribute

GRAPH = """
from langgraph.graph import END, START, MessagesState, StateGraph

def answer(state):
    return {"messages": [("ai", "from WORD")]}

builder = StateGraph(MessagesState)
builder.add_node("answer", answer)
builder.add_edge(START, "answer")
builder.add_edge("answer", END)
"""

JSON_GRAPH = """
from typing import TypedDict
from langgraph.graph import END, START, StateGraph

class State(TypedDict):
    number: int

def double(state):
    return {"number": state["number"] * 2}

builder = StateGraph(State)
builder.add_node("double", double)
builder.add_edge(START, "double")
builder.add_edge("double", END)
graph = builder.compile()
"""


@pytest.fixture(autouse=True)
def modules_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("perdure.graph.sources._folders", set())
    before, path = dict(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - set(before):
        file = getattr(sys.modules[name], "__file__", None) or ""
        if "pytest-" in file:
            del sys.modules[name]
    sys.path[:] = path


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return file


Write = Callable[[str, str], Path]


async def load(base: Path, graph: str | None = None, **more: Any) -> HostedGraph:
    settings = AgentSettings(name=more.pop("name", "mine"), base=base, graph=graph, **more)
    return await load_agent(settings, Settings(), SystemClock())


async def refusal(base: Path, graph: str | None = None, **more: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        await load(base, graph, **more)
    return "\n".join(caught.value.problems)


async def said(hosted: HostedGraph) -> str:
    state = await hosted.graph.ainvoke({"messages": [("user", "hi")]})
    return str(state["messages"][-1].content)


@pytest.mark.parametrize(
    "end",
    [
        "graph = builder",
        "graph = builder.compile()",
        "def graph():\n    return builder",
        "def graph(config):\n    assert 'configurable' in config\n    return builder.compile()",
        "async def graph():\n    return builder.compile()",
        "async def graph(config):\n    return builder",
    ],
)
async def test_a_graph_is_served_however_it_is_given(tmp_path: Path, write: Write, end: str) -> None:
    write("agent.py", f"{GRAPH}\n{end}\n")
    hosted = await load(tmp_path, "./agent.py:graph")
    assert await said(hosted) == "from WORD"
    assert (hosted.name, hosted.input_kind, hosted.notices, hosted.problems()) == ("mine", "message", (), [])
    await hosted.close()


async def test_a_graph_without_a_messages_channel_takes_json(tmp_path: Path, write: Write) -> None:
    write("agent.py", JSON_GRAPH)
    hosted = await load(tmp_path, "./agent.py:graph")
    assert hosted.input_kind == "json"
    assert await hosted.graph.ainvoke({"number": 21}) == {"number": 42}


async def test_a_graph_with_a_checkpointer_of_its_own_is_served_and_that_is_said(tmp_path: Path, write: Write) -> None:
    end = "from langgraph.checkpoint.memory import InMemorySaver\ngraph = builder.compile(checkpointer=InMemorySaver())"
    write("agent.py", f"{GRAPH}\n{end}\n")
    hosted = await load(tmp_path, "./agent.py:graph")
    assert isinstance(hosted.graph.checkpointer, InMemorySaver)
    (notice,) = hosted.notices
    assert "InMemorySaver" in notice
    assert "Perdure's own checkpointer" in notice


async def test_a_file_that_does_not_import_is_refused_with_file_line_and_error(tmp_path: Path, write: Write) -> None:
    path = write("agent.py", "x = 1\nimport no_such_module_anywhere\n")
    text = await refusal(tmp_path, "./agent.py:graph")
    assert f"{path}, line 2: ModuleNotFoundError" in text
    write("broken.py", "x = (\n")
    assert "broken.py, line 1: SyntaxError" in await refusal(tmp_path, "./broken.py:graph")
    write("failing.py", "def deep():\n    raise RuntimeError('no')\n\ndeep()\n")
    assert "failing.py, line 2: RuntimeError: no" in await refusal(tmp_path, "./failing.py:graph")
    assert "agent" not in sys.modules


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("./absent.py:graph", "there is no such file"),
        ("./agent.py:grph", "which ./agent.py does not have. It has:"),
        ("./agent.py", "write module:attribute or ./file.py:attribute"),
        ("./agent.py:MessagesState", "failed:"),
        ("./agent.py:__name__", "is a str: it must be a StateGraph"),
        ("no_such_module_anywhere:graph", "cannot be imported"),
    ],
)
async def test_a_graph_that_is_not_there_is_refused_with_what_is(
    tmp_path: Path, write: Write, reference: str, words: str
) -> None:
    write("agent.py", GRAPH)
    text = await refusal(tmp_path, reference)
    assert words in text
    assert "'mine'" in text


async def test_a_factory_that_fails_is_refused_with_its_words(tmp_path: Path, write: Write) -> None:
    write("agent.py", "def graph():\n    raise LookupError('no key')\n")
    assert "LookupError: no key" in await refusal(tmp_path, "./agent.py:graph")


async def test_a_file_may_import_its_neighbours(tmp_path: Path, write: Write) -> None:
    write("src/words.py", "WORD = 'neighbour'")
    write(
        "src/agent.py",
        f"from words import WORD\n{GRAPH.replace('from WORD', '{WORD}').replace(chr(34) + '{', 'f' + chr(34) + '{')}\ngraph = builder",
    )
    assert await said(await load(tmp_path, "./src/agent.py:graph")) == "neighbour"


async def test_a_file_of_a_package_may_import_relatively(tmp_path: Path, write: Write) -> None:
    write("my_pack/__init__.py", "")
    write("my_pack/words.py", "WORD = 'relative'")
    text = GRAPH.replace('"from WORD"', "WORD")
    write("my_pack/agent.py", f"from .words import WORD\n{text}\ngraph = builder")
    assert await said(await load(tmp_path, "./my_pack/agent.py:graph")) == "relative"


async def test_two_agents_of_the_same_file_name_with_neighbours_of_the_same_name_do_not_clash(
    tmp_path: Path, write: Write
) -> None:
    for folder in ("one", "two"):
        write(f"{folder}/wording.py", f"WORD = '{folder}'")
        text = GRAPH.replace('"from WORD"', "wording.WORD")
        write(f"{folder}/served.py", f"import wording\n{text}\ngraph = builder")
    first = await load(tmp_path, "./one/served.py:graph", name="first")
    second = await load(tmp_path, "./two/served.py:graph", name="second")
    assert (await said(first), await said(second)) == ("one", "two")


async def test_one_file_serves_two_agents_and_is_imported_once(tmp_path: Path, write: Write) -> None:
    write("served.py", f"{GRAPH}\nfirst = builder.compile()\nsecond = builder.compile()\n")
    write("count.py", "")
    one = await load(tmp_path, "./served.py:first", name="a")
    two = await load(tmp_path, "./served.py:second", name="b")
    assert one.graph is not two.graph
    assert sys.modules["served"].builder is load_attribute("./served.py:builder", tmp_path, what="x", owner="a")


async def test_a_file_that_is_named_like_an_installed_module_hides_nothing(tmp_path: Path, write: Write) -> None:
    json_before = sys.modules["json"]
    write("json.py", f"{GRAPH}\ngraph = builder")
    write("httpx.py", f"{GRAPH}\ngraph = builder")
    assert await said(await load(tmp_path, "./json.py:graph")) == "from WORD"
    assert await said(await load(tmp_path, "./httpx.py:graph")) == "from WORD"
    assert sys.modules["json"] is json_before


async def test_state_types_are_resolved_and_faults_are_told_together(tmp_path: Path, write: Write) -> None:
    write("shapes.py", "class Circle: ...\nradius = 1\n")
    hosted = await load(tmp_path, state_types=("./shapes.py:Circle", "decimal:Decimal"))
    assert [each.__name__ for each in hosted.state_types] == ["Circle", "Decimal"]
    text = await refusal(tmp_path, state_types=("./shapes.py:radius", "decimal:Nothing"))
    assert "'./shapes.py:radius' of agent 'mine' is not a class" in text
    assert "'Nothing'" in text


TOOLS = """
from langchain_core.tools import tool

def add(a: int, b: int) -> int:
    "Adds."
    return a + b

@tool
def shout(text: str) -> str:
    "Shouts."
    return text.upper()

both = [add, shout]
silent = lambda x: x
number = 3
"""


async def names(hosted: HostedGraph) -> list[str]:
    assert hosted.tools is not None
    return [each.tool.name for each in await hosted.tools.all()]


async def test_tools_are_functions_langchain_tools_or_lists_of_them(tmp_path: Path, write: Write) -> None:
    write("things.py", TOOLS)
    assert await names(await load(tmp_path, model="ollama:x", tools=("./things.py:both",))) == ["add", "shout"]
    hosted = await load(tmp_path, model="ollama:x", tools=("./things.py:add", "things:shout"))
    assert await names(hosted) == ["add", "shout"]


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        (("./things.py:number",), "is a int: it must be a function"),
        (("./things.py:silent",), "cannot be used"),
        (("./things.py:both", "./things.py:add"), "Two tools are named 'add'"),
        (("./things.py:nothing",), "does not have. It has: add"),
    ],
)
async def test_tools_that_cannot_be_used_are_refused_at_start(
    tmp_path: Path, write: Write, tools: tuple[str, ...], words: str
) -> None:
    write("things.py", TOOLS)
    assert words in await refusal(tmp_path, tools=tools)


async def test_a_broken_mcp_file_is_refused_at_start_and_a_dead_server_is_not(tmp_path: Path, write: Write) -> None:
    write("mcp.json", '{"mcpServers": {"x": {}}}')
    assert "neither `command` nor `url`" in await refusal(tmp_path, mcp_config=Path("mcp.json"))
    write("mcp.json", '{"mcpServers": {"x": {"command": "no-such-program", "alwaysAllow": []}}}')
    hosted = await load(tmp_path, mcp_config=Path("mcp.json"))
    assert "alwaysAllow" in hosted.notices[0]
    assert hosted.problems() == []
    assert "tick" in await names(hosted)
    assert "no-such-program" in hosted.problems()[0]
    await hosted.close()


async def test_a_missing_key_and_a_missing_prompt_make_an_agent_degraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    hosted = await load(tmp_path, model="openai:gpt-5.5", system_prompt_file=Path("prompt.md"))
    key, prompt = hosted.problems()
    assert "OPENAI_API_KEY" in key
    assert str(tmp_path / "prompt.md") in prompt
    (tmp_path / "prompt.md").write_text("Be brief.")
    assert hosted.problems() == [key]


async def test_the_faults_of_all_agents_are_told_together(tmp_path: Path) -> None:
    agents = tuple(AgentSettings(name=name, base=tmp_path, graph=f"./{name}.py:graph") for name in ("a", "b"))
    with pytest.raises(ConfigurationError) as caught:
        await load_agents(Settings(agents=agents), SystemClock())
    assert len(caught.value.problems) == 2


async def test_no_fault_hides_another_one_of_any_kind(tmp_path: Path, write: Write) -> None:
    write("bad.py", "import no_such_module_here")
    write("things.py", TOOLS)
    write("mcp.json", '{"mcpServers": {"x": {}}}')
    agents = (
        AgentSettings(name="a", base=tmp_path, graph="./nope.py:g", state_types=("./nope.py:State",)),
        AgentSettings(name="b", base=tmp_path, graph="./bad.py:g"),
        AgentSettings(
            name="c",
            base=tmp_path,
            tools=("./absent.py:t", "./things.py:number"),
            mcp_config=Path("mcp.json"),
            system_prompt_file=Path("missing.md"),
            state_types=("./things.py:add",),
        ),
        AgentSettings(
            name="d", base=tmp_path, mcp_config=Path("absent.json"), tools=("./things.py:both", "things:add")
        ),
    )
    with pytest.raises(ConfigurationError) as caught:
        await load_agents(Settings(agents=agents), SystemClock())
    told = [
        ("state type", "'a'", "nope.py"),
        ("graph", "'a'", "nope.py"),
        ("graph", "'b'", "no_such_module_here"),
        ("state type", "'c'", "not a class"),
        ("neither `command` nor `url`",),
        ("tool", "'c'", "absent.py"),
        ("tool", "'c'", "is a int"),
        ("system_prompt_file", "'c'", "missing.md"),
        ("absent.json", "cannot be read"),
        ("Two tools are named 'add'",),
    ]
    found = caught.value.problems
    assert len(found) == len(told), found
    for problem, words in zip(found, told, strict=True):
        assert all(word.lower() in problem.lower() for word in words), (problem, words)


@pytest.mark.parametrize("text", ["import sys\nsys.exit(5)\n", "def graph():\n    raise SystemExit(5)\n"])
async def test_a_file_that_ends_the_program_is_a_fault_of_the_agent(tmp_path: Path, write: Write, text: str) -> None:
    write("leaves.py", text)
    assert "SystemExit: 5" in await refusal(tmp_path, graph="./leaves.py:graph")


TOOLS_GRAPH = """
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode as Stock
from perdure import ToolNode

@tool
def pay(amount: int) -> str:
    "Pays."
    return "paid"

graph = StateGraph(MessagesState)
graph.add_node("tools", NODE([pay]))
graph.add_edge(START, "tools")
"""


async def test_tools_that_nothing_guards_are_named_once_at_load(tmp_path: Path, write: Write) -> None:
    write("stock.py", TOOLS_GRAPH.replace("NODE", "Stock"))
    write("ours.py", TOOLS_GRAPH.replace("NODE", "ToolNode"))
    hosted = await load(tmp_path, "./stock.py:graph")
    assert hosted.uncovered_tools == ("pay",)
    (notice,) = hosted.notices
    assert "`pay`" in notice and "perdure.ToolNode" in notice
    covered = await load(tmp_path, "./ours.py:graph", needs_approval=("pay",), effects=("pay=keyed",))
    assert (covered.uncovered_tools, covered.notices) == ((), ())
    assert covered.policy.gated("pay")
    assert covered.policy.effect_of("pay", None) == "keyed"


async def test_approvals_that_a_graph_could_not_ask_for_are_refused(tmp_path: Path, write: Write) -> None:
    write("stock.py", TOOLS_GRAPH.replace("NODE", "Stock"))
    write("ours.py", TOOLS_GRAPH.replace("NODE", "ToolNode"))
    assert "nobody can be asked" in await refusal(tmp_path, "./stock.py:graph", needs_approval=("pa*",))
    assert "Did you mean `pay`" in await refusal(tmp_path, "./ours.py:graph", needs_approval=("pya",))


async def test_what_the_settings_say_of_tools_is_checked_with_everything_else(tmp_path: Path, write: Write) -> None:
    write("mcp.json", '{"mcpServers": {"files": {"command": "files"}}}')
    text = await refusal(
        tmp_path,
        model="openai:x",
        mcp_config=Path("mcp.json"),
        needs_approval=("fils__write", "files__write"),
        effects=("a=reed",),
        state_types=("nowhere:Nothing",),
    )
    assert [
        word for word in ["no MCP server `fils`", "Did you mean `files`", "'reed'", "nowhere"] if word not in text
    ] == []
    assert "files__write" not in text


async def test_metadata_that_names_no_effect_class_is_refused(tmp_path: Path, write: Write) -> None:
    write(
        "deeds.py",
        "from langchain_core.tools import tool\n@tool\ndef pay():\n    'Pays.'\npay.metadata = {'effect': 'reed'}\n",
    )
    assert "Did you mean 'read'" in await refusal(tmp_path, model="openai:x", tools=("./deeds.py:pay",))


async def test_the_demo_agent_gates_its_restart(tmp_path: Path) -> None:
    hosted = await load(tmp_path, needs_approval=("tick",))
    assert (hosted.policy.gated("restart_service"), hosted.policy.gated("tick")) == (True, True)
    assert not hosted.policy.gated("read_status")
