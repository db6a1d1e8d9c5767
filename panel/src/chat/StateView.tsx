import { showJson } from "../fold/json";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import styles from "./chat.module.css";

/** The values of a graph that keeps no messages. */
export function StateView({ state }: { state: Record<string, unknown> }) {
  const t = useWords();
  return (
    <section className={styles.state} aria-label={t.chat.state}>
      <pre>{visible(showJson(state))}</pre>
    </section>
  );
}
