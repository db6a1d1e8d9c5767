-- LangGraph's checkpoints, stored so that a thread grows linearly: the bytes of every message and of every larger value
-- stand in one row of `items`; checkpoints, lists, writes and events refer to that row by its id.
-- "Latest" is the greatest `position` of a space, an integer that only grows in the order of commits; never a clock.
-- Nothing here has a foreign key into `items` or `lists`: a checkpoint names them in `refs`, and deleting follows `refs`.

-- A namespace of a thread ('' is the root graph). Threads that were copied from one another share items and lists: they
-- are one family.
CREATE TABLE spaces (
    id        INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL,
    ns        TEXT NOT NULL,
    family    INTEGER NOT NULL,
    UNIQUE (thread_id, ns)
);
CREATE INDEX spaces_of_family ON spaces (family);

CREATE TABLE checkpoints (
    space         INTEGER NOT NULL REFERENCES spaces (id) ON DELETE CASCADE,
    position      INTEGER NOT NULL,
    checkpoint_id TEXT NOT NULL,
    parent_id     TEXT,
    header        BLOB NOT NULL,                 -- versions, times and small values (encoding.py)
    refs          TEXT NOT NULL,                 -- JSON {"l": {channel: [list, length, delta]}, "v": {channel: item}, "i": [item]}
    metadata      TEXT NOT NULL,                 -- JSON, as LangGraph gave it; `run_id` names the turn
    PRIMARY KEY (space, position)
) WITHOUT ROWID;
CREATE UNIQUE INDEX checkpoints_by_id ON checkpoints (space, checkpoint_id);

-- A message, another element of a list, or a value. Immutable.
CREATE TABLE items (
    id   INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,                       -- 0 null, 1 bytes, 2 bytearray, 3 msgpack
    data BLOB NOT NULL,
    refs TEXT                                    -- JSON [[path, item], …]: what stands in other rows
);

-- A list shares the first `parent_length` elements of its parent and owns those from there on. It only ever grows at its
-- end, and only by its owner: a copied thread starts a list of its own there. Any other change starts a new list, too.
CREATE TABLE lists (
    id            INTEGER PRIMARY KEY,
    owner         TEXT NOT NULL,                 -- the thread
    parent_id     INTEGER,
    parent_length INTEGER NOT NULL,
    depth         INTEGER NOT NULL
);

CREATE TABLE list_elements (
    list_id INTEGER NOT NULL,
    idx     INTEGER NOT NULL,
    item_id INTEGER NOT NULL,
    PRIMARY KEY (list_id, idx)
) WITHOUT ROWID;

-- What a task wrote on top of a checkpoint, before the step's own checkpoint holds it.
CREATE TABLE writes (
    space         INTEGER NOT NULL REFERENCES spaces (id) ON DELETE CASCADE,
    checkpoint_id TEXT NOT NULL,
    task_id       TEXT NOT NULL,
    idx           INTEGER NOT NULL,              -- negative for LangGraph's special channels
    task_path     TEXT NOT NULL,
    channel       TEXT NOT NULL,
    kind          INTEGER NOT NULL,
    data          BLOB NOT NULL,
    refs          TEXT,                          -- as in items
    PRIMARY KEY (space, checkpoint_id, task_id, idx)
) WITHOUT ROWID;

-- Items, lists, spaces and positions are numbered by the process, from here on; the mark is moved ahead in blocks.
CREATE TABLE numbers (
    first_free INTEGER NOT NULL
);
INSERT INTO numbers (first_free) VALUES (1);
