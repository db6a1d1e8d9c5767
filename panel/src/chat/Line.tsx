import type { Reach } from "../api/schema";
import type { LineState } from "../stream/connection";
import { useWords } from "../words/words";
import styles from "./chat.module.css";
import { lineShown } from "./lineShown";

/** How far what is shown can be trusted to be what is. */
export function Line({ state, reach }: { state: LineState; reach: Reach }) {
  const t = useWords();
  const shown = lineShown(state, reach);
  return (
    <span className={styles.line} data-line={shown} role="status">
      {t.line[shown]}
    </span>
  );
}
