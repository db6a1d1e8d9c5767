import type { CardReply } from "../api/schema";
import { useDraft } from "../app/drafts";
import { isRecord, parseJson, showJson } from "../fold/json";
import { useWords } from "../words/words";
import styles from "./cards.module.css";
import { type Deciding, draftOf } from "./useDecide";

/** Approve, with other arguments if a person wants, or deny with a note. */
export function ApprovalForm({ card, decide }: { card: CardReply; decide: Deciding }) {
  const t = useWords();
  const [edited, setEdited] = useDraft(`${draftOf(card)}arguments`);
  const [note = "", setNote] = useDraft(`${draftOf(card)}note`);
  const changed = edited === undefined ? null : objectOf(edited);
  const approve = () => decide.mutate({ decision: "approve", ...(changed && { arguments: changed }), ...noted(note) });
  return (
    <div className={styles.form}>
      {edited !== undefined && (
        <label>
          {t.tool.arguments}
          <textarea
            className={styles.json}
            rows={Math.min(12, edited.split("\n").length + 1)}
            value={edited}
            spellCheck={false}
            aria-invalid={changed === null}
            onChange={(event) => setEdited(event.target.value)}
          />
          {changed === null && <span className="error">{t.card.badObject}</span>}
        </label>
      )}
      <label>
        {t.card.note}
        <input value={note} maxLength={4_000} onChange={(event) => setNote(event.target.value || undefined)} />
      </label>
      <div className="buttons">
        <button
          type="button"
          className="primary"
          disabled={decide.isPending || (edited !== undefined && changed === null)}
          onClick={approve}
        >
          {edited === undefined ? t.card.approve : t.card.approveEdited}
        </button>
        <button type="button" onClick={() => setEdited(edited === undefined ? showJson(card.arguments) : undefined)}>
          {edited === undefined ? t.card.edit : t.card.keep}
        </button>
        <button
          type="button"
          className="danger"
          disabled={decide.isPending}
          onClick={() => decide.mutate({ decision: "deny", ...noted(note) })}
        >
          {t.card.deny}
        </button>
      </div>
    </div>
  );
}

export function noted(note: string): { note?: string } {
  return note.trim() ? { note: note.trim() } : {};
}

function objectOf(text: string): Record<string, unknown> | null {
  try {
    const value = parseJson(text);
    return isRecord(value) ? value : null;
  } catch {
    return null;
  }
}
