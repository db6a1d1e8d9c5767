import type { TurnStatus } from "../api/schema";
import { count } from "../words/figures";
import { useWords } from "../words/words";
import { turnCounts, useMetrics } from "./metrics";
import styles from "./operator.module.css";

/** How many turns have not ended, by status, as it is now. */
export function Counts({ paused }: { paused: boolean }) {
  const t = useWords();
  const { data } = useMetrics(paused);
  if (!data) return null;
  return (
    <ul className={styles.counts}>
      {turnCounts(data).map(([status, value]) => (
        <li key={status} className="pill" data-status={value > 0 ? status : undefined}>
          {t.status[status as TurnStatus]} {count(value, t.locale)}
        </li>
      ))}
    </ul>
  );
}
