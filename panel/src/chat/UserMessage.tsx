import { useState } from "react";
import { bytes } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import styles from "./chat.module.css";

const FOLDED = 4_000;

export function UserMessage({ text, pending }: { text: string; pending: boolean }) {
  const t = useWords();
  const [all, setAll] = useState(false);
  const long = text.length > FOLDED && !all;
  return (
    <article className={styles.user} aria-label={t.chat.you} data-pending={pending}>
      <p>
        {visible(long ? text.slice(0, FOLDED) : text)}
        {long && "…"}
      </p>
      {long && (
        <button type="button" className="quiet" onClick={() => setAll(true)}>
          {t.tool.showAll(bytes(text.length, t.locale))}
        </button>
      )}
    </article>
  );
}
