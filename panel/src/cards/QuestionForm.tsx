import type { CardReply } from "../api/schema";
import { useDraft } from "../app/drafts";
import { showJson } from "../fold/json";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import styles from "./cards.module.css";
import { saidValue } from "./said";
import { type Deciding, draftOf } from "./useDecide";

/** A question of the graph's own: any JSON value is an answer. */
export function QuestionForm({ card, decide }: { card: CardReply; decide: Deciding }) {
  const t = useWords();
  const [answer = "", setAnswer] = useDraft(`${draftOf(card)}answer`);
  const asked = typeof card.request === "string" ? card.request : showJson(card.request);
  const say = (value: unknown) => decide.mutate({ decision: "answer", value });
  return (
    <form
      className={styles.form}
      onSubmit={(event) => {
        event.preventDefault();
        say(saidValue(answer));
      }}
    >
      <pre className={styles.arguments}>{visible(asked)}</pre>
      <label>
        {t.card.answerLabel}
        <textarea
          className={styles.json}
          rows={2}
          value={answer}
          onChange={(event) => setAnswer(event.target.value || undefined)}
        />
      </label>
      <div className="buttons">
        <button type="submit" className="primary" disabled={decide.isPending || !answer.trim()}>
          {t.card.answer}
        </button>
        <button type="button" disabled={decide.isPending} onClick={() => say(true)}>
          {t.card.yes}
        </button>
        <button type="button" disabled={decide.isPending} onClick={() => say(false)}>
          {t.card.no}
        </button>
      </div>
    </form>
  );
}
