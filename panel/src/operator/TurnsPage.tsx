import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useSearchParams } from "wouter";
import { keys, useTurns } from "../api/queries";
import { reread } from "../api/reread";
import { Awaiting } from "../app/Awaiting";
import { Refused } from "../app/Failed";
import { useTitle } from "../app/useTitle";
import { useWords } from "../words/words";
import { Counts } from "./Counts";
import { filtersOf } from "./filters";
import styles from "./operator.module.css";
import { TurnFilter } from "./TurnFilter";
import { TurnsTable } from "./TurnsTable";

/** Turns of all conversations, newest first. What is looked for is in the address, so it can be kept and sent. */
export default function TurnsPage() {
  const t = useWords();
  useTitle(t.turns.title);
  const client = useQueryClient();
  const [search] = useSearchParams();
  const [paused, setPaused] = useState(false);
  const filters = filtersOf(search);
  const { data, error, failureReason, hasNextPage, fetchNextPage, isFetchingNextPage } = useTurns(filters, paused);
  const turns = data?.pages.flatMap((page) => page.items) ?? [];
  const pause = () => {
    setPaused(!paused);
    if (paused) void reread(client, keys.turns);
  };
  return (
    <div className={styles.page}>
      <header className={styles.header}>
        <h1>{t.turns.title}</h1>
        <button type="button" aria-pressed={paused} onClick={pause}>
          {paused ? t.turns.go : t.turns.pause}
        </button>
      </header>
      <Counts agent={filters.agent} paused={paused} />
      <TurnFilter />
      {paused && (
        <p role="status" className={styles.hint}>
          {t.turns.paused}
        </p>
      )}
      <Refused error={error} />
      {!data && !error && <Awaiting why={failureReason} />}
      <TurnsTable turns={turns} paused={paused} />
      {(data || error) && turns.length === 0 && (
        <None read={data !== undefined} filtered={Object.values(filters).some(Boolean)} />
      )}
      {hasNextPage && (
        <button
          type="button"
          className={styles.more}
          disabled={isFetchingNextPage}
          onClick={() => void fetchNextPage()}
        >
          {t.app.more}
        </button>
      )}
    </div>
  );
}

/** `read`: there are none; else what is looked for was refused. */
function None({ read, filtered }: { read: boolean; filtered: boolean }) {
  const t = useWords();
  return (
    <div className="empty">
      {read && <p>{filtered ? t.turns.none : t.turns.nothingYet}</p>}
      {filtered && <Link href="/turns">{t.turns.allTurns}</Link>}
    </div>
  );
}
