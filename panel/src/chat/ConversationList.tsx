import { useDeferredValue, useEffect, useRef, useState } from "react";
import { Link } from "wouter";
import { useConversations } from "../api/queries";
import { ErrorText } from "../app/Failed";
import { useWords } from "../words/words";
import { ConversationRow } from "./ConversationRow";
import styles from "./list.module.css";

export function ConversationList({ onClose }: { onClose(): void }) {
  const t = useWords();
  const [search, setSearch] = useState("");
  const words = useDeferredValue(search.trim());
  const { data, error, hasNextPage, fetchNextPage, isFetchingNextPage } = useConversations(words);
  const field = useSearchKey();
  const found = data?.pages.flatMap((page) => page.items) ?? [];
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
        onKeyDown={(event) => event.key === "Escape" && setSearch("")}
      />
      <ErrorText error={error} />
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

function useSearchKey() {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const focus = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      field.current?.focus();
    };
    window.addEventListener("keydown", focus);
    return () => window.removeEventListener("keydown", focus);
  }, []);
  return field;
}
