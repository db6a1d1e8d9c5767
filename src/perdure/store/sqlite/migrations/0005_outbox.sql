-- What a journal tells to others: which one it is, what the stream of events has of it, and what a copy must know.

-- One row, made here and never changed: a copy of the file, and a backup that was restored, have the same.
CREATE TABLE journal (
    id TEXT NOT NULL
);
INSERT INTO journal (id) VALUES (lower(hex(randomblob(16))));

-- Numbers of changes that were given out after a backup and went away when it was restored: a cursor among them is of a
-- past that never happened.
CREATE TABLE lost_changes (
    first INTEGER NOT NULL,
    last  INTEGER NOT NULL
);

-- How far the events of a conversation are in the stream. Losing a row costs a repetition, no event.
CREATE TABLE outbox (
    conversation TEXT PRIMARY KEY REFERENCES conversations (id) ON DELETE CASCADE,
    stream       TEXT NOT NULL,
    seq          INTEGER NOT NULL
) WITHOUT ROWID;

-- A cancel that does not move its turn at once is a change like any other.
CREATE TRIGGER turns_cancel_requested AFTER UPDATE OF cancel_requested_at ON turns
WHEN OLD.cancel_requested_at IS NULL AND NEW.cancel_requested_at IS NOT NULL AND OLD.status = NEW.status
    AND NEW.status <> 'parked'                                           -- which goes on to queued in the same transaction
BEGIN
    INSERT INTO changes (owner, kind, conversation, turn, status, at)
    VALUES (NEW.owner, 'turn', NEW.conversation, NEW.id, NEW.status,
            (SELECT updated_at FROM conversations WHERE id = NEW.conversation));
END;

-- A copy begins with the first change, so every conversation and every turn needs one. Retention had removed the old ones; from
-- now on it keeps the last of each. Those made here come before all others, from -2 down.
INSERT INTO changes (number, owner, kind, conversation, turn, status, at)
SELECT t.accept_number - (SELECT max(accept_number) + 2 FROM turns), t.owner, 'turn', t.conversation, t.id, t.status,
    coalesce(t.ended_at, t.accepted_at)
FROM turns t WHERE t.id NOT IN (SELECT turn FROM changes WHERE turn IS NOT NULL);
INSERT INTO changes (number, owner, kind, conversation, status, at)
SELECT c.rowid - (SELECT max(rowid) + 1 FROM conversations) - (SELECT coalesce(max(accept_number), 0) + 2 FROM turns),
    c.owner, 'conversation', c.id, 'created', c.created_at
FROM conversations c WHERE c.id NOT IN (SELECT conversation FROM changes WHERE kind = 'conversation');
INSERT INTO changes (owner, kind, conversation, status, at)              -- who has read all stands above 0, which is the beginning
SELECT owner, 'conversation', id, 'updated', updated_at FROM conversations
WHERE NOT EXISTS (SELECT 1 FROM changes WHERE number > 0) ORDER BY updated_at DESC, id DESC LIMIT 1;
