import { visible } from "../words/visible";
import { useWords } from "../words/words";
import styles from "./chat.module.css";

/** A message that no server has answered yet. */
export function UnsentMessage({ text, failing }: { text: string; failing: boolean }) {
  const t = useWords();
  return (
    <article aria-label={t.chat.you}>
      <div className={styles.user} data-pending={true}>
        <p>{visible(text)}</p>
      </div>
      <p className={styles.unsent} role="status">
        {failing ? t.chat.sendingAgain : t.chat.sending}
      </p>
    </article>
  );
}
