-- What a gateway's file has beside the tables of a journal: whose copy each row is and as of when, and what is the gateway's own.

-- How far the files of this folder were applied.
CREATE TABLE copies (version INTEGER NOT NULL);
INSERT INTO copies (version) VALUES (0);

-- A copy sees some states of a turn and misses others: it moves as it is told. For a moment it may know that a turn began and not
-- yet that the one before it has ended: the newest one is the active one.
DROP TRIGGER turns_transition;
DROP INDEX turns_one_active_per_thread;
CREATE INDEX turns_one_active_per_thread ON turns (conversation, accept_number DESC)
    WHERE status IN ('queued', 'running', 'parked');

-- How far the copy holds an agent's journal, and what the agent told of itself last.
CREATE TABLE agents (
    name     TEXT PRIMARY KEY,
    journal  TEXT NOT NULL DEFAULT '',
    change   INTEGER NOT NULL DEFAULT 0,
    audit    INTEGER NOT NULL DEFAULT 0,
    document TEXT                                  -- JSON; NULL: nothing yet
) WITHOUT ROWID;

-- `change`: of the journal, when the row was read there. What was read earlier does not take its place.
CREATE TABLE copied_conversations (
    conversation TEXT PRIMARY KEY REFERENCES conversations (id) ON DELETE CASCADE,
    agent        TEXT NOT NULL,
    change       INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX copied_conversations_of_agent ON copied_conversations (agent);

CREATE TABLE copied_turns (
    turn          TEXT PRIMARY KEY REFERENCES turns (id) ON DELETE CASCADE,
    conversation  TEXT NOT NULL,
    accept_number INTEGER NOT NULL,                -- in its journal; here it has another, for journals count alike
    change        INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX copied_turns_in_order ON copied_turns (conversation, accept_number);

CREATE TABLE copied_audit (
    agent  TEXT NOT NULL,
    source INTEGER NOT NULL,                       -- the number in its journal
    number INTEGER NOT NULL UNIQUE,                -- the number here
    PRIMARY KEY (agent, source)
) WITHOUT ROWID;

-- What was deleted does not come back with rows that were read before.
CREATE TABLE copied_deletions (
    conversation TEXT PRIMARY KEY,
    agent        TEXT NOT NULL,
    change       INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX copied_deletions_of_agent ON copied_deletions (agent);

-- The messages of a conversation as its agent told them last.
CREATE TABLE transcripts (
    conversation TEXT PRIMARY KEY REFERENCES conversations (id) ON DELETE CASCADE,
    seq          INTEGER NOT NULL,
    document     TEXT NOT NULL                     -- JSON
);

-- How far the stream of events was read: one row at most.
CREATE TABLE stream_position (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    stream TEXT NOT NULL,
    seq    INTEGER NOT NULL
);

-- Turns that this gateway gave to an agent and whose end it waits for.
CREATE TABLE dispatches (
    turn          TEXT PRIMARY KEY,
    conversation  TEXT NOT NULL,
    agent         TEXT NOT NULL,
    dispatched_at INTEGER NOT NULL,
    parked        INTEGER NOT NULL                 -- microseconds that the deadline does not count
) WITHOUT ROWID;
