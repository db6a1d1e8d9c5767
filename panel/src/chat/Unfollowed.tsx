import { useWords } from "../words/words";
import styles from "./chat.module.css";

/** The server has waited for the turn as long as it may. That says nothing of the turn. */
export function Unfollowed({ ask }: { ask(): void }) {
  const t = useWords();
  return (
    <p className={styles.unfollowed} role="status">
      {t.chat.unfollowed}
      <button type="button" onClick={ask}>
        {t.chat.askAgain}
      </button>
    </p>
  );
}
