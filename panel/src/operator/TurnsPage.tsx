import { useMemo, useState } from "react";
import { useSearchParams } from "wouter";
import { useTurns } from "../api/queries";
import { ErrorText } from "../app/Failed";
import { useWords } from "../words/words";
import { Counts } from "./Counts";
import styles from "./operator.module.css";
import { TurnFilter } from "./TurnFilter";
import { TurnsTable } from "./TurnsTable";

/** Turns of all conversations, newest first. What is looked for is in the address, so it can be kept and sent. */
export default function TurnsPage() {
  const t = useWords();
  const [search] = useSearchParams();
  const [paused, setPaused] = useState(false);
  const filters = {
    status: search.get("status") ?? undefined,
    agent: search.get("agent") ?? undefined,
    q: search.get("q") ?? undefined,
    attempts_min: search.get("repeated") === "1" ? "2" : undefined,
  };
  const { data, error, hasNextPage, fetchNextPage, isFetchingNextPage } = useTurns(filters, paused);
  const live = useMemo(() => data?.pages.flatMap((page) => page.items) ?? [], [data]);
  const turns = usePausable(live, paused);
  return (
    <div className={styles.page}>
      <header className={styles.header}>
        <h1>{t.turns.title}</h1>
        <Counts agent={filters.agent} paused={paused} />
        <button type="button" aria-pressed={paused} onClick={() => setPaused(!paused)}>
          {paused ? t.turns.go : t.turns.pause}
        </button>
      </header>
      <TurnFilter />
      {paused && <p role="status">{t.turns.paused}</p>}
      <ErrorText error={error} />
      <TurnsTable turns={turns} />
      {data && turns.length === 0 && <p className="empty">{t.turns.none}</p>}
      {hasNextPage && (
        <button type="button" disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
          {t.app.more}
        </button>
      )}
    </div>
  );
}

/** What was there when the list was paused. */
function usePausable<T>(live: readonly T[], paused: boolean): readonly T[] {
  const [kept, setKept] = useState<readonly T[] | null>(null);
  if (paused && kept === null) setKept(live);
  if (!paused && kept !== null) setKept(null);
  return (paused ? kept : null) ?? live;
}
