import { Link, useSearchParams } from "wouter";
import { useCounts } from "../api/queries";
import type { TurnStatus } from "../api/schema";
import { count } from "../words/figures";
import { useWords } from "../words/words";
import { changed } from "./filters";
import styles from "./operator.module.css";

/** How many turns there are in each state, as it is now; each leads to them, and back to all. */
export function Counts({ agent, paused }: { agent: string | undefined; paused: boolean }) {
  const t = useWords();
  const [search] = useSearchParams();
  const { data } = useCounts(agent, paused);
  const chosen = search.get("status");
  if (!data) return null;
  return (
    <ul className={styles.counts} aria-label={t.turns.status}>
      {(Object.entries(data) as [TurnStatus, number][]).map(([status, value]) => (
        <li key={status}>
          <Link
            href={`/turns?${changed(search, "status", status === chosen ? "" : status)}`}
            className="pill"
            data-status={value > 0 ? status : undefined}
            aria-current={status === chosen ? "true" : undefined}
          >
            {t.turns.onlyStatus(t.status[status], count(value, t.locale))}
          </Link>
        </li>
      ))}
    </ul>
  );
}
