import { useWords } from "../words/words";
import { LongText } from "./LongText";
import styles from "./tool.module.css";

/** What a model told of its thinking: there for who wants it, letter by letter. */
export function Reasoning({ text }: { text: string }) {
  const t = useWords();
  return (
    <details className={styles.card}>
      <summary>
        <span className={styles.state}>{t.chat.reasoning}</span>
      </summary>
      <div className={styles.inside}>
        <LongText text={text} name="reasoning.txt" />
      </div>
    </details>
  );
}
