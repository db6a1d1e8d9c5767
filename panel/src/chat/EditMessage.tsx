import { type FormEvent, useState } from "react";
import { useDraft } from "../app/drafts";
import { useEscape } from "../app/escape";
import { ErrorText } from "../app/Failed";
import { Held } from "../app/Held";
import { useGrowing } from "../app/useGrowing";
import { useWords } from "../words/words";
import { type Branching, edits, forkBefore, useFork } from "./branching";
import styles from "./chat.module.css";

/** A message said otherwise: it goes its own way, and the old one stays. */
export function EditMessage({ message, text, branching }: { message: string; text: string; branching: Branching }) {
  const t = useWords();
  const fork = useFork(branching.conversation);
  const [draft, setDraft] = useDraft(`${edits(branching.conversation)}text`);
  const edited = draft ?? text;
  const field = useGrowing(edited);
  const [opener] = useState(() => document.activeElement);
  const leave = () => {
    branching.edit(null);
    requestAnimationFrame(() => goBack(opener, message));
  };
  useEscape(leave);
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
        ref={field}
        rows={1}
        value={edited}
        onChange={(event) => setDraft(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) submit(event);
        }}
      />
      <Held of={fork} />
      <ErrorText error={fork.error} />
      <div className="buttons">
        <button type="button" onClick={leave}>
          {t.app.cancel}
        </button>
        <button type="submit" className="primary" disabled={!edited.trim() || fork.isPending}>
          {t.chat.sendBranch}
        </button>
      </div>
    </form>
  );
}

/** To what had the focus before; a button that was gone meanwhile is there again as another one. */
function goBack(opener: Element | null, message: string): void {
  const place = opener?.isConnected ? opener : document.querySelector(`[data-edit="${CSS.escape(message)}"]`);
  if (place instanceof HTMLElement) place.focus();
}
