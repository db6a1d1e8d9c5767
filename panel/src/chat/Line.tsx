import type { LineState } from "../stream/connection";
import { useWords } from "../words/words";
import styles from "./chat.module.css";

/** How far what is shown can be trusted to be what is. */
export function Line({ state }: { state: LineState }) {
  const t = useWords();
  return (
    <span className={styles.line} data-line={state} role="status">
      {t.line[state]}
    </span>
  );
}
