import type { CardReply } from "../api/schema";
import { useDraft } from "../app/drafts";
import { useWords } from "../words/words";
import { noted } from "./ApprovalForm";
import styles from "./cards.module.css";
import { saidValue } from "./said";
import { type Deciding, draftOf } from "./useDecide";

/** A call that was started and whose result was never recorded: only a person can find out. */
export function UncertainForm({ card, decide }: { card: CardReply; decide: Deciding }) {
  const t = useWords();
  const [result = "", setResult] = useDraft(`${draftOf(card)}result`);
  const [note = "", setNote] = useDraft(`${draftOf(card)}note`);
  const happened = () =>
    decide.mutate({ decision: "happened", ...(result.trim() && { result: saidValue(result) }), ...noted(note) });
  return (
    <div className={styles.form}>
      <label>
        {t.card.result}
        <textarea
          className={styles.json}
          rows={2}
          value={result}
          onChange={(event) => setResult(event.target.value || undefined)}
        />
      </label>
      <label>
        {t.card.note}
        <input value={note} maxLength={4_000} onChange={(event) => setNote(event.target.value || undefined)} />
      </label>
      <div className="buttons">
        <button type="button" className="primary" disabled={decide.isPending} onClick={happened}>
          {t.card.happened}
        </button>
        <button
          type="button"
          disabled={decide.isPending}
          onClick={() => decide.mutate({ decision: "retry", ...noted(note) })}
        >
          {t.card.retry}
        </button>
        <button
          type="button"
          className="danger"
          disabled={decide.isPending}
          onClick={() => decide.mutate({ decision: "give_up", ...noted(note) })}
        >
          {t.card.giveUp}
        </button>
      </div>
    </div>
  );
}
