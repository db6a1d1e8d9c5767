-- The journal: conversations, turns, attempts, events, cards, idempotency keys, summaries, boots.
-- Instants are integer microseconds since the epoch, UTC. Ids are text. JSON is text.

CREATE TABLE conversations (
    id            TEXT PRIMARY KEY,
    owner         TEXT NOT NULL,
    agent         TEXT NOT NULL,
    title         TEXT NOT NULL,
    message_count INTEGER NOT NULL DEFAULT 0,
    next_seq      INTEGER NOT NULL DEFAULT 1,   -- the first seq nobody has reserved
    forked_from   TEXT,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL
);
CREATE INDEX conversations_by_activity ON conversations (owner, updated_at DESC, id DESC);

CREATE TABLE turns (
    accept_number             INTEGER PRIMARY KEY AUTOINCREMENT,
    id                        TEXT NOT NULL UNIQUE,
    conversation              TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    owner                     TEXT NOT NULL,
    agent                     TEXT NOT NULL,
    status                    TEXT NOT NULL CHECK (status IN
        ('waiting', 'queued', 'running', 'parked', 'completed', 'failed', 'cancelled', 'interrupted')),
    input                     TEXT,              -- dropped once the thread holds the input checkpoint
    epoch                     INTEGER NOT NULL DEFAULT 0,
    attempts                  INTEGER NOT NULL DEFAULT 0,
    attempts_without_progress INTEGER NOT NULL DEFAULT 0,
    supersteps                INTEGER NOT NULL DEFAULT 0,
    budget_from               INTEGER NOT NULL DEFAULT 0,
    first_seq                 INTEGER NOT NULL,  -- no event of this turn has a lower seq
    committed_seq             INTEGER NOT NULL,  -- the rewind boundary
    cancel_requested_at       INTEGER,
    superseded                INTEGER NOT NULL DEFAULT 0,
    failure_code              TEXT,
    failure_reason            TEXT,
    failure_message           TEXT,
    input_tokens              INTEGER NOT NULL DEFAULT 0,
    output_tokens             INTEGER NOT NULL DEFAULT 0,
    total_tokens              INTEGER NOT NULL DEFAULT 0,
    not_before                INTEGER,
    lease_owner               TEXT,
    lease_expires_at          INTEGER,
    accepted_at               INTEGER NOT NULL,
    ended_at                  INTEGER,
    CHECK ((status = 'running') = (lease_owner IS NOT NULL)),
    CHECK ((status = 'running') = (lease_expires_at IS NOT NULL)),
    CHECK ((status IN ('completed', 'failed', 'cancelled', 'interrupted')) = (ended_at IS NOT NULL)),
    CHECK ((status IN ('failed', 'interrupted')) = (failure_code IS NOT NULL))
);
CREATE UNIQUE INDEX turns_one_active_per_thread ON turns (conversation) WHERE status IN ('queued', 'running', 'parked');
CREATE INDEX turns_of_conversation ON turns (conversation, accept_number);
CREATE INDEX turns_claimable ON turns (agent, accept_number) WHERE status = 'queued';
CREATE INDEX turns_delayed ON turns (not_before) WHERE status = 'queued' AND not_before IS NOT NULL;
CREATE INDEX turns_tried ON turns (attempts_without_progress) WHERE status = 'queued' AND attempts_without_progress > 0;
CREATE INDEX turns_waiting ON turns (conversation, accept_number) WHERE status = 'waiting';
CREATE INDEX turns_running ON turns (lease_expires_at) WHERE status = 'running';
CREATE INDEX turns_of_owner ON turns (owner, accept_number DESC);

-- The allowed moves, once more where nobody can forget them (turns.py has the table, a test compares the two).
CREATE TRIGGER turns_transition BEFORE UPDATE OF status ON turns
WHEN OLD.status <> NEW.status AND NOT (
       (OLD.status = 'waiting'     AND NEW.status IN ('queued', 'cancelled'))
    OR (OLD.status = 'queued'      AND NEW.status = 'running')
    OR (OLD.status = 'running'     AND NEW.status IN ('queued', 'parked', 'completed', 'failed', 'cancelled', 'interrupted'))
    OR (OLD.status = 'parked'      AND NEW.status = 'queued')
    OR (OLD.status = 'failed'      AND NEW.status = 'queued')
    OR (OLD.status = 'interrupted' AND NEW.status = 'queued'))
BEGIN
    SELECT RAISE(ABORT, 'transition not allowed');
END;

CREATE TABLE attempts (
    turn       TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    number     INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    owner      TEXT NOT NULL,                    -- host:pid:boot_id
    boot       INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    outcome    TEXT CHECK (outcome IN ('completed', 'failed', 'cancelled', 'parked', 'released', 'retried', 'died')),
    progressed INTEGER NOT NULL DEFAULT 0,
    error      TEXT,
    PRIMARY KEY (turn, epoch),
    CHECK ((outcome IS NULL) = (ended_at IS NULL))
) WITHOUT ROWID;

CREATE TABLE events (
    conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    seq          INTEGER NOT NULL,
    turn         TEXT NOT NULL,
    attempt      INTEGER NOT NULL,
    kind         TEXT NOT NULL,
    at           INTEGER NOT NULL,
    item_id      INTEGER,                        -- a message event refers to the stored message
    payload      TEXT,                           -- JSON of every other kind
    dropped_by   INTEGER,                        -- the seq of the rewind that dropped it
    PRIMARY KEY (conversation, seq)
) WITHOUT ROWID;
-- A turn's other events lie between its `first_seq` and its end, in the order of the primary key.
CREATE INDEX events_that_turn ON events (turn, seq) WHERE kind IN ('end', 'chat-error', 'rewind');

CREATE TABLE cards (
    id           TEXT PRIMARY KEY,
    turn         TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    conversation TEXT NOT NULL,
    owner        TEXT NOT NULL,
    interrupt_id TEXT NOT NULL,
    kind         TEXT NOT NULL,
    request      TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('opened', 'decided', 'closed')),
    answer       TEXT,
    decided_by   TEXT,
    decided_at   INTEGER,
    opened_at    INTEGER NOT NULL,
    UNIQUE (turn, interrupt_id),
    CHECK ((state = 'decided') = (decided_at IS NOT NULL))
);
CREATE INDEX cards_open ON cards (owner, opened_at) WHERE state = 'opened';

CREATE TABLE idempotency_keys (
    owner      TEXT NOT NULL,
    key        TEXT NOT NULL,
    digest     TEXT NOT NULL,
    turn       TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (owner, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_keys_by_turn ON idempotency_keys (turn);

-- Summaries for lists: written by triggers, so that no transition can be missed.
CREATE TABLE changes (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    owner        TEXT NOT NULL,
    kind         TEXT NOT NULL CHECK (kind IN ('conversation', 'turn')),
    conversation TEXT NOT NULL,
    turn         TEXT,
    status       TEXT NOT NULL,
    at           INTEGER NOT NULL
);
CREATE INDEX changes_of_owner ON changes (owner, number);

CREATE TRIGGER turns_accepted AFTER INSERT ON turns BEGIN
    INSERT INTO changes (owner, kind, conversation, turn, status, at)
    VALUES (NEW.owner, 'turn', NEW.conversation, NEW.id, NEW.status, NEW.accepted_at);
END;
CREATE TRIGGER turns_changed AFTER UPDATE OF status ON turns WHEN OLD.status <> NEW.status BEGIN
    INSERT INTO changes (owner, kind, conversation, turn, status, at)
    VALUES (NEW.owner, 'turn', NEW.conversation, NEW.id, NEW.status,
            (SELECT updated_at FROM conversations WHERE id = NEW.conversation));
END;
CREATE TRIGGER conversations_created AFTER INSERT ON conversations BEGIN
    INSERT INTO changes (owner, kind, conversation, status, at)
    VALUES (NEW.owner, 'conversation', NEW.id, 'created', NEW.created_at);
END;
CREATE TRIGGER conversations_renamed AFTER UPDATE OF title ON conversations WHEN OLD.title <> NEW.title BEGIN
    INSERT INTO changes (owner, kind, conversation, status, at)
    VALUES (NEW.owner, 'conversation', NEW.id, 'updated', NEW.updated_at);
END;
CREATE TRIGGER conversations_deleted AFTER DELETE ON conversations BEGIN
    INSERT INTO changes (owner, kind, conversation, status, at)
    VALUES (OLD.owner, 'conversation', OLD.id, 'deleted', OLD.updated_at);
END;

CREATE TABLE boots (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    owner      TEXT NOT NULL,
    version    TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER                           -- NULL: running, or ended uncleanly
);
