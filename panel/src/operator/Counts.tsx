import { useCounts } from "../api/queries";
import type { TurnStatus } from "../api/schema";
import { count } from "../words/figures";
import { useWords } from "../words/words";
import styles from "./operator.module.css";

/** How many turns there are in each state, as it is now. */
export function Counts({ agent, paused }: { agent: string | undefined; paused: boolean }) {
  const t = useWords();
  const { data } = useCounts(agent, paused);
  if (!data) return null;
  return (
    <ul className={styles.counts}>
      {(Object.entries(data) as [TurnStatus, number][]).map(([status, value]) => (
        <li key={status} className="pill" data-status={value > 0 ? status : undefined}>
          {t.status[status]} {count(value, t.locale)}
        </li>
      ))}
    </ul>
  );
}
