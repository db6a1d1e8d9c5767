"""The list of all settings: one line each, from which variables, flags, file keys and their help are made."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.effects import OnUncertain
from perdure.settings import values
from perdure.settings.values import Reader

DAY_SECONDS = 86_400.0
LARGEST = 1_000_000_000_000


@dataclass(frozen=True, slots=True)
class Setting:
    """`name` is the file key; `PERDURE_<NAME>` and `--name-with-dashes` follow from it."""

    name: str
    reader: Reader
    help: str
    of_agent: bool = False
    """True: it belongs to agents; outside an `[agents.NAME]` table it is the default for all of them."""

    many: bool = False
    secret: bool = False

    @property
    def variable(self) -> str:
        return f"PERDURE_{self.name.upper()}"

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"


SETTINGS: tuple[Setting, ...] = (
    Setting("host", values.text, "Address to listen on; not loopback needs an explicit token."),
    Setting("port", values.whole(0, 65_535), "Port to listen on; 0 takes a free one."),
    Setting("allowed_hosts", values.host_names, "Host header values served beside the loopback names.", many=True),
    Setting("database", values.path, "The SQLite file that holds everything."),
    Setting("token", values.secret, "The access token; --token-file does not show in process lists.", secret=True),
    Setting("token_file", values.existing_file, "A file that holds the access token."),
    Setting("project", values.existing_file, "perdure.toml or langgraph.json; the working folder is searched."),
    Setting("default_agent", values.text, "The agent that answers when a request names none."),
    Setting("max_running", values.whole(1, 100_000), "Turns driven at once by this process."),
    Setting("lease_seconds", values.number(0, 3_600), "How long a silent owner of a turn is believed alive."),
    Setting("sweep_seconds", values.number(0, 3_600), "How often turns of dead owners are searched."),
    Setting("drain_seconds", values.number(0, 3_600), "How long running steps may end at shutdown."),
    Setting("model_retry_seconds", values.number(0, DAY_SECONDS), "How long transient model errors are retried."),
    Setting("model_idle_timeout_seconds", values.number(0, DAY_SECONDS), "A model silent for so long is given up."),
    Setting("tool_timeout_seconds", values.number(0, DAY_SECONDS), "A tool call that takes longer is ended."),
    Setting("max_attempts", values.whole(1, 1_000), "Attempts in a row without progress before a turn fails."),
    Setting("total_attempts", values.whole(1, 100_000), "All attempts of a turn before it fails."),
    Setting("heartbeat_seconds", values.number(0, 60), "How often an idle stream says that it is alive."),
    Setting("retention_days", values.number(0, 36_500), "Ended turns older than this lose what is not needed."),
    Setting("max_message_bytes", values.whole(1, 100_000_000), "Larger request bodies are refused."),
    Setting("nats_url", values.nats_addresses, "NATS server(s) of `perdure agent` and `perdure gateway`, with commas."),
    Setting("nats_prefix", values.subject_word, "The first word of every NATS subject."),
    Setting("namespace", values.subject_word, "Agents and gateways of one namespace find each other."),
    Setting("agent_name", values.subject_word, "Which agent of the project `perdure agent` serves."),
    Setting("nats_credentials_file", values.existing_file, "A .creds file (JWT and seed) for NATS."),
    Setting("nats_nkey_file", values.existing_file, "A file with an nkey seed for NATS."),
    Setting("nats_ca_file", values.existing_file, "The certificate authority that NATS' certificate is checked with."),
    Setting("nats_certificate_file", values.existing_file, "This client's certificate for NATS."),
    Setting("nats_key_file", values.existing_file, "The key of `nats_certificate_file`."),
    Setting(
        "turn_deadline_seconds",
        values.number_from(0, 30 * DAY_SECONDS),
        "How long a gateway follows a turn (parked time not counted); 0: for ever.",
    ),
    Setting(
        "agent_wait_seconds", values.number(0, 600), "How long a gateway waits for an agent's answer to a request."
    ),
    Setting("log_level", values.choice("debug", "info", "warning", "error"), "debug, info, warning or error."),
    Setting("log_format", values.choice("auto", "console", "json"), "auto, console or json."),
    Setting("model", values.text, "An init_chat_model name (provider:model), or demo.", of_agent=True),
    Setting("model_base_url", values.web_address, "For OpenAI-compatible and Ollama servers.", of_agent=True),
    Setting("system_prompt_file", values.path, "Read again at every model call.", of_agent=True),
    Setting("mcp_config", values.path, "MCP servers in the common mcpServers form.", of_agent=True),
    Setting(
        "tools", values.references, "Python tools: module:attribute, ./file.py:attribute.", of_agent=True, many=True
    ),
    Setting("state_types", values.references, "Extra types that graph state may hold.", of_agent=True, many=True),
    Setting(
        "context_tokens",
        values.whole(1, 100_000_000),
        "Older turns are left out of model calls beyond it.",
        of_agent=True,
    ),
    Setting("recursion_limit", values.whole(1, 100_000), "Supersteps a turn may take.", of_agent=True),
    Setting(
        "redrive",
        values.choice("auto", "manual"),
        "After a crash: auto goes on, manual waits for a person.",
        of_agent=True,
    ),
    Setting(
        "needs_approval",
        values.tool_patterns,
        "Tools (names, globs) that wait for a person before each call.",
        of_agent=True,
        many=True,
    ),
    Setting(
        "effects",
        values.effects,
        "`glob=class`: what tools do (read, keyed, checkable, once), over what they say themselves.",
        of_agent=True,
        many=True,
    ),
    Setting(
        "on_uncertain",
        values.choice(*map(str, OnUncertain)),
        "A `once` call whose outcome is not known: ask a person, retry it, or fail the turn.",
        of_agent=True,
    ),
    Setting(
        "approval_expires_seconds",
        values.number(0, 3_660 * DAY_SECONDS),
        "An approval that nobody decides in this time is denied.",
        of_agent=True,
    ),
    Setting(
        "approval_deciders",
        values.token_names,
        "Tokens that alone may decide; else the owner and every operator.",
        of_agent=True,
        many=True,
    ),
    Setting(
        "poll",
        values.tool_patterns,
        "Tools (names, globs) that `max_identical_calls` does not count.",
        of_agent=True,
        many=True,
    ),
    Setting("max_model_calls", values.whole(1, LARGEST), "Model calls a turn may make.", of_agent=True),
    Setting("max_tool_calls", values.whole(1, LARGEST), "Tool calls a turn may start.", of_agent=True),
    Setting("max_tokens", values.whole(1, LARGEST), "Tokens the models of a turn may use.", of_agent=True),
    Setting(
        "max_turn_seconds",
        values.number(0, 3_660 * DAY_SECONDS),
        "Time a turn may be worked on; parked time does not count.",
        of_agent=True,
    ),
    Setting(
        "max_identical_calls",
        values.whole(1, LARGEST),
        "The same tool with the same arguments, in a row.",
        of_agent=True,
    ),
)

BY_NAME = {setting.name: setting for setting in SETTINGS}
BY_VARIABLE = {setting.variable: setting for setting in SETTINGS}

ALIASES = {"AGENT_RECURSION_LIMIT": "recursion_limit"}
"""Variables of other programs that mean the same; ours win."""

OTHER_VARIABLES = frozenset(
    {
        "PERDURE_DEMO_STEP_SECONDS",
        "PERDURE_DEMO_TOKEN_SECONDS",
        "PERDURE_DEMO_EFFECTS",
        "PERDURE_DEMO_EFFECT_PAUSE_SECONDS",
        "PERDURE_FAILPOINTS",
        "PERDURE_FAILPOINTS_LOG",
    }
)
"""Read elsewhere: by the demo agent and by the failpoints of the tests."""

ONLY_IN_AGENT_TABLES = {
    "graph": values.references,
    "max_running": values.whole(1, 100_000),
}
"""Keys of `[agents.NAME]` beside the settings that belong to agents."""
