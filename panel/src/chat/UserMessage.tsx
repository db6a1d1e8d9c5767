import { useState } from "react";
import { bytes } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { useBranching } from "./branching";
import styles from "./chat.module.css";
import { EditMessage } from "./EditMessage";
import { MessageTools } from "./MessageTools";

const FOLDED = 4_000;

export function UserMessage({ id, text, pending }: { id: string; text: string; pending: boolean }) {
  const t = useWords();
  const branching = useBranching();
  const [all, setAll] = useState(false);
  const long = text.length > FOLDED && !all;
  if (branching?.editing === id) return <EditMessage message={id} text={text} branching={branching} />;
  return (
    <article aria-label={t.chat.you}>
      <div className={styles.user} data-pending={pending}>
        <p>
          {visible(long ? text.slice(0, FOLDED) : text)}
          {long && "…"}
        </p>
        {long && (
          <button type="button" className="quiet" onClick={() => setAll(true)}>
            {t.tool.showAll(bytes(text.length, t.locale))}
          </button>
        )}
      </div>
      {!pending && <MessageTools message={id} by="user" />}
    </article>
  );
}
