-- Reading and writing checkpoints, lists and items; used by checkpointer.py and its neighbours.

-- space_add --
-- The namespace of a thread; a new one joins the family of its thread, or starts a family of its own.
INSERT INTO spaces (id, thread_id, ns, family)
VALUES (:id, :thread_id, :ns, coalesce((SELECT family FROM spaces WHERE thread_id = :thread_id LIMIT 1), :id));

-- space_id --
-- The namespace's number.
SELECT id FROM spaces WHERE thread_id = :thread_id AND ns = :ns;

-- head_id --
-- The latest checkpoint of a namespace: the one committed last.
SELECT checkpoint_id FROM checkpoints WHERE space = :space ORDER BY position DESC LIMIT 1;

-- checkpoint_put --
-- A checkpoint; nothing when its id is there already.
INSERT INTO checkpoints (space, position, checkpoint_id, parent_id, header, refs, metadata)
VALUES (:space, :position, :checkpoint_id, :parent_id, :header, :refs, :metadata)
ON CONFLICT (space, checkpoint_id) DO NOTHING;

-- checkpoint_replace --
-- A checkpoint that is put again under its id keeps its place.
UPDATE checkpoints SET parent_id = :parent_id, header = :header, refs = :refs, metadata = :metadata
WHERE space = :space AND checkpoint_id = :checkpoint_id;

-- refs_of_checkpoint --
-- What a checkpoint that may be put again referred to.
SELECT refs FROM checkpoints WHERE space = :space AND checkpoint_id = :checkpoint_id;

-- item_put --
-- The bytes of a message or value.
INSERT INTO items (id, kind, data, refs) VALUES (?, ?, ?, ?);

-- list_put --
-- A new list.
INSERT INTO lists (id, owner, parent_id, parent_length, depth) VALUES (?, ?, ?, ?, ?);

-- element_put --
-- One element at the end of a list. A second writer of the same place breaks the primary key and is refused.
INSERT INTO list_elements (list_id, idx, item_id) VALUES (?, ?, ?);

-- write_exists --
-- Which of a task's writes are stored already.
SELECT idx FROM writes WHERE space = :space AND checkpoint_id = :checkpoint_id AND task_id = :task_id;

-- write_put --
-- One write of a task; of the special channels (negative idx) the last one counts.
INSERT OR REPLACE INTO writes (space, checkpoint_id, task_id, idx, task_path, channel, kind, data, refs)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- checkpoint_latest --
-- The head of a namespace.
SELECT c.position, s.thread_id, s.ns, c.space, c.checkpoint_id, c.parent_id, c.header, c.refs, c.metadata
FROM spaces s JOIN checkpoints c ON c.space = s.id
WHERE s.thread_id = :thread_id AND s.ns = :ns
ORDER BY c.position DESC LIMIT 1;

-- checkpoint_by_id --
-- One checkpoint by its id.
SELECT c.position, s.thread_id, s.ns, c.space, c.checkpoint_id, c.parent_id, c.header, c.refs, c.metadata
FROM spaces s JOIN checkpoints c ON c.space = s.id
WHERE s.thread_id = :thread_id AND s.ns = :ns AND c.checkpoint_id = :checkpoint_id;

-- checkpoint_at --
-- One checkpoint by its place.
SELECT c.position, s.thread_id, s.ns, c.space, c.checkpoint_id, c.parent_id, c.header, c.refs, c.metadata
FROM checkpoints c JOIN spaces s ON s.id = c.space
WHERE c.space = :space AND c.position = :position;

-- places_of_space --
-- Places of a namespace's checkpoints that match every filter, newest first. A filter is a key and a value of the
-- metadata; both are bound as one JSON array of pairs, never part of the statement.
SELECT s.thread_id, c.space, c.position
FROM spaces s JOIN checkpoints c ON c.space = s.id
WHERE s.thread_id = :thread_id AND (:ns IS NULL OR s.ns = :ns)
  AND (:checkpoint_id IS NULL OR c.checkpoint_id = :checkpoint_id)
  AND (:before IS NULL OR c.position < (
        SELECT max(b.position) FROM spaces t JOIN checkpoints b ON b.space = t.id
        WHERE t.thread_id = :thread_id AND b.checkpoint_id = :before))
  AND NOT EXISTS (
        SELECT 1 FROM json_each(:filters) f
        WHERE NOT EXISTS (
              SELECT 1 FROM json_each(c.metadata) m
              WHERE m.key = json_extract(f.value, '$[0]') AND m.value IS json_extract(f.value, '$[1]'))
          AND NOT (json_type(f.value, '$[1]') = 'null' AND NOT EXISTS (
              SELECT 1 FROM json_each(c.metadata) m WHERE m.key = json_extract(f.value, '$[0]'))))
ORDER BY c.position DESC LIMIT :limit;

-- places_of_all --
-- The same over every thread.
SELECT s.thread_id, c.space, c.position
FROM checkpoints c JOIN spaces s ON s.id = c.space
WHERE (:before IS NULL OR c.position < (SELECT max(b.position) FROM checkpoints b WHERE b.checkpoint_id = :before))
  AND NOT EXISTS (
        SELECT 1 FROM json_each(:filters) f
        WHERE NOT EXISTS (
              SELECT 1 FROM json_each(c.metadata) m
              WHERE m.key = json_extract(f.value, '$[0]') AND m.value IS json_extract(f.value, '$[1]'))
          AND NOT (json_type(f.value, '$[1]') = 'null' AND NOT EXISTS (
              SELECT 1 FROM json_each(c.metadata) m WHERE m.key = json_extract(f.value, '$[0]'))))
ORDER BY c.position DESC LIMIT :limit;

-- writes_of --
-- Writes on top of a checkpoint, in the order in which a live step applies them.
SELECT task_id, channel, kind, data, refs FROM writes
WHERE space = :space AND checkpoint_id = :checkpoint_id
ORDER BY task_path, task_id, idx;

-- list_of --
-- A list's own row and how many elements it has.
SELECT owner, parent_id, parent_length, depth,
       coalesce((SELECT max(idx) + 1 FROM list_elements WHERE list_id = :id), parent_length)
FROM lists WHERE id = :id;

-- elements_of --
-- The first :length elements of a list with their bytes, following the parents.
WITH RECURSIVE chain (id, parent_id, low, high) AS (
    SELECT id, parent_id, parent_length, :length FROM lists WHERE id = :id
    UNION ALL
    SELECT l.id, l.parent_id, l.parent_length, min(c.low, c.high) FROM chain c JOIN lists l ON l.id = c.parent_id
)
SELECT i.id, i.kind, i.data, i.refs
FROM chain c
JOIN list_elements e ON e.list_id = c.id AND e.idx >= c.low AND e.idx < c.high
JOIN items i ON i.id = e.item_id
ORDER BY e.idx;

-- items_of --
-- Items by id.
SELECT id, kind, data, refs FROM items WHERE id IN (SELECT value FROM json_each(:ids));

-- first_free --
-- No item, list, space or position has this number or a greater one.
SELECT first_free FROM numbers;

-- move_first_free --
-- Takes the next block of numbers.
UPDATE numbers SET first_free = :first_free;

-- spaces_of_thread --
-- The namespaces of a thread.
SELECT id, ns, family FROM spaces WHERE thread_id = :thread_id;

-- refs_of_space --
-- What every checkpoint and write of a namespace refers to.
SELECT refs FROM checkpoints WHERE space = :space;

-- write_refs_of_space --
-- Items that a namespace's writes refer to.
SELECT refs FROM writes WHERE space = :space AND refs IS NOT NULL;

-- spaces_of_family --
-- The namespaces of all threads of a family.
SELECT id FROM spaces WHERE family = :family;

-- event_items_of_family --
-- Items that retained message events of a family's threads refer to.
SELECT item_id FROM events
WHERE item_id IS NOT NULL AND conversation IN (SELECT thread_id FROM spaces WHERE family = :family);

-- event_items_of_thread --
-- Items that the retained message events of one thread refer to.
SELECT item_id FROM events WHERE item_id IS NOT NULL AND conversation = :thread_id;

-- delete_checkpoints_of_space --
-- All checkpoints of a namespace.
DELETE FROM checkpoints WHERE space = :space;

-- delete_writes_of_space --
-- All writes of a namespace.
DELETE FROM writes WHERE space = :space;

-- delete_space --
-- The namespace itself.
DELETE FROM spaces WHERE id = :space;

-- delete_checkpoint --
-- One checkpoint.
DELETE FROM checkpoints WHERE space = :space AND checkpoint_id = :checkpoint_id;

-- delete_writes_of_checkpoint --
-- The writes on top of one checkpoint.
DELETE FROM writes WHERE space = :space AND checkpoint_id = :checkpoint_id;

-- checkpoints_of_space --
-- Ids, parents, what they refer to and their metadata, newest first.
SELECT checkpoint_id, parent_id, refs, metadata, header FROM checkpoints WHERE space = :space ORDER BY position DESC;

-- cut_parent --
-- A checkpoint whose parent is gone is the first of its thread.
UPDATE checkpoints SET parent_id = NULL WHERE space = :space AND checkpoint_id = :checkpoint_id;

-- checkpoints_of_run --
-- Checkpoints that a turn wrote, in every thread.
SELECT space, checkpoint_id FROM checkpoints WHERE json_extract(metadata, '$.run_id') = :run_id;

-- family_of_space --
-- The family a namespace belongs to.
SELECT family FROM spaces WHERE id = :space;

-- refs_of_item --
-- Items that an item refers to.
SELECT refs FROM items WHERE id = :id AND refs IS NOT NULL;

-- parent_of_list --
-- The list that a list shares its beginning with, and how much of it.
SELECT parent_id, parent_length FROM lists WHERE id = :id AND parent_id IS NOT NULL;

-- items_of_list --
-- The items of the first elements a list owns; of all of them while its thread is there, for that one may know the rest.
SELECT item_id FROM list_elements
WHERE list_id = :id AND (idx < :length OR EXISTS (
    SELECT 1 FROM lists l JOIN spaces s ON s.thread_id = l.owner WHERE l.id = :id));

-- trim_list --
-- What a deleted thread had put at the end of a list that others share: nobody needs it.
DELETE FROM list_elements
WHERE list_id = :id AND idx >= :length AND NOT EXISTS (
    SELECT 1 FROM lists l JOIN spaces s ON s.thread_id = l.owner WHERE l.id = :id);

-- history_of_space --
-- What every checkpoint of a namespace is, up to a position, newest first; without values.
SELECT checkpoint_id, parent_id, position, json_extract(metadata, '$.source'), json_extract(metadata, '$.run_id'),
    json_extract(metadata, '$.step'), json_extract(metadata, '$.counters_since_delta_snapshot'), refs
FROM checkpoints WHERE space = :space AND position <= :position ORDER BY position DESC;

-- place_of_checkpoint --
-- Where a checkpoint of a namespace stands, and whose it is.
SELECT position, json_extract(metadata, '$.run_id') FROM checkpoints WHERE space = :space AND checkpoint_id = :checkpoint_id;

-- checkpoint_after --
-- Whose the checkpoint is that was written next in a namespace, and how it came to be.
SELECT json_extract(metadata, '$.run_id'), json_extract(metadata, '$.source'), json_extract(metadata, '$.step')
FROM checkpoints WHERE space = :space AND position > :position ORDER BY position LIMIT 1;

-- checkpoint_ids --
-- A page of a namespace's checkpoints, newest first.
SELECT checkpoint_id, position FROM checkpoints
WHERE space = :space AND position < :before ORDER BY position DESC LIMIT :limit;

-- fork_checkpoint --
-- A checkpoint in a fork, behind the one that it has before it.
INSERT INTO checkpoints (space, position, checkpoint_id, parent_id, header, refs, metadata)
SELECT :target, :position, checkpoint_id, :parent_id, header, refs, metadata
FROM checkpoints WHERE space = :space AND position = :source;

-- fork_writes --
-- The writes on top of one checkpoint in a fork.
INSERT INTO writes (space, checkpoint_id, task_id, idx, task_path, channel, kind, data, refs)
SELECT :target, checkpoint_id, task_id, idx, task_path, channel, kind, data, refs
FROM writes WHERE space = :space AND checkpoint_id = :checkpoint_id;

-- positions_of_space --
-- A namespace's checkpoints up to a position, oldest first.
SELECT checkpoint_id, parent_id, position FROM checkpoints
WHERE space = :space AND position <= :position ORDER BY position;

-- delete_list --
-- A list that nothing refers to.
DELETE FROM lists WHERE id = :id;

-- delete_elements_of_list --
-- Its elements.
DELETE FROM list_elements WHERE list_id = :id;

-- delete_item --
-- An item that nothing refers to.
DELETE FROM items WHERE id = ?;

-- copy_space --
-- A namespace of another thread in the same family.
INSERT OR IGNORE INTO spaces (id, thread_id, ns, family) VALUES (:id, :thread_id, :ns, :family);

-- places_to_copy --
-- The checkpoints of a thread in the order in which they were written.
SELECT c.space, c.position FROM spaces s JOIN checkpoints c ON c.space = s.id
WHERE s.thread_id = :thread_id ORDER BY c.position;

-- copy_checkpoint --
-- A checkpoint in another namespace; it refers to the same lists and items.
INSERT OR IGNORE INTO checkpoints (space, position, checkpoint_id, parent_id, header, refs, metadata)
SELECT :target, :position, checkpoint_id, parent_id, header, refs, metadata
FROM checkpoints WHERE space = :space AND position = :source;

-- copy_writes --
-- All writes of a namespace in another one.
INSERT OR IGNORE INTO writes (space, checkpoint_id, task_id, idx, task_path, channel, kind, data, refs)
SELECT :target, checkpoint_id, task_id, idx, task_path, channel, kind, data, refs FROM writes WHERE space = :space;
