import { type FormEvent, type KeyboardEvent, type ReactNode, useEffect, useRef, useState } from "react";
import { newKey } from "../api/repeating";
import { ErrorText } from "../app/Failed";
import { isRecord, parseJson } from "../fold/json";
import { useWords } from "../words/words";
import styles from "./composer.module.css";
import type { Outgoing, Sending } from "./useSend";

interface Props {
  /** The agent takes a JSON object rather than a message. */
  json: boolean;
  send: Sending;
  /** A turn is active: what is sent waits behind it. */
  busy?: boolean;
  hint?: string | undefined;
  /** ↑ in the empty field: the last message is edited. */
  onUp?: (() => void) | undefined;
  onEscape?: (() => void) | undefined;
  children?: ReactNode;
}

export function Composer({ json, send, busy = false, hint, onUp, onEscape, children }: Props) {
  const t = useWords();
  const [text, setText] = useState("");
  const [problem, setProblem] = useState("");
  const field = useField(text);
  const submit = (event?: FormEvent) => {
    event?.preventDefault();
    if (!text.trim() || send.isPending) return;
    const outgoing = outgoingOf(text, json, busy);
    setProblem(outgoing ? "" : t.chat.badJson);
    if (!outgoing) return;
    send.mutate({ ...outgoing, key: newKey() }, { onError: () => setText((now) => now || outgoing.text) });
    setText("");
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      submit();
    } else if (event.key === "Escape") {
      onEscape?.();
    } else if (event.key === "ArrowUp" && text === "" && onUp) {
      event.preventDefault();
      onUp();
    }
  };
  return (
    <form className={styles.composer} onSubmit={submit}>
      {hint && <p className={styles.hint}>{hint}</p>}
      <Progress send={send} />
      {problem ? <p className="error">{problem}</p> : <ErrorText error={send.error} />}
      <div className={styles.box}>
        <textarea
          ref={field}
          rows={1}
          aria-label={t.chat.message}
          placeholder={json ? t.chat.placeholderJson : t.chat.placeholder}
          value={text}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={onKeyDown}
        />
        {children}
        <button type="submit" className="primary" disabled={!text.trim() || send.isPending}>
          {busy ? t.chat.queue : t.chat.send}
        </button>
      </div>
    </form>
  );
}

function outgoingOf(text: string, json: boolean, busy: boolean): Outgoing | null {
  const when = busy ? { when_busy: "enqueue" as const } : {};
  if (!json) return { text, request: { message: text, ...when } };
  try {
    const input = parseJson(text);
    return isRecord(input) ? { text, request: { input, ...when } } : null;
  } catch {
    return null;
  }
}

function Progress({ send }: { send: Sending }) {
  const t = useWords();
  if (!send.isPending) return null;
  return (
    <p className={styles.hint} role="status">
      {send.failureCount > 0 ? t.chat.sendingAgain : t.chat.sending}
    </p>
  );
}

/** Grows with its text and is where a person types at once. */
function useField(text: string) {
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    if (window.matchMedia("(hover: hover)").matches) field.current?.focus();
  }, []);
  // biome-ignore lint/correctness/useExhaustiveDependencies: its height follows from the text
  useEffect(() => {
    const area = field.current;
    if (!area) return;
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight, 240)}px`;
  }, [text]);
  return field;
}
