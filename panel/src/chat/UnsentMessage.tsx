import type { Hold } from "../api/held";
import { useAway } from "../app/reach";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import styles from "./chat.module.css";

/** A message that no server has answered yet. */
export function UnsentMessage({ text, hold }: { text: string; hold: Hold | null }) {
  const t = useWords();
  const away = useAway();
  const why = hold ?? (away ? "agent" : null);
  return (
    <article aria-label={t.chat.you}>
      <div className={styles.user} data-pending={true}>
        <p>{visible(text)}</p>
      </div>
      <p className={styles.unsent} role="status">
        {why === null ? t.chat.sending : t.chat.held[why]}
      </p>
    </article>
  );
}
