import { type FormEvent, useState } from "react";
import { ErrorText } from "../app/Failed";
import { useWords } from "../words/words";
import { type Branching, forkBefore, useFork } from "./branching";
import styles from "./chat.module.css";

/** A message said otherwise: it goes its own way, and the old one stays. */
export function EditMessage({ message, text, branching }: { message: string; text: string; branching: Branching }) {
  const t = useWords();
  const fork = useFork(branching.conversation);
  const [edited, setEdited] = useState(text);
  const submit = (event?: FormEvent) => {
    event?.preventDefault();
    if (edited.trim() && !fork.isPending) fork.mutate(forkBefore(message, edited));
  };
  return (
    <form className={styles.edit} onSubmit={submit}>
      <textarea
        // biome-ignore lint/a11y/noAutofocus: a person asked to edit it
        autoFocus
        aria-label={t.chat.editLabel}
        rows={Math.min(12, edited.split("\n").length + 1)}
        value={edited}
        onChange={(event) => setEdited(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") branching.edit(null);
          if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) submit(event);
        }}
      />
      <ErrorText error={fork.error} />
      <div className="buttons">
        <button type="button" onClick={() => branching.edit(null)}>
          {t.app.cancel}
        </button>
        <button type="submit" className="primary" disabled={!edited.trim() || fork.isPending}>
          {t.chat.sendBranch}
        </button>
      </div>
    </form>
  );
}
