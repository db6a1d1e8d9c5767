import type { AttemptReply } from "../api/schema";
import { Wide } from "../app/Wide";
import { clock } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { Elapsed } from "./Elapsed";
import styles from "./operator.module.css";

export function Attempts({ attempts }: { attempts: readonly AttemptReply[] }) {
  const t = useWords();
  if (attempts.length === 0) return null;
  return (
    <section className={styles.section}>
      <h2>{t.turns.attempts}</h2>
      <Wide className={styles.wide} label={t.turns.attempts}>
        <table>
          <thead>
            <tr>
              <th className={styles.number}>{t.turns.number}</th>
              <th>{t.turns.began}</th>
              <th className={styles.number}>{t.turns.duration}</th>
              <th>{t.turns.outcome}</th>
              <th>{t.turns.worker}</th>
              <th>{t.turns.error}</th>
            </tr>
          </thead>
          <tbody>
            {attempts.map((each) => (
              <tr key={each.number}>
                <td className={styles.number}>{each.number}</td>
                <td>{clock(each.started_at, t.locale)}</td>
                <td className={styles.number}>
                  <Elapsed from={each.started_at} to={each.ended_at} />
                </td>
                <td>{each.outcome ? (t.turns.outcomes[each.outcome] ?? each.outcome) : t.status.running}</td>
                <td>
                  <code>{visible(each.owner)}</code>
                </td>
                <td>{each.error ? visible(each.error) : ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
    </section>
  );
}
