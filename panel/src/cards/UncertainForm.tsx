import { useState } from "react";
import type { CardReply } from "../api/schema";
import { useWords } from "../words/words";
import { noted } from "./ApprovalForm";
import styles from "./cards.module.css";
import { saidValue } from "./said";
import type { Deciding } from "./useDecide";

/** A call that was started and whose result was never recorded: only a person can find out. */
export function UncertainForm({ decide }: { card: CardReply; decide: Deciding }) {
  const t = useWords();
  const [result, setResult] = useState("");
  const [note, setNote] = useState("");
  const happened = () =>
    decide.mutate({ decision: "happened", ...(result.trim() && { result: saidValue(result) }), ...noted(note) });
  return (
    <div className={styles.form}>
      <label>
        {t.card.result}
        <textarea className={styles.json} rows={2} value={result} onChange={(event) => setResult(event.target.value)} />
      </label>
      <label>
        {t.card.note}
        <input value={note} maxLength={4_000} onChange={(event) => setNote(event.target.value)} />
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
