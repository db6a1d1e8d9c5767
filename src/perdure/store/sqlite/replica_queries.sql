-- The queries of a gateway's copy. Form and rules as in queries.sql.

-- == how far the copy is ==

-- position --
-- How far the copy holds an agent's journal.
SELECT journal, change, audit FROM agents WHERE name = :agent

-- position_set --
-- The copy holds an agent's journal up to here.
INSERT INTO agents (name, journal, change, audit) VALUES (:agent, :journal, :change, :audit)
ON CONFLICT (name) DO UPDATE SET journal = excluded.journal, change = excluded.change, audit = excluded.audit

-- agent_keep --
-- What an agent told of itself last.
INSERT INTO agents (name, document) VALUES (:agent, :document)
ON CONFLICT (name) DO UPDATE SET document = excluded.document

-- agents_known --
-- What agents told of themselves.
SELECT name, document FROM agents WHERE document IS NOT NULL ORDER BY name

-- agent_forget --
-- An agent that was taken away: nothing is known of it any more.
DELETE FROM agents WHERE name = :agent

-- stream_set --
-- How far the stream of events was read.
INSERT INTO stream_position (one, stream, seq) VALUES (1, :stream, :seq)
ON CONFLICT (one) DO UPDATE SET
    seq = CASE WHEN stream = excluded.stream THEN max(seq, excluded.seq) ELSE excluded.seq END, stream = excluded.stream

-- stream --
-- Where to read on.
SELECT stream, seq FROM stream_position

-- place_set --
-- Whose agents these are copies of: told once.
INSERT INTO place (one, name) VALUES (1, :name) ON CONFLICT (one) DO NOTHING

-- place --
-- Whose agents these are copies of.
SELECT name FROM place

-- == conversations ==

-- conversation_copied --
-- Whose copy a conversation is, as of when.
SELECT agent, change FROM copied_conversations WHERE conversation = :conversation

-- conversation_copy --
-- A conversation as its journal has it.
INSERT INTO conversations (id, owner, agent, title, message_count, next_seq, forked_from, created_at, updated_at,
    forked_turn, forked_checkpoint, tree)
VALUES (:id, :owner, :agent, :title, :message_count, :next_seq, :forked_from, :created_at, :updated_at,
    :forked_turn, :forked_checkpoint, :tree)
ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, agent = excluded.agent, title = excluded.title,
    message_count = excluded.message_count, next_seq = excluded.next_seq, forked_from = excluded.forked_from,
    created_at = excluded.created_at, updated_at = excluded.updated_at, forked_turn = excluded.forked_turn,
    forked_checkpoint = excluded.forked_checkpoint, tree = excluded.tree

-- conversation_note --
-- Whose copy it is, as of when.
INSERT INTO copied_conversations (conversation, agent, change) VALUES (:conversation, :agent, :change)
ON CONFLICT (conversation) DO UPDATE SET change = excluded.change

-- conversations_of_agent --
-- All that was copied of an agent.
SELECT conversation FROM copied_conversations WHERE agent = :agent

-- words_of_agent_forget --
-- Nothing of an agent is found any more. In one statement: the index writes its pages anew after each.
DELETE FROM words WHERE rowid IN (
    SELECT s.doc FROM searchable s JOIN copied_conversations c ON c.conversation = s.conversation WHERE c.agent = :agent)

-- conversations_of_agent_delete --
-- All that was copied of an agent, with all that belongs to it.
DELETE FROM conversations WHERE id IN (SELECT conversation FROM copied_conversations WHERE agent = :agent)

-- deletion --
-- When a conversation was deleted.
SELECT change FROM copied_deletions WHERE conversation = :conversation

-- deletion_note --
-- A conversation was deleted before this change of its journal.
INSERT INTO copied_deletions (conversation, agent, change) VALUES (:conversation, :agent, :change)
ON CONFLICT (conversation) DO UPDATE SET change = max(change, excluded.change)

-- deletions_forget --
-- Another past, or another journal: what was deleted there may be here.
DELETE FROM copied_deletions WHERE agent = :agent

-- == turns ==

-- turn_copied --
-- A turn that is held, as of when.
SELECT n.conversation, n.change, t.status FROM copied_turns n JOIN turns t ON t.id = n.turn WHERE n.turn = :turn

-- turn_before --
-- The number here of the turn that was accepted before.
SELECT t.accept_number FROM copied_turns n JOIN turns t ON t.id = n.turn
WHERE n.conversation = :conversation AND n.accept_number < :source ORDER BY n.accept_number DESC LIMIT 1

-- turns_behind --
-- The numbers here of the turns that were accepted later, in order.
SELECT t.id, t.accept_number FROM copied_turns n JOIN turns t ON t.id = n.turn
WHERE n.conversation = :conversation AND n.accept_number > :source ORDER BY n.accept_number

-- number_taken --
-- Whether a turn has this number.
SELECT 1 FROM turns WHERE accept_number = :number

-- turn_renumber --
-- Gives a turn another number.
UPDATE turns SET accept_number = :number WHERE id = :id

-- turn_copy --
-- A turn as its journal has it. Its number here is given once.
INSERT INTO turns (accept_number, id, conversation, owner, agent, status, input, epoch, attempts, attempts_without_progress,
    supersteps, budget_from, first_seq, committed_seq, cancel_requested_at, superseded, failure_code, failure_reason,
    failure_message, input_tokens, output_tokens, total_tokens, not_before, lease_owner, lease_expires_at, accepted_at,
    ended_at, model_calls, tool_calls, worked, working, model_calls_from, tool_calls_from, tokens_from, worked_from,
    repeated, repeats, discards_cards)
VALUES (:accept_number, :id, :conversation, :owner, :agent, :status, :input, :epoch, :attempts, :attempts_without_progress,
    :supersteps, :budget_from, :first_seq, :committed_seq, :cancel_requested_at, :superseded, :failure_code, :failure_reason,
    :failure_message, :input_tokens, :output_tokens, :total_tokens, :not_before, :lease_owner, :lease_expires_at, :accepted_at,
    :ended_at, :model_calls, :tool_calls, :worked, :working, :model_calls_from, :tool_calls_from, :tokens_from, :worked_from,
    :repeated, :repeats, :discards_cards)
ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, agent = excluded.agent, status = excluded.status,
    input = excluded.input, epoch = excluded.epoch, attempts = excluded.attempts,
    attempts_without_progress = excluded.attempts_without_progress, supersteps = excluded.supersteps,
    budget_from = excluded.budget_from, first_seq = excluded.first_seq, committed_seq = excluded.committed_seq,
    cancel_requested_at = excluded.cancel_requested_at, superseded = excluded.superseded,
    failure_code = excluded.failure_code, failure_reason = excluded.failure_reason,
    failure_message = excluded.failure_message, input_tokens = excluded.input_tokens,
    output_tokens = excluded.output_tokens, total_tokens = excluded.total_tokens, not_before = excluded.not_before,
    lease_owner = excluded.lease_owner, lease_expires_at = excluded.lease_expires_at, accepted_at = excluded.accepted_at,
    ended_at = excluded.ended_at, model_calls = excluded.model_calls, tool_calls = excluded.tool_calls,
    worked = excluded.worked, working = excluded.working, model_calls_from = excluded.model_calls_from,
    tool_calls_from = excluded.tool_calls_from, tokens_from = excluded.tokens_from, worked_from = excluded.worked_from,
    repeated = excluded.repeated, repeats = excluded.repeats, discards_cards = excluded.discards_cards

-- turn_note --
-- As of when a turn is held.
INSERT INTO copied_turns (turn, conversation, accept_number, change) VALUES (:turn, :conversation, :source, :change)
ON CONFLICT (turn) DO UPDATE SET change = excluded.change

-- turns_supersede_copied --
-- What a turn's beginning, or its end, does to those before it, its journal does without a change of theirs: what had failed
-- cannot be resumed any more …
UPDATE turns SET superseded = 1
WHERE conversation = :conversation AND status IN ('failed', 'interrupted') AND superseded = 0 AND EXISTS (
    SELECT 1 FROM turns l
    WHERE l.conversation = :conversation AND l.accept_number > turns.accept_number AND l.status <> 'waiting'
      AND NOT (l.status = 'cancelled' AND l.epoch = 0))

-- calls_settle_copied --
-- … and what their calls gave is in the thread, or not needed any more.
UPDATE tool_calls SET state = 'settled', result_kind = NULL, result = NULL
WHERE state = 'recorded' AND state <> 'settled' AND conversation = :conversation AND EXISTS (
    SELECT 1 FROM turns t JOIN turns l ON l.conversation = t.conversation AND l.accept_number >= t.accept_number
    WHERE t.id = tool_calls.turn AND (l.status = 'completed' OR (l.status = 'cancelled' AND l.epoch > 0)))

-- == what belongs to a turn ==

-- attempts_forget --
-- A turn's attempts make room for those of its journal.
DELETE FROM attempts WHERE turn = :turn

-- attempt_copy --
-- An attempt as its journal has it.
INSERT INTO attempts (turn, number, epoch, owner, boot, started_at, ended_at, outcome, progressed, error)
VALUES (:turn, :number, :epoch, :owner, :boot, :started_at, :ended_at, :outcome, :progressed, :error)

-- cards_states --
-- What is known of a turn's cards.
SELECT id, state FROM cards WHERE turn = :turn ORDER BY id

-- cards_forget --
-- A turn's cards make room for those of its journal.
DELETE FROM cards WHERE turn = :turn

-- card_copy --
-- A card as its journal has it.
INSERT INTO cards (id, turn, conversation, owner, interrupt_id, kind, request, state, answer, decided_by, decided_at,
    opened_at, tool, server, arguments, digest, effect_class, call_id, message_id, call_key, why, expires_at, deciders,
    decision, decided_arguments, note, result)
VALUES (:id, :turn, :conversation, :owner, :interrupt_id, :kind, :request, :state, :answer, :decided_by, :decided_at,
    :opened_at, :tool, :server, :arguments, :digest, :effect_class, :call_id, :message_id, :call_key, :why, :expires_at,
    :deciders, :decision, :decided_arguments, :note, :result)

-- calls_forget --
-- A turn's tool calls make room for those of its journal.
DELETE FROM tool_calls WHERE turn = :turn

-- call_copy --
-- A tool call as its journal has it; its result stays there, so that of a recorded one is empty here.
INSERT INTO tool_calls (key, turn, conversation, call_id, message_id, name, server, arguments, digest, effect_class, state,
    starts, attempt, epoch, task, started_at, ended_at, status, error, result)
VALUES (:key, :turn, :conversation, :call_id, :message_id, :name, :server, :arguments, :digest, :effect_class, :state,
    :starts, :attempt, :epoch, :task, :started_at, :ended_at, :status, :error, CASE WHEN :state = 'recorded' THEN x'' END)

-- == the audit ==

-- audit_last --
-- The number here of the last deed that was copied of an agent.
SELECT coalesce(max(number), 0) AS number FROM copied_audit WHERE agent = :agent

-- audit_taken --
-- Whether a deed has this number.
SELECT 1 FROM audit WHERE number = :number

-- audit_copy --
-- A deed as its journal has it, under a number of this file.
INSERT INTO audit (number, at, by, owner, action, conversation, turn, card, detail)
VALUES (:number, :at, :by, :owner, :action, :conversation, :turn, :card, :detail)

-- audit_note --
-- Which deed of which agent that is.
INSERT INTO copied_audit (agent, source, number) VALUES (:agent, :source, :number)

-- audit_forget --
-- All deeds that were copied of an agent.
DELETE FROM audit WHERE number IN (SELECT number FROM copied_audit WHERE agent = :agent)

-- audit_notes_forget --
-- Nor is known any more which they were.
DELETE FROM copied_audit WHERE agent = :agent

-- == events ==

-- event_copy --
-- A committed event, payload and all; one that is held stays as it is.
INSERT INTO events (conversation, seq, turn, attempt, kind, at, payload)
VALUES (:conversation, :seq, :turn, :attempt, :kind, :at, :payload) ON CONFLICT DO NOTHING

-- events_rewind --
-- What a turn told after the boundary and before the rewind is void.
UPDATE events SET dropped_by = :seq
WHERE conversation = :conversation AND seq > :to_seq AND seq < :seq AND turn = :turn AND dropped_by IS NULL AND kind <> 'rewind'

-- event_voided --
-- The rewind, if one is held, that makes an event void which comes late.
SELECT min(seq) AS seq FROM events
WHERE turn = :turn AND kind IN ('end', 'chat-error', 'rewind') AND kind = 'rewind' AND seq > :seq
  AND json_extract(payload, '$.to_seq') < :seq

-- event_void --
-- Such an event.
UPDATE events SET dropped_by = :by WHERE conversation = :conversation AND seq = :seq

-- == transcripts ==

-- transcript_keep --
-- The messages of a conversation as its agent told them last.
INSERT INTO transcripts (conversation, seq, document)
SELECT id, :seq, :document FROM conversations WHERE id = :conversation
ON CONFLICT (conversation) DO UPDATE SET seq = excluded.seq, document = excluded.document WHERE excluded.seq >= seq

-- transcript --
-- What was kept.
SELECT seq, document FROM transcripts WHERE conversation = :conversation

-- == dispatches ==

-- dispatch_put --
-- A turn whose end this gateway waits for from now on.
INSERT OR REPLACE INTO dispatches (turn, conversation, agent, dispatched_at, parked)
VALUES (:turn, :conversation, :agent, :dispatched_at, :parked)

-- dispatches --
-- All that is waited for, first given first.
SELECT * FROM dispatches ORDER BY dispatched_at, turn

-- dispatch_parked --
-- More time that does not count.
UPDATE dispatches SET parked = parked + :parked WHERE turn = :turn

-- dispatch_conclude --
-- Nothing is waited for any more.
DELETE FROM dispatches WHERE turn = :turn

-- dispatches_of_conversation --
-- A conversation is gone, with all that was waited for in it.
DELETE FROM dispatches WHERE conversation = :conversation

-- dispatches_of_agent --
-- An agent is forgotten, with all that was waited for of it.
DELETE FROM dispatches WHERE agent = :agent
