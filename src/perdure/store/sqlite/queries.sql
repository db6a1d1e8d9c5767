-- The journal's queries. `-- name --`, what it does, the statement. Instants are microseconds.
-- Guarded statements name the turn's status and epoch: no row touched means that the caller has lost its authority.

-- == conversations ==

-- conversation_insert --
-- A new conversation.
INSERT INTO conversations (id, owner, agent, title, created_at, updated_at)
VALUES (:id, :owner, :agent, :title, :now, :now)

-- fork_insert --
-- A new conversation that begins with the past of another one.
INSERT INTO conversations (id, owner, agent, title, message_count, forked_from, forked_turn, forked_checkpoint, tree,
    created_at, updated_at)
VALUES (:id, :owner, :agent, :title, :message_count, :source, :turn, :checkpoint,
    (SELECT coalesce(tree, id) FROM conversations WHERE id = :source), :now, :now)

-- tree_titles --
-- The titles of the conversations that go back to the same one as this one, itself included.
SELECT title FROM conversations WHERE tree = :root OR id = :root

-- tree_members --
-- The conversations in scope that go back to the same one, first made first, each with its own first turn.
SELECT c.*, coalesce(
    (SELECT t.status FROM turns t WHERE t.conversation = c.id AND t.status IN ('queued', 'running', 'parked')),
    (SELECT t.status FROM turns t
     WHERE t.conversation = c.id AND t.status <> 'waiting' AND NOT (t.status = 'cancelled' AND t.epoch = 0)
     ORDER BY t.accept_number DESC LIMIT 1)) AS status,
    (SELECT t.id FROM turns t WHERE t.conversation = c.id AND NOT (t.status = 'cancelled' AND t.epoch = 0)
     ORDER BY t.accept_number LIMIT 1) AS first_turn,
    (SELECT s.id FROM spaces s WHERE s.thread_id = c.id AND s.ns = '') AS space
FROM conversations c
WHERE (c.tree = :root OR c.id = :root) AND (:scope IS NULL OR c.owner = :scope)
ORDER BY c.created_at, c.rowid LIMIT :limit

-- conversation --
-- One conversation in scope (an owner's, or any when it is NULL), with the status a list shows: of its active turn, else of the last that began.
SELECT c.*, coalesce(
    (SELECT t.status FROM turns t WHERE t.conversation = c.id AND t.status IN ('queued', 'running', 'parked')),
    (SELECT t.status FROM turns t
     WHERE t.conversation = c.id AND t.status <> 'waiting' AND NOT (t.status = 'cancelled' AND t.epoch = 0)
     ORDER BY t.accept_number DESC LIMIT 1)) AS status
FROM conversations c WHERE c.id = :id AND (:scope IS NULL OR c.owner = :scope)

-- conversations_page --
-- A page of the owner's conversations, newest activity first, after the given place.
SELECT c.*, coalesce(
    (SELECT t.status FROM turns t WHERE t.conversation = c.id AND t.status IN ('queued', 'running', 'parked')),
    (SELECT t.status FROM turns t
     WHERE t.conversation = c.id AND t.status <> 'waiting' AND NOT (t.status = 'cancelled' AND t.epoch = 0)
     ORDER BY t.accept_number DESC LIMIT 1)) AS status
FROM conversations c
WHERE c.owner = :scope AND (c.updated_at, c.id) < (:updated_at, :id) AND (:agent IS NULL OR c.agent = :agent)
ORDER BY c.updated_at DESC, c.id DESC LIMIT :limit

-- conversations_page_everywhere --
-- The same of every owner's.
SELECT c.*, coalesce(
    (SELECT t.status FROM turns t WHERE t.conversation = c.id AND t.status IN ('queued', 'running', 'parked')),
    (SELECT t.status FROM turns t
     WHERE t.conversation = c.id AND t.status <> 'waiting' AND NOT (t.status = 'cancelled' AND t.epoch = 0)
     ORDER BY t.accept_number DESC LIMIT 1)) AS status
FROM conversations c
WHERE (c.updated_at, c.id) < (:updated_at, :id) AND (:agent IS NULL OR c.agent = :agent)
ORDER BY c.updated_at DESC, c.id DESC LIMIT :limit

-- conversation_rename --
-- Gives a conversation another title; renaming is no activity.
UPDATE conversations SET title = :title WHERE id = :id

-- conversation_touch --
-- Notes activity. Never backwards, so that a clock that steps back does not shuffle the list.
UPDATE conversations SET updated_at = max(updated_at, :now) WHERE id = :id

-- conversation_count --
-- Keeps the number of messages beside the conversation, so that lists never read threads.
UPDATE conversations SET message_count = :message_count WHERE id = :id

-- conversation_delete --
-- Removes a conversation; its turns, attempts, cards, tool calls, keys and events go with it.
DELETE FROM conversations WHERE id = :id

-- seqs_take --
-- Reserves seqs of a thread; returns the first one.
UPDATE conversations SET next_seq = next_seq + :count WHERE id = :id RETURNING next_seq - :count AS first

-- seqs_give_back --
-- Gives the unused rest of a reservation back, unless somebody reserved after it.
UPDATE conversations SET next_seq = :next_seq WHERE id = :id AND next_seq = :end

-- next_seq --
-- The first seq of a thread that nobody has reserved.
SELECT next_seq FROM conversations WHERE id = :id

-- == accepting ==

-- key --
-- What an idempotency key stands for.
SELECT k.digest, k.created_at, k.turn, k.conversation, t.status
FROM idempotency_keys k LEFT JOIN turns t ON t.id = k.turn WHERE k.owner = :owner AND k.key = :key

-- key_set --
-- Remembers the turn that a request with this key was about, or the fork that it made; takes the place of a key that is too
-- old to count.
INSERT OR REPLACE INTO idempotency_keys (owner, key, digest, conversation, turn, created_at)
VALUES (:owner, :key, :digest, coalesce(:conversation, (SELECT conversation FROM turns WHERE id = :turn)), :turn, :now)

-- turn_insert --
-- A new turn. Nothing of it is committed yet, so the rewind boundary lies just before its first seq.
INSERT INTO turns (id, conversation, owner, agent, status, input, first_seq, committed_seq, accepted_at)
VALUES (:id, :conversation, :owner, :agent, :status, :input, :first_seq, :first_seq - 1, :now)

-- turns_supersede --
-- A later message was accepted: older turns of the thread cannot be resumed any more.
UPDATE turns SET superseded = 1
WHERE conversation = :conversation AND accept_number < :before AND status IN ('failed', 'interrupted') AND superseded = 0

-- == reading turns ==

-- turn --
-- One turn by id, for the engine.
SELECT * FROM turns WHERE id = :id

-- turn_in_scope --
-- One turn by id, in scope: an owner's, or any when it is NULL.
SELECT * FROM turns WHERE id = :id AND (:scope IS NULL OR owner = :scope)

-- turn_active --
-- The one turn of a thread that is queued, running or parked.
SELECT * FROM turns WHERE conversation = :conversation AND status IN ('queued', 'running', 'parked')

-- turn_first_waiting --
-- The waiting turn of a thread that was accepted first.
SELECT * FROM turns WHERE conversation = :conversation AND status = 'waiting' ORDER BY accept_number LIMIT 1

-- turn_last_started --
-- The last turn that touched the thread: one that was cancelled while it waited did not.
SELECT * FROM turns
WHERE conversation = :conversation AND status <> 'waiting' AND NOT (status = 'cancelled' AND epoch = 0)
ORDER BY accept_number DESC LIMIT 1

-- turns_page --
-- A page of the owner's turns, newest accepted first.
SELECT * FROM turns
WHERE owner = :scope AND accept_number < :before
  AND (:status IS NULL OR status = :status)
  AND (:agent IS NULL OR agent = :agent)
ORDER BY accept_number DESC LIMIT :limit

-- turns_page_everywhere --
-- The same of every owner's, by the table's own order.
SELECT * FROM turns
WHERE accept_number < :before
  AND (:status IS NULL OR status = :status)
  AND (:agent IS NULL OR agent = :agent)
ORDER BY accept_number DESC LIMIT :limit

-- turns_page_of_conversation --
-- The same within one conversation, by its own index.
SELECT * FROM turns
WHERE conversation = :conversation AND (:scope IS NULL OR owner = :scope) AND accept_number < :before
  AND (:status IS NULL OR status = :status)
  AND (:agent IS NULL OR agent = :agent)
ORDER BY accept_number DESC LIMIT :limit

-- turn_of_event --
-- The turn that an event of a thread belongs to.
SELECT t.* FROM events e JOIN turns t ON t.id = e.turn WHERE e.conversation = :conversation AND e.seq = :seq

-- turn_spanning --
-- The turn whose range of seqs holds one that no stored event has (a token's): it started at or before the seq, and is
-- unfinished or ended at or after it.
SELECT t.* FROM turns t
WHERE t.conversation = :conversation AND t.first_seq <= :seq AND t.status <> 'waiting'
  AND :seq < (SELECT next_seq FROM conversations WHERE id = :conversation)
  AND (t.ended_at IS NULL OR (
    SELECT max(e.seq) FROM events e WHERE e.turn = t.id AND e.kind IN ('end', 'chat-error', 'rewind')) >= :seq)
ORDER BY t.first_seq DESC, t.accept_number DESC LIMIT 1

-- attempts_of_turn --
-- All attempts of a turn, first to last.
SELECT * FROM attempts WHERE turn = :turn ORDER BY epoch

-- attempt_last_outcome --
-- How the last attempt of a turn ended.
SELECT outcome FROM attempts WHERE turn = :turn ORDER BY epoch DESC LIMIT 1

-- thread_head_run --
-- The turn that wrote the thread's latest checkpoint.
SELECT json_extract(c.metadata, '$.run_id') AS run_id FROM spaces s JOIN checkpoints c ON c.space = s.id
WHERE s.thread_id = :thread AND s.ns = '' ORDER BY c.position DESC LIMIT 1

-- == claiming and the attempt's writes ==

-- claim_next --
-- The due queued turn with the lowest accept number among agents (JSON: name to limit) that may drive one more. One that was
-- cancelled is no suspect: to close it nothing of it has to run.
SELECT * FROM turns WHERE accept_number = (
    SELECT min((
        SELECT t.accept_number FROM turns t
        WHERE t.status = 'queued' AND t.agent = a.key
          AND (t.not_before IS NULL OR t.not_before <= :now)
          AND (t.attempts_without_progress >= :suspect_after AND t.cancel_requested_at IS NULL) = :suspects
        ORDER BY t.accept_number LIMIT 1))
    FROM json_each(:agents) a
    WHERE a.value IS NULL
       OR (SELECT count(*) FROM turns r WHERE r.status = 'running' AND r.agent = a.key) < a.value)

-- claim_next_to_ask --
-- The due queued suspect with the lowest accept number of which a person must say what became of a call: a started `once`
-- call (that did not stop for a known reason) whose last start nobody has decided on.
SELECT t.* FROM turns t INDEXED BY turns_tried
WHERE t.status = 'queued' AND t.attempts_without_progress > 0 AND t.attempts_without_progress >= :suspect_after
  AND t.agent IN (SELECT key FROM json_each(:agents)) AND (t.not_before IS NULL OR t.not_before <= :now)
  AND t.discards_cards = 0
  AND EXISTS (
    SELECT 1 FROM tool_calls c
    WHERE c.turn = t.id AND c.state = 'started' AND c.effect_class = 'once'
      AND (c.error IS NULL OR c.error NOT IN (SELECT value FROM json_each(:known_reasons)))
      AND NOT EXISTS (
        SELECT 1 FROM cards k
        WHERE k.turn = t.id AND k.call_key = c.key AND k.kind = 'uncertain' AND k.state = 'decided'
          AND json_extract(k.request, '$.starts') = c.starts))
ORDER BY t.accept_number LIMIT 1

-- queued --
-- Whether any turn is queued.
SELECT 1 FROM turns WHERE status = 'queued' LIMIT 1

-- delay_over --
-- Whether a queued turn's delay is over.
SELECT 1 FROM turns WHERE status = 'queued' AND not_before <= :now LIMIT 1

-- delays_clear --
-- Delays that are over are forgotten: what keeps such a turn queued now is no clock, so no clock need wake anyone.
UPDATE turns SET not_before = NULL WHERE status = 'queued' AND not_before <= :now

-- turn_claim --
-- queued to running: a new epoch, the attempt counted before any work (`counted` 0: it will not do any).
UPDATE turns SET status = 'running', epoch = epoch + 1, attempts = attempts + :counted,
    attempts_without_progress = attempts_without_progress + :counted, not_before = NULL,
    lease_owner = :lease_owner, lease_expires_at = :lease_expires_at, working = 0
WHERE id = :id AND status = 'queued' AND epoch = :epoch
RETURNING *

-- attempt_insert --
-- The claimed turn's new attempt.
INSERT INTO attempts (turn, number, epoch, owner, boot, started_at)
VALUES (:turn, :epoch, :epoch, :owner, :boot, :now)

-- fence --
-- Whether an attempt still owns its turn.
SELECT 1 FROM turns WHERE id = :id AND epoch = :epoch AND status = 'running'

-- lease_renew --
-- Extends the lease of a running attempt, and notes how long it has worked so far.
UPDATE turns SET lease_expires_at = :lease_expires_at, working = :working WHERE id = :id AND epoch = :epoch AND status = 'running'

-- turn_advance --
-- The journal's position after a commit of the saver: boundary, supersteps, usage, and whether it was progress.
UPDATE turns SET committed_seq = :committed_seq, supersteps = supersteps + :supersteps,
    attempts_without_progress = CASE WHEN :progress THEN 0 ELSE attempts_without_progress END,
    input = CASE WHEN :input_stored THEN NULL ELSE input END,
    input_tokens = input_tokens + :input_tokens, output_tokens = output_tokens + :output_tokens,
    total_tokens = total_tokens + :total_tokens
WHERE id = :id AND epoch = :epoch AND status = 'running'

-- attempt_progressed --
-- Remembers that an attempt committed something.
UPDATE attempts SET progressed = 1 WHERE turn = :turn AND epoch = :epoch AND progressed = 0

-- attempt_end --
-- How an attempt ended.
UPDATE attempts SET outcome = :outcome, ended_at = :now, error = :error
WHERE turn = :turn AND epoch = :epoch AND outcome IS NULL

-- turn_worked --
-- An attempt's time counts once it is over.
UPDATE turns SET worked = worked + :worked, working = 0 WHERE id = :id AND epoch = :epoch

-- turn_worked_until_renewal --
-- The same of an attempt whose owner died: until its last sign of life.
UPDATE turns SET worked = worked + working, working = 0 WHERE id = :id AND epoch = :epoch

-- turn_count_model_calls --
-- Model calls that an attempt made or is about to make.
UPDATE turns SET model_calls = model_calls + :calls WHERE id = :id AND epoch = :epoch AND status = 'running'

-- turn_count_tool_call --
-- One more tool call, and how often in a row it was the same.
UPDATE turns SET tool_calls = tool_calls + 1, repeated = :repeated, repeats = :repeats
WHERE id = :id AND epoch = :epoch AND status = 'running'

-- turn_uncount_tool_call --
-- A call whose first start was given up: as if it had not been counted.
UPDATE turns SET tool_calls = tool_calls - 1, repeated = :repeated, repeats = :repeats
WHERE id = :id AND epoch = :epoch AND status = 'running'

-- turn_park --
-- running to parked: the attempt ended as planned, and what was told so far stays told. One that did no work (`worked` 0)
-- says nothing about the work.
UPDATE turns SET status = 'parked', lease_owner = NULL, lease_expires_at = NULL,
    attempts_without_progress = CASE WHEN :worked THEN 0 ELSE attempts_without_progress END,
    committed_seq = :committed_seq
WHERE id = :id AND epoch = :epoch AND status = 'running'

-- turn_end --
-- running to an end.
UPDATE turns SET status = :status, lease_owner = NULL, lease_expires_at = NULL, ended_at = :now,
    failure_code = :code, failure_reason = :reason, failure_message = :message
WHERE id = :id AND epoch = :epoch AND status = 'running'

-- turn_give_back --
-- running to queued: a planned shutdown spends no attempt (`spent` 0), a retry does (1). A cancelled turn waits for nothing.
UPDATE turns SET status = 'queued', lease_owner = NULL, lease_expires_at = NULL,
    not_before = CASE WHEN cancel_requested_at IS NULL THEN :not_before END,
    attempts = attempts - (1 - :spent), attempts_without_progress = max(attempts_without_progress - (1 - :spent), 0)
WHERE id = :id AND epoch = :epoch AND status = 'running'

-- turn_promote --
-- waiting to queued: its predecessor ended, so its seqs start here.
UPDATE turns SET status = 'queued', first_seq = :seq, committed_seq = :seq - 1 WHERE id = :id AND status = 'waiting'

-- == recovery ==

-- orphans --
-- Running turns whose owner's boot is over, or whose lease is over and which no live attempt of this process holds.
SELECT * FROM turns INDEXED BY turns_running
WHERE status = 'running' AND (lease_owner <> :owner
   OR (lease_expires_at <= :now AND id NOT IN (SELECT value FROM json_each(:held))))
ORDER BY accept_number

-- orphan --
-- One orphan, if it still is one.
SELECT * FROM turns
WHERE id = :id AND epoch = :epoch AND status = 'running' AND (lease_owner <> :owner OR lease_expires_at <= :now)

-- next_due --
-- When the earliest delayed turn of these agents with so many attempts without progress becomes due.
SELECT min(not_before) AS due FROM turns
WHERE status = 'queued' AND not_before IS NOT NULL AND +agent IN (SELECT value FROM json_each(:agents))
  AND +attempts_without_progress >= :least

-- suspects_due --
-- How many due turns must be driven alone.
SELECT count(*) AS due FROM turns
WHERE status = 'queued' AND +agent IN (SELECT value FROM json_each(:agents))
  AND (not_before IS NULL OR not_before <= :now)
  AND attempts_without_progress > 0 AND attempts_without_progress >= :suspect_after AND cancel_requested_at IS NULL

-- cancels_requested --
-- Which of these running turns a person asked to cancel.
SELECT id FROM turns
WHERE id IN (SELECT value FROM json_each(:turns)) AND status = 'running' AND cancel_requested_at IS NOT NULL

-- == text that was cut ==

-- spoken_keep --
-- What a model had said when a cancel parked its turn.
INSERT INTO spoken (turn, message, text) VALUES (:turn, :message, :text) ON CONFLICT DO NOTHING

-- spoken --
-- All that models had said, in the order it began.
SELECT message, text FROM spoken WHERE turn = :turn ORDER BY number

-- spoken_drop --
-- Its turn has ended: the text is in the thread, or is not needed.
DELETE FROM spoken WHERE turn = :turn

-- == people's verbs ==

-- turn_reopen --
-- failed or interrupted to queued: fresh budgets and a fresh count without progress; the totals go on.
UPDATE turns SET status = 'queued', ended_at = NULL, failure_code = NULL, failure_reason = NULL, failure_message = NULL,
    attempts_without_progress = 0, not_before = NULL, cancel_requested_at = NULL, discards_cards = 0,
    budget_from = supersteps, model_calls_from = model_calls, tool_calls_from = tool_calls, tokens_from = total_tokens,
    worked_from = worked, repeats = 0
WHERE id = :id AND status IN ('failed', 'interrupted') AND epoch = :epoch

-- turn_unpark --
-- parked to queued: the last open card was decided, or the turn is to be cancelled.
UPDATE turns SET status = 'queued', not_before = NULL WHERE id = :id AND status = 'parked' AND epoch = :epoch

-- turn_boundary --
-- What was told outside an attempt stays told: the rewind boundary moves behind it.
UPDATE turns SET committed_seq = max(committed_seq, :seq) WHERE id = :id AND epoch = :epoch

-- cancel_request --
-- Asks for the end of an active turn; a delayed one becomes due at once. `discards` 1: what its cards ask, now or later,
-- needs no answer.
UPDATE turns SET cancel_requested_at = coalesce(cancel_requested_at, :now), not_before = NULL,
    discards_cards = max(discards_cards, :discards)
WHERE id = :id AND status IN ('queued', 'running', 'parked') AND epoch = :epoch

-- cancel_waiting --
-- waiting to cancelled, at once: it has touched nothing.
UPDATE turns SET status = 'cancelled', cancel_requested_at = :now, ended_at = :now, first_seq = :seq,
    committed_seq = :seq - 1
WHERE id = :id AND status = 'waiting'

-- == cards ==

-- cards_of_turn --
-- All cards of a turn, oldest first.
SELECT * FROM cards WHERE turn = :turn ORDER BY opened_at, rowid

-- card --
-- One card by id, in scope, or of one that names this person as a decider.
SELECT * FROM cards
WHERE id = :id AND (:scope IS NULL OR owner = :scope OR EXISTS (SELECT 1 FROM json_each(deciders) WHERE value = :name))

-- cards_open_of_owner --
-- A page of the owner's open cards, oldest first.
SELECT * FROM cards INDEXED BY cards_open
WHERE state = 'opened' AND owner = :scope AND (opened_at, id) > (:opened_at, :id)
  AND (:conversation IS NULL OR conversation = :conversation)
ORDER BY opened_at, id LIMIT :limit

-- cards_open_naming --
-- A page of the open cards that name this person as a decider, oldest first.
SELECT * FROM cards INDEXED BY cards_open_named
WHERE state = 'opened' AND deciders <> '[]' AND (opened_at, id) > (:opened_at, :id)
  AND EXISTS (SELECT 1 FROM json_each(deciders) WHERE value = :name)
  AND (:conversation IS NULL OR conversation = :conversation)
ORDER BY opened_at, id LIMIT :limit

-- cards_open_everywhere --
-- A page of all open cards, oldest first.
SELECT * FROM cards INDEXED BY cards_open_everywhere
WHERE state = 'opened' AND (opened_at, id) > (:opened_at, :id)
  AND (:conversation IS NULL OR conversation = :conversation)
ORDER BY opened_at, id LIMIT :limit

-- cards_expired --
-- Open cards whose time is over, some at a time, the first to end first.
SELECT * FROM cards INDEXED BY cards_expiring
WHERE state = 'opened' AND expires_at IS NOT NULL AND expires_at <= :now ORDER BY expires_at LIMIT :limit

-- next_expiry --
-- When the next open card's time is over.
SELECT min(expires_at) AS due FROM cards INDEXED BY cards_expiring WHERE state = 'opened' AND expires_at IS NOT NULL

-- card_open --
-- A question that waits for a person: a new one, or one that the turn's ending closed and that a resume met again.
INSERT INTO cards (id, turn, conversation, owner, interrupt_id, kind, request, state, opened_at, tool, server, arguments,
    digest, effect_class, call_id, message_id, call_key, why, expires_at, deciders)
VALUES (:id, :turn, :conversation, :owner, :interrupt_id, :kind, :request, 'opened', :now, :tool, :server, :arguments,
    :digest, :effect_class, :call_id, :message_id, :call_key, :why, :expires_at, :deciders)
ON CONFLICT (turn, interrupt_id) DO UPDATE SET state = 'opened', kind = excluded.kind, request = excluded.request,
    opened_at = excluded.opened_at, tool = excluded.tool, server = excluded.server, arguments = excluded.arguments,
    digest = excluded.digest, effect_class = excluded.effect_class, call_id = excluded.call_id,
    message_id = excluded.message_id, call_key = excluded.call_key, why = excluded.why, expires_at = excluded.expires_at,
    deciders = excluded.deciders
WHERE state = 'closed'

-- card_decide --
-- Records a decision; the first one wins.
UPDATE cards SET state = 'decided', decision = :decision, decided_arguments = :arguments, note = :note, result = :result,
    answer = :value, decided_by = :by, decided_at = :now
WHERE id = :id AND state = 'opened'

-- cards_undecided --
-- Whether a turn still waits for a decision.
SELECT 1 FROM cards WHERE turn = :turn AND state = 'opened' LIMIT 1

-- cards_close --
-- No decision is needed any more.
UPDATE cards SET state = 'closed' WHERE turn = :turn AND state = 'opened' RETURNING *

-- == tool calls ==

-- call_start --
-- A call is about to start: its row, or one more start of a known one. What an earlier start gave is void.
INSERT INTO tool_calls (key, turn, conversation, call_id, message_id, name, server, arguments, digest, effect_class, state,
    attempt, epoch, task, started_at)
VALUES (:key, :turn, :conversation, :call_id, :message_id, :name, :server, :arguments, :digest, :effect_class, 'started',
    :epoch, :epoch, :task, :now)
ON CONFLICT (key) DO UPDATE SET arguments = excluded.arguments, digest = excluded.digest,
    effect_class = excluded.effect_class, state = 'started', starts = starts + 1, attempt = excluded.attempt,
    epoch = excluded.epoch, task = excluded.task, started_at = excluded.started_at, ended_at = NULL, status = NULL,
    error = NULL, result_kind = NULL, result = NULL
WHERE turn = excluded.turn

-- call_withdraw --
-- The first start of a call was given up before the call was made: nothing is known of it, as before.
DELETE FROM tool_calls WHERE key = :key AND turn = :turn AND epoch = :epoch AND state = 'started' AND starts = 1

-- call_record --
-- What a call gave, by the attempt that owns its turn.
UPDATE tool_calls SET state = 'recorded', ended_at = :now, status = :status, error = NULL, result_kind = :kind,
    result = :data
WHERE key = :key AND turn = :turn
  AND EXISTS (SELECT 1 FROM turns WHERE id = :turn AND epoch = :epoch AND status = 'running')

-- call_unknown --
-- Why the outcome of a started call is not known.
UPDATE tool_calls SET error = :error WHERE key = :key AND turn = :turn AND state = 'started'

-- calls_settle --
-- The task that made these calls has committed its writes: their results are in the thread.
UPDATE tool_calls SET state = 'settled', result_kind = NULL, result = NULL
WHERE key IN (SELECT value FROM json_each(:keys)) AND state = 'recorded'

-- calls_settle_all --
-- A turn of the thread has come to its end: what earlier ones recorded is in the thread, or is not needed any more.
UPDATE tool_calls SET state = 'settled', result_kind = NULL, result = NULL
WHERE state = 'recorded' AND state <> 'settled' AND conversation = :conversation

-- calls_known --
-- What an attempt must know of its turn's calls before it makes more.
SELECT key, starts, state, task FROM tool_calls WHERE turn = :turn

-- calls_of_turn --
-- A turn's calls in the order of their first start, without their results.
SELECT number, key, turn, conversation, call_id, message_id, name, server, arguments, digest, effect_class, state, starts,
    attempt, epoch, task, started_at, ended_at, status, error
FROM tool_calls WHERE turn = :turn ORDER BY number

-- calls_with_results --
-- The same with the results that are not settled.
SELECT * FROM tool_calls WHERE turn = :turn ORDER BY number

-- calls_exist --
-- Whether a turn has made any call.
SELECT 1 FROM tool_calls WHERE turn = :turn LIMIT 1

-- == the audit ==

-- audit_insert --
-- Who did what. No content of a conversation: the row outlives it.
INSERT INTO audit (at, by, owner, action, conversation, turn, card, detail)
VALUES (:now, :by, :owner, :action, :conversation, :turn, :card, :detail)

-- audit_page --
-- A page of what was done to the owner's conversations, newest first.
SELECT * FROM audit WHERE owner = :scope AND number < :before ORDER BY number DESC LIMIT :limit

-- audit_page_everywhere --
-- A page of everything that was done, newest first.
SELECT * FROM audit WHERE number < :before ORDER BY number DESC LIMIT :limit

-- == tokens ==

-- token_insert --
-- A new token; a name that was ever used stays as it is.
INSERT INTO tokens (name, secret_hash, role, created_at, created_by) VALUES (:name, :secret_hash, :role, :now, :by)
ON CONFLICT DO NOTHING

-- token --
-- One token by name.
SELECT * FROM tokens WHERE name = :name

-- tokens --
-- All tokens, oldest first, the revoked ones too.
SELECT * FROM tokens ORDER BY created_at, name

-- token_of --
-- The valid token with this hash.
SELECT * FROM tokens WHERE secret_hash = :secret_hash AND revoked_at IS NULL

-- token_revoke --
-- Ends a token, once.
UPDATE tokens SET revoked_at = :now WHERE name = :name AND revoked_at IS NULL

-- token_used --
-- Notes the use of a token.
UPDATE tokens SET last_used_at = max(coalesce(last_used_at, 0), :at) WHERE name = :name

-- == events ==

-- event_insert --
-- One event. A message event names the stored message instead of repeating it.
INSERT INTO events (conversation, seq, turn, attempt, kind, at, item_id, payload)
VALUES (:conversation, :seq, :turn, :attempt, :kind, :at, :item_id, :payload)

-- events_drop --
-- A rewind: what the turn told after the boundary is void. Rewinds themselves stay.
UPDATE events SET dropped_by = :seq
WHERE conversation = :conversation AND seq > :to_seq AND turn = :turn AND dropped_by IS NULL AND kind <> 'rewind'

-- terminal_retained --
-- Whether a turn's ending is still told, that is: the turn was ended and a person opened it again.
SELECT 1 FROM events
WHERE turn = :turn AND seq > :after AND kind IN ('end', 'chat-error', 'rewind') AND kind <> 'rewind'
  AND dropped_by IS NULL LIMIT 1

-- events_after --
-- Retained events of a thread, rewinds included, in order.
SELECT * FROM events
WHERE conversation = :conversation AND seq > :after AND dropped_by IS NULL ORDER BY seq LIMIT :limit

-- event_places --
-- Where events of a thread stand, dropped ones included.
SELECT seq FROM events WHERE conversation = :conversation AND seq > :after ORDER BY seq LIMIT :limit

-- events_of_turn_after --
-- The same of one turn.
SELECT * FROM events
WHERE conversation = :conversation AND seq > max(:after, (SELECT first_seq - 1 FROM turns WHERE id = :turn))
  AND turn = :turn AND dropped_by IS NULL ORDER BY seq LIMIT :limit

-- rewind_after --
-- The last rewind of a turn above a seq.
SELECT * FROM events
WHERE turn = :turn AND kind IN ('end', 'chat-error', 'rewind') AND kind = 'rewind' AND seq > :after
ORDER BY seq DESC LIMIT 1

-- == summaries ==

-- change_still_parked --
-- A summary of a turn that still waits, for fewer cards than before.
INSERT INTO changes (owner, kind, conversation, turn, status, at)
SELECT t.owner, 'turn', t.conversation, t.id, t.status, c.updated_at
FROM turns t JOIN conversations c ON c.id = t.conversation WHERE t.id = :turn

-- changes_after --
-- Summaries of an owner after a cursor, with the title and agent of conversations that still exist.
SELECT h.*, c.title, c.agent FROM changes h LEFT JOIN conversations c ON c.id = h.conversation
WHERE h.owner = :scope AND h.number > :after ORDER BY h.number LIMIT :limit

-- changes_after_everywhere --
-- The same of every owner's.
SELECT h.*, c.title, c.agent FROM changes h LEFT JOIN conversations c ON c.id = h.conversation
WHERE h.number > :after ORDER BY h.number LIMIT :limit

-- changes_last --
-- The newest summary of an owner; 0 when there is none (or only those of an upgrade, below 0).
SELECT max(coalesce(max(number), 0), 0) AS number FROM changes WHERE owner = :scope

-- changes_last_everywhere --
-- The newest summary of all; 0 as above.
SELECT max(coalesce(max(number), 0), 0) AS number FROM changes

-- changes_begin_numbers --
-- A file without any summary yet gets its counter, so that the next one can move it.
INSERT INTO sqlite_sequence (name, seq)
SELECT 'changes', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'changes')

-- changes_skip_numbers --
-- After a restore: numbers that were given out after the backup never come again, so that their cursors stay unknown.
UPDATE sqlite_sequence SET seq = seq + :gap WHERE name = 'changes'

-- changes_lose_numbers --
-- Before those are skipped: which they are.
INSERT INTO lost_changes (first, last) SELECT seq + 1, seq + :gap FROM sqlite_sequence WHERE name = 'changes'

-- == the outbox ==

-- journal_id --
-- Which journal this is.
SELECT id FROM journal

-- outbox_due --
-- Conversations with events that are not known to be in the stream, and how far it has them: of turns that are not ended, or
-- ended after an instant.
SELECT DISTINCT t.conversation, coalesce(o.seq, 0) AS seq
FROM turns t LEFT JOIN outbox o ON o.conversation = t.conversation AND o.stream = :stream
WHERE (t.ended_at IS NULL OR t.ended_at >= :since) AND EXISTS (
    SELECT 1 FROM events e
    WHERE e.conversation = t.conversation AND e.seq > max(coalesce(o.seq, 0), t.first_seq - 1) AND e.turn = t.id)

-- outbox_set --
-- The events of a conversation up to here are in the stream. Never backwards within one stream.
INSERT INTO outbox (conversation, stream, seq)
SELECT id, :stream, :seq FROM conversations WHERE id = :conversation
ON CONFLICT (conversation) DO UPDATE SET
    seq = CASE WHEN stream = excluded.stream THEN max(seq, excluded.seq) ELSE excluded.seq END, stream = excluded.stream

-- changes_numbers_lost --
-- Whether a number was given out after a backup that was restored.
SELECT 1 FROM lost_changes WHERE :number BETWEEN first AND last LIMIT 1

-- changes_named --
-- What changed after a number, in order.
SELECT number, conversation, turn FROM changes WHERE number > :after ORDER BY number LIMIT :limit

-- conversation_row --
-- A conversation as it is stored.
SELECT * FROM conversations WHERE id = :id

-- last_seq --
-- The highest seq of a conversation's events; 0 when there is none.
SELECT coalesce(max(seq), 0) AS seq FROM events WHERE conversation = :conversation

-- audit_after --
-- What was done after a number, in order.
SELECT * FROM audit WHERE number > :after ORDER BY number LIMIT :limit

-- == boots ==

-- boot_start --
-- This process started.
INSERT INTO boots (owner, version, started_at) VALUES (:owner, :version, :now) RETURNING number

-- boot_end --
-- This process ended as planned.
UPDATE boots SET ended_at = :now WHERE number = :number

-- boot_probe --
-- A write that changes nothing and yet must reach the disk.
UPDATE boots SET version = version WHERE number = :number

-- boots_unclean --
-- Starts since an instant that never ended cleanly, this one excluded.
SELECT count(*) AS boots FROM boots WHERE started_at >= :since AND ended_at IS NULL AND number <> :number

-- == search ==

-- searchable_put --
-- A message, or a title (message ''), that can be found from now on.
INSERT INTO searchable (conversation, message) VALUES (:conversation, :message)

-- searchable --
-- The number of a message that can be found.
SELECT doc FROM searchable WHERE conversation = :conversation AND message = :message

-- searchables --
-- The messages of a conversation that can be found.
SELECT message FROM searchable WHERE conversation = :conversation

-- searchable_remove --
-- A message that can be found no more.
DELETE FROM searchable WHERE doc = :doc

-- words_put --
-- The words of one message or title.
INSERT INTO words (rowid, owner, text) VALUES (:doc, :owner, :text)

-- words_remove --
-- The words of one message are found no more.
DELETE FROM words WHERE rowid = :doc

-- words_forget --
-- Nothing of a conversation is found any more.
DELETE FROM words WHERE rowid IN (SELECT doc FROM searchable WHERE conversation = :conversation)

-- words_beginning --
-- How often each of the words is there that begin in this way.
SELECT cnt AS occurrences FROM known_words WHERE term >= :beginning AND term < :end

-- conversations_found --
-- A page of the conversations in which one message or the title matches, newest activity first, of the newest matches.
WITH hits AS MATERIALIZED (
    SELECT DISTINCT s.conversation
    FROM (SELECT rowid AS doc FROM words WHERE words MATCH :match ORDER BY rowid DESC LIMIT :most) w
    JOIN searchable s ON s.doc = w.doc)
SELECT c.*, coalesce(
    (SELECT t.status FROM turns t WHERE t.conversation = c.id AND t.status IN ('queued', 'running', 'parked')),
    (SELECT t.status FROM turns t
     WHERE t.conversation = c.id AND t.status <> 'waiting' AND NOT (t.status = 'cancelled' AND t.epoch = 0)
     ORDER BY t.accept_number DESC LIMIT 1)) AS status
FROM (
    SELECT f.* FROM hits h CROSS JOIN conversations f ON f.id = h.conversation
    WHERE (:scope IS NULL OR f.owner = :scope) AND (f.updated_at, f.id) < (:updated_at, :id)
      AND (:agent IS NULL OR f.agent = :agent)
    ORDER BY f.updated_at DESC, f.id DESC LIMIT :limit) c
ORDER BY c.updated_at DESC, c.id DESC

-- turns_found --
-- A page of turns, newest accepted first: of conversations that match, or that go by this id or failed for this reason.
WITH hits AS MATERIALIZED (
    SELECT DISTINCT s.conversation
    FROM (SELECT rowid AS doc FROM words WHERE words MATCH :match ORDER BY rowid DESC LIMIT :most) w
    JOIN searchable s ON s.doc = w.doc)
SELECT * FROM turns
WHERE accept_number IN (
        SELECT accept_number FROM turns WHERE id = :text
        UNION ALL SELECT accept_number FROM turns WHERE conversation = :text
        UNION ALL SELECT accept_number FROM turns WHERE failure_code IS NOT NULL AND failure_code = upper(:text)
        UNION ALL SELECT accept_number FROM turns WHERE failure_reason IS NOT NULL AND failure_reason = lower(:text)
        UNION ALL SELECT t.accept_number FROM hits h CROSS JOIN turns t ON t.conversation = h.conversation)
  AND accept_number < :before AND (:scope IS NULL OR owner = :scope)
  AND (:status IS NULL OR status = :status) AND (:agent IS NULL OR agent = :agent) AND attempts >= :attempts_min
ORDER BY accept_number DESC LIMIT :limit

-- turns_begun --
-- A page of the turns that were tried at all, newest accepted first.
SELECT * FROM turns
WHERE attempts > 0 AND accept_number < :before AND (:scope IS NULL OR owner = :scope)
  AND (:status IS NULL OR status = :status) AND (:agent IS NULL OR agent = :agent)
ORDER BY accept_number DESC LIMIT :limit

-- turns_retried --
-- A page of the turns that needed several attempts, newest accepted first.
SELECT * FROM turns INDEXED BY turns_retried
WHERE attempts > 1 AND attempts >= :attempts_min AND accept_number < :before AND (:scope IS NULL OR owner = :scope)
  AND (:status IS NULL OR status = :status) AND (:agent IS NULL OR agent = :agent)
ORDER BY accept_number DESC LIMIT :limit

-- == the house ==

-- turns_counted --
-- How many turns of an owner, or of everybody (NULL), are in each state.
SELECT status, count(*) AS turns FROM turns INDEXED BY turns_by_status
WHERE (:scope IS NULL OR owner = :scope) AND (:agent IS NULL OR agent = :agent) GROUP BY status

-- turns_counted_of --
-- The same of one owner, by its part of the index.
SELECT status, count(*) AS turns FROM turns INDEXED BY turns_by_status
WHERE owner = :scope AND (:agent IS NULL OR agent = :agent) GROUP BY status

-- conversations_by_agent --
-- Whose conversations there are, with how many, and how many of their turns have not ended.
SELECT c.agent, count(*) AS conversations, (
    SELECT count(*) FROM turns t
    WHERE t.agent = c.agent AND t.status IN ('waiting', 'queued', 'running', 'parked')) AS unended
FROM conversations c GROUP BY c.agent

-- workers --
-- The processes that have not ended and drive turns, and this one, with how many turns each drives (of an owner, or of all).
SELECT b.owner, b.version, b.started_at, (
    SELECT count(*) FROM turns t INDEXED BY turns_running
    WHERE t.status = 'running' AND t.lease_owner = b.owner AND (:scope IS NULL OR t.owner = :scope)) AS running
FROM boots b
WHERE b.number = :number OR (b.ended_at IS NULL AND b.owner IN (
    SELECT lease_owner FROM turns INDEXED BY turns_running WHERE status = 'running' AND lease_expires_at > :now))
ORDER BY b.number

-- turns_by_status --
-- How many turns are in each state that costs something.
SELECT status, count(*) AS turns FROM turns WHERE status IN ('queued', 'running', 'parked') GROUP BY status
UNION ALL
SELECT 'waiting', count(*) FROM turns WHERE status = 'waiting'

-- oldest_queued --
-- When the turn that is queued for longest was accepted.
SELECT min(accepted_at) AS accepted_at FROM turns WHERE status = 'queued'

-- open_cards --
-- How many decisions are waited for, and since when.
SELECT count(*) AS cards, min(opened_at) AS opened_at FROM cards INDEXED BY cards_open_everywhere WHERE state = 'opened'

-- calls_by_state --
-- How many tool calls are in each state that is not the end of it.
SELECT state, count(*) AS calls FROM tool_calls INDEXED BY tool_calls_unsettled WHERE state <> 'settled' GROUP BY state

-- prune_candidates --
-- Conversations, beyond a place, that hold turns which ended before an instant, or were forked before it.
SELECT DISTINCT conversation FROM turns WHERE conversation > :after AND ended_at < :before
UNION
SELECT id FROM conversations INDEXED BY conversations_forked
WHERE forked_from IS NOT NULL AND id > :after AND created_at < :before
ORDER BY 1 LIMIT :limit

-- prune_inherited --
-- The turns of others whose checkpoints a fork began with, when it was made before an instant.
SELECT DISTINCT json_extract(k.metadata, '$.run_id') AS run_id
FROM conversations c JOIN spaces s ON s.thread_id = c.id JOIN checkpoints k ON k.space = s.id
WHERE c.id = :conversation AND c.forked_from IS NOT NULL AND c.created_at < :before
  AND run_id NOT IN (SELECT id FROM turns WHERE conversation = c.id)

-- prune_events --
-- Events of a conversation's turns that ended before an instant; of its last turn only what a rewind had dropped (its end
-- is still shown to who opens the conversation). The newest event of all stays: by its seq a copy sees that it has them all.
-- Returns the stored messages that these events named.
DELETE FROM events WHERE conversation = :conversation AND seq <> (SELECT max(seq) FROM events WHERE conversation = :conversation)
  AND turn IN (SELECT id FROM turns WHERE conversation = :conversation AND ended_at < :before)
  AND (dropped_by IS NOT NULL
    OR turn <> (SELECT id FROM turns WHERE conversation = :conversation ORDER BY accept_number DESC LIMIT 1))
RETURNING item_id

-- prune_calls --
-- Tool calls of a conversation's turns that ended before an instant; those of its last turn stay.
DELETE FROM tool_calls WHERE turn IN (
    SELECT id FROM turns WHERE conversation = :conversation AND ended_at < :before
      AND id <> (SELECT id FROM turns WHERE conversation = :conversation ORDER BY accept_number DESC LIMIT 1))

-- prune_runs --
-- A conversation's turns that ended before an instant.
SELECT id FROM turns WHERE conversation = :conversation AND ended_at < :before

-- prune_keys --
-- Idempotency keys that no longer count, some at a time.
DELETE FROM idempotency_keys WHERE (owner, key) IN (
    SELECT owner, key FROM idempotency_keys WHERE created_at < :before LIMIT :limit)

-- prune_changes --
-- Old summaries, some at a time. The last one of each turn, those of conversations, and that one was deleted, stay: who keeps
-- a copy may ask from any number on.
DELETE FROM changes WHERE number IN (
    SELECT h.number FROM changes h
    WHERE h.at < :before AND h.status <> 'deleted'
      AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = h.turn AND t.status = h.status)
      AND (h.kind = 'turn' OR NOT EXISTS (SELECT 1 FROM conversations c WHERE c.id = h.conversation))
    LIMIT :limit)

-- prune_boots --
-- Old starts, this one excluded, some at a time. Attempts keep the number only.
DELETE FROM boots WHERE number IN (
    SELECT number FROM boots WHERE started_at < :before AND number <> :number LIMIT :limit)

-- prunable --
-- How many keys, summaries and starts the three above would remove in the end.
SELECT (SELECT count(*) FROM idempotency_keys WHERE created_at < :keys_before) AS idempotency_keys,
       (SELECT count(*) FROM changes h
        WHERE h.at < :before AND h.status <> 'deleted'
          AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = h.turn AND t.status = h.status)
          AND (h.kind = 'turn' OR NOT EXISTS (SELECT 1 FROM conversations c WHERE c.id = h.conversation))) AS changes,
       (SELECT count(*) FROM boots WHERE started_at < :before AND number <> :number) AS boots
