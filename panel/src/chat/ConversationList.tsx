import { useDeferredValue, useEffect, useRef, useState } from "react";
import { flushSync } from "react-dom";
import { Link } from "wouter";
import { useConversations } from "../api/queries";
import { Awaiting } from "../app/Awaiting";
import { Refused } from "../app/Failed";
import { useWords } from "../words/words";
import { ConversationRow } from "./ConversationRow";
import styles from "./list.module.css";

interface Props {
  /** It may be out of sight: it is needed, and needed no more. */
  onOpen(): void;
  onClose(): void;
}

export function ConversationList({ onOpen, onClose }: Props) {
  const t = useWords();
  const [search, setSearch] = useState("");
  const words = useDeferredValue(search.trim());
  const { data, error, failureReason, hasNextPage, fetchNextPage, isFetchingNextPage } = useConversations(words);
  const field = useSearchKey(onOpen);
  const found = data?.pages.flatMap((page) => page.items) ?? [];
  const onKeyDown = (event: React.KeyboardEvent<HTMLInputElement>) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    if (search) setSearch("");
    else event.currentTarget.blur();
  };
  return (
    <section className={styles.list} aria-label={t.list.title}>
      <Link href="/" className={styles.new} onClick={onClose}>
        {t.list.new}
      </Link>
      <input
        ref={field}
        type="search"
        placeholder={t.list.search}
        aria-label={t.list.search}
        value={search}
        onChange={(event) => setSearch(event.target.value)}
        onKeyDown={onKeyDown}
      />
      <Refused error={error} />
      {!data && !error && <Awaiting why={failureReason} />}
      <ul className={styles.rows}>
        {found.map((each) => (
          <ConversationRow key={each.id} conversation={each} />
        ))}
      </ul>
      {data && found.length === 0 && <p className="empty">{words ? t.list.noMatch : t.list.none}</p>}
      {hasNextPage && (
        <button type="button" className="quiet" disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
          {t.app.more}
        </button>
      )}
    </section>
  );
}

function useSearchKey(onOpen: () => void) {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const focus = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      flushSync(onOpen);
      field.current?.focus();
      field.current?.select();
    };
    window.addEventListener("keydown", focus);
    return () => window.removeEventListener("keydown", focus);
  }, [onOpen]);
  return field;
}
