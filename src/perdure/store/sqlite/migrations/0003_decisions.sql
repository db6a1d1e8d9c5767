-- Tool calls, decisions, budgets, tokens and the audit.

-- The tool-call ledger: a row from the intent on. `once` calls are never started twice without a person's word, so a row
-- outlives its attempt; its result is dropped once the writes of the task that made the call are committed.
CREATE TABLE tool_calls (
    number       INTEGER PRIMARY KEY,              -- in the order of first starts
    key          TEXT NOT NULL UNIQUE,             -- the idempotency key
    turn         TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    conversation TEXT NOT NULL,
    call_id      TEXT NOT NULL,                    -- as the model named it
    message_id   TEXT NOT NULL,
    name         TEXT NOT NULL,
    server       TEXT,
    arguments    TEXT NOT NULL,                    -- what ran last: the model's, or those a person approved
    digest       TEXT NOT NULL,
    effect_class TEXT NOT NULL CHECK (effect_class IN ('read', 'keyed', 'checkable', 'once')),
    state        TEXT NOT NULL CHECK (state IN ('started', 'recorded', 'settled')),
    starts       INTEGER NOT NULL DEFAULT 1,
    attempt      INTEGER NOT NULL,                 -- of the last start
    epoch        INTEGER NOT NULL,
    task         TEXT NOT NULL,                    -- LangGraph's task that made it
    started_at   INTEGER NOT NULL,
    ended_at     INTEGER,
    status       TEXT CHECK (status IN ('success', 'error')),
    error        TEXT,                             -- why the outcome of a started call is not known
    result_kind  TEXT,
    result       BLOB,                             -- last: nobody has to read through it for another column
    CHECK ((state = 'started') = (ended_at IS NULL)),
    CHECK ((state = 'recorded') = (result IS NOT NULL))
);
CREATE INDEX tool_calls_of_turn ON tool_calls (turn, number);
CREATE INDEX tool_calls_unsettled ON tool_calls (state, conversation) WHERE state <> 'settled';

-- Cards are now of three kinds: 'approval' and 'uncertain' ask about one tool call, 'interrupt' is the graph's own question.
ALTER TABLE cards ADD COLUMN tool TEXT;
ALTER TABLE cards ADD COLUMN server TEXT;
ALTER TABLE cards ADD COLUMN arguments TEXT;
ALTER TABLE cards ADD COLUMN digest TEXT;
ALTER TABLE cards ADD COLUMN effect_class TEXT;
ALTER TABLE cards ADD COLUMN call_id TEXT;
ALTER TABLE cards ADD COLUMN message_id TEXT;
ALTER TABLE cards ADD COLUMN call_key TEXT;
ALTER TABLE cards ADD COLUMN why TEXT NOT NULL DEFAULT '';
ALTER TABLE cards ADD COLUMN expires_at INTEGER;
ALTER TABLE cards ADD COLUMN deciders TEXT NOT NULL DEFAULT '[]';  -- JSON list of names
ALTER TABLE cards ADD COLUMN decision TEXT;
ALTER TABLE cards ADD COLUMN decided_arguments TEXT;               -- JSON: approved with these instead
ALTER TABLE cards ADD COLUMN note TEXT;
ALTER TABLE cards ADD COLUMN result TEXT;                          -- JSON: what a call that happened gave
UPDATE cards SET decision = 'answer' WHERE state = 'decided';      -- `answer` keeps holding the value of an interrupt
-- From now on a card is open only while its turn is parked.
UPDATE cards SET state = 'closed' WHERE state = 'opened' AND turn IN (SELECT id FROM turns WHERE status <> 'parked');
DROP INDEX cards_open;
CREATE INDEX cards_open ON cards (owner, opened_at, id) WHERE state = 'opened';
CREATE INDEX cards_open_everywhere ON cards (opened_at, id) WHERE state = 'opened';
CREATE INDEX cards_open_named ON cards (opened_at, id) WHERE state = 'opened' AND deciders <> '[]';
CREATE INDEX cards_expiring ON cards (expires_at) WHERE state = 'opened' AND expires_at IS NOT NULL;

-- What a turn used, over all attempts, and what it had used at its last fresh budget.
ALTER TABLE turns ADD COLUMN model_calls INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN tool_calls INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN worked INTEGER NOT NULL DEFAULT 0;        -- microseconds in attempts that ended
ALTER TABLE turns ADD COLUMN working INTEGER NOT NULL DEFAULT 0;       -- microseconds of the running one until its last renewal
ALTER TABLE turns ADD COLUMN model_calls_from INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN tool_calls_from INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN tokens_from INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN worked_from INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN repeated TEXT NOT NULL DEFAULT '';        -- the last tool call: name and digest
ALTER TABLE turns ADD COLUMN repeats INTEGER NOT NULL DEFAULT 0;       -- how often in a row
ALTER TABLE turns ADD COLUMN discards_cards INTEGER NOT NULL DEFAULT 0;

-- What models had said, and no message holds, when a cancel parked its turn: the repair after the decision keeps it.
CREATE TABLE spoken (
    number  INTEGER PRIMARY KEY,
    turn    TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    message TEXT NOT NULL,
    text    TEXT NOT NULL,
    UNIQUE (turn, message)
);

-- An operator's lists.
CREATE INDEX conversations_by_activity_everywhere ON conversations (updated_at DESC, id DESC);

CREATE TABLE tokens (
    name         TEXT PRIMARY KEY,
    secret_hash  TEXT NOT NULL UNIQUE,             -- SHA-256 of a random secret of 256 bits
    role         TEXT NOT NULL CHECK (role IN ('user', 'operator')),
    created_at   INTEGER NOT NULL,
    created_by   TEXT NOT NULL,
    revoked_at   INTEGER,
    last_used_at INTEGER
) WITHOUT ROWID;

CREATE TABLE audit (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    at           INTEGER NOT NULL,
    by           TEXT NOT NULL,
    owner        TEXT,                             -- of the conversation; NULL for what concerns nobody's
    action       TEXT NOT NULL,
    conversation TEXT,
    turn         TEXT,
    card         TEXT,
    detail       TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_of_owner ON audit (owner, number);
