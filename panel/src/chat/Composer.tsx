import { type FormEvent, type KeyboardEvent, type ReactNode, useEffect, useState } from "react";
import { useDraft } from "../app/drafts";
import { ErrorText } from "../app/Failed";
import { useGrowing } from "../app/useGrowing";
import { isRecord, parseJson } from "../fold/json";
import { useWords } from "../words/words";
import styles from "./composer.module.css";
import { draftOf, type Outgoing, type Sending } from "./useSend";

interface Props {
  /** Null: what is sent begins one. */
  conversation: string | null;
  /** The agent takes a JSON object rather than a message. */
  json: boolean;
  send: Sending;
  /** A turn is active: what is sent waits behind it. */
  busy?: boolean;
  hint?: string | undefined;
  /** Why something waits. */
  held?: ReactNode;
  /** ↑ in the empty field: the last message is edited. */
  onUp?: (() => void) | undefined;
  children?: ReactNode;
}

export function Composer({ conversation, json, send, busy = false, hint, held, onUp, children }: Props) {
  const t = useWords();
  const [draft, setDraft] = useDraft(draftOf(conversation));
  const [problem, setProblem] = useState("");
  const text = draft ?? "";
  const field = useField(text);
  const submit = (event?: FormEvent) => {
    event?.preventDefault();
    if (!text.trim()) return;
    const outgoing = outgoingOf(text, json, conversation !== null);
    setProblem(outgoing ? "" : t.chat.badJson);
    if (!outgoing) return;
    send.send(outgoing);
    setDraft(undefined);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      submit();
    } else if (event.key === "ArrowUp" && text === "" && onUp) {
      event.preventDefault();
      onUp();
    }
  };
  return (
    <form className={styles.composer} onSubmit={submit}>
      {hint && <p className={styles.hint}>{hint}</p>}
      {held}
      {problem ? <p className="error">{problem}</p> : <ErrorText error={send.error} />}
      <div className={styles.box}>
        <textarea
          ref={field}
          rows={1}
          aria-label={t.chat.message}
          placeholder={json ? t.chat.placeholderJson : t.chat.placeholder}
          value={text}
          onChange={(event) => setDraft(event.target.value || undefined)}
          onKeyDown={onKeyDown}
        />
        {children}
        <button type="submit" className="primary" disabled={!text.trim()}>
          {busy ? t.chat.queue : t.chat.send}
        </button>
      </div>
    </form>
  );
}

/** In a conversation it waits for its turn, also behind one that this page has not heard of yet. */
function outgoingOf(text: string, json: boolean, queued: boolean): Outgoing | null {
  const when = queued ? { when_busy: "enqueue" as const } : {};
  if (!json) return { text, request: { message: text, ...when } };
  try {
    const input = parseJson(text);
    return isRecord(input) ? { text, request: { input, ...when } } : null;
  } catch {
    return null;
  }
}

/** Is where a person types at once. */
function useField(text: string) {
  const field = useGrowing(text);
  useEffect(() => {
    if (window.matchMedia("(hover: hover)").matches) field.current?.focus();
  }, [field]);
  return field;
}
