import { visible } from "../words/visible";
import { useWords } from "../words/words";
import styles from "./chat.module.css";
import type { Hold } from "./courier";

/** A message that no server has answered yet. */
export function UnsentMessage({ text, hold }: { text: string; hold: Hold | null }) {
  const t = useWords();
  return (
    <article aria-label={t.chat.you}>
      <div className={styles.user} data-pending={true}>
        <p>{visible(text)}</p>
      </div>
      <p className={styles.unsent} role="status">
        {hold === null ? t.chat.sending : t.chat.held[hold]}
      </p>
    </article>
  );
}
