-- LangGraph's checkpoints, stored so that a thread grows linearly: every list element once, every channel value once
-- per version. "Latest" is the head's position, an integer that only grows; never a clock.

CREATE TABLE checkpoints (
    position      INTEGER PRIMARY KEY AUTOINCREMENT,
    thread_id     TEXT NOT NULL,
    ns            TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    parent_id     TEXT,
    run_id        TEXT,                          -- the turn that wrote it
    type          TEXT NOT NULL,
    data          BLOB NOT NULL,                 -- the checkpoint without lists and larger values
    metadata      TEXT NOT NULL,
    UNIQUE (thread_id, ns, checkpoint_id)
);
CREATE INDEX checkpoints_of_run ON checkpoints (run_id);

CREATE TABLE heads (
    thread_id     TEXT NOT NULL,
    ns            TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    position      INTEGER NOT NULL,
    PRIMARY KEY (thread_id, ns)
) WITHOUT ROWID;

-- A channel's value at a version: the first `length` elements of a list, or a value of its own.
CREATE TABLE channel_values (
    id        INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL,
    ns        TEXT NOT NULL,
    channel   TEXT NOT NULL,
    version   TEXT NOT NULL,
    list_id   INTEGER,
    length    INTEGER,
    type      TEXT,
    data      BLOB,
    UNIQUE (thread_id, ns, channel, version)
);

-- A list shares the first `parent_length` elements of its parent and owns those from there on; appending to the newest
-- version adds rows, anything else starts a new list.
CREATE TABLE lists (
    id            INTEGER PRIMARY KEY,
    thread_id     TEXT NOT NULL,
    parent_id     INTEGER REFERENCES lists (id),
    parent_length INTEGER NOT NULL DEFAULT 0,
    depth         INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX lists_of_thread ON lists (thread_id);

-- An element. Its bytes stand in one row; another place that holds the same bytes names that row by `source_id`.
CREATE TABLE items (
    id        INTEGER PRIMARY KEY,
    list_id   INTEGER,                           -- NULL: held by a task's writes or an event alone
    idx       INTEGER,
    source_id INTEGER REFERENCES items (id),
    thread_id TEXT NOT NULL,
    type      TEXT,
    data      BLOB
);
CREATE UNIQUE INDEX items_of_list ON items (list_id, idx) WHERE list_id IS NOT NULL;
CREATE INDEX items_of_thread ON items (thread_id);

CREATE TABLE writes (
    id            INTEGER PRIMARY KEY,
    thread_id     TEXT NOT NULL,
    ns            TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    task_id       TEXT NOT NULL,
    idx           INTEGER NOT NULL,
    task_path     TEXT NOT NULL,
    channel       TEXT NOT NULL,
    type          TEXT,
    data          BLOB,
    item_ids      TEXT,                          -- JSON list of items when the value is a list of elements
    UNIQUE (thread_id, ns, checkpoint_id, task_id, idx)
);
