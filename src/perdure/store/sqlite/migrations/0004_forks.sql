-- Forks, a search over what was said, and an operator's lists.

-- A fork has rows of its own for the checkpoints that it begins with; lists and items are shared within the family of spaces.
ALTER TABLE conversations ADD COLUMN forked_turn TEXT;        -- the turn of `forked_from` that it begins before; NULL within a turn
ALTER TABLE conversations ADD COLUMN forked_checkpoint TEXT;  -- what it begins with; NULL: with nothing
ALTER TABLE conversations ADD COLUMN tree TEXT;               -- of a fork: the conversation that its whole lineage goes back to
CREATE INDEX conversations_of_tree ON conversations (tree) WHERE tree IS NOT NULL;
CREATE INDEX conversations_forked ON conversations (created_at) WHERE forked_from IS NOT NULL;

-- A key may stand for a conversation alone: a fork without a turn.
CREATE TABLE request_keys (
    owner        TEXT NOT NULL,
    key          TEXT NOT NULL,
    digest       TEXT NOT NULL,
    conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    turn         TEXT REFERENCES turns (id) ON DELETE CASCADE,
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (owner, key)
) WITHOUT ROWID;
INSERT INTO request_keys (owner, key, digest, conversation, turn, created_at)
SELECT k.owner, k.key, k.digest, t.conversation, k.turn, k.created_at
FROM idempotency_keys k JOIN turns t ON t.id = k.turn;
DROP TABLE idempotency_keys;
ALTER TABLE request_keys RENAME TO idempotency_keys;
CREATE INDEX idempotency_keys_by_turn ON idempotency_keys (turn);
CREATE INDEX idempotency_keys_by_conversation ON idempotency_keys (conversation);

-- What can be found: titles (message '') and the messages of people and assistants. The index holds words, not the text.
CREATE TABLE searchable (
    doc          INTEGER PRIMARY KEY,             -- grows with time
    conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    message      TEXT NOT NULL,
    UNIQUE (conversation, message)
);
CREATE VIRTUAL TABLE words USING fts5 (
    owner, text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE known_words USING fts5vocab (words, 'row');
INSERT INTO words (words, rank) VALUES ('deletemerge', 1);   -- deleted words are overwritten soon
INSERT INTO searchable (conversation, message) SELECT id, '' FROM conversations ORDER BY created_at;
INSERT INTO words (rowid, owner, text)
SELECT s.doc, 'o' || lower(hex(c.owner)), c.title FROM searchable s JOIN conversations c ON c.id = s.conversation;

-- An operator's lists.
CREATE INDEX turns_by_status ON turns (owner, status, agent);
CREATE INDEX turns_failed_by_code ON turns (failure_code) WHERE failure_code IS NOT NULL;
CREATE INDEX turns_failed_by_reason ON turns (failure_reason) WHERE failure_reason IS NOT NULL;
CREATE INDEX turns_retried ON turns (accept_number) WHERE attempts > 1;
