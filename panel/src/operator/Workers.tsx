import type { McpReply, WorkerReply } from "../api/schema";
import { Wide } from "../app/Wide";
import { ago } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import styles from "./operator.module.css";

/** The processes that drive turns. `away`: some agents do not answer, and theirs are missing. */
export function Workers({ workers, away }: { workers: readonly WorkerReply[]; away: boolean }) {
  const t = useWords();
  return (
    <section className={styles.section}>
      <h2>{t.server.workers}</h2>
      {away && <p className={styles.hint}>{t.server.awayWorkers}</p>}
      {workers.length === 0 && !away && <p className={styles.hint}>{t.server.noWorkers}</p>}
      {workers.length > 0 && <WorkersTable workers={workers} />}
    </section>
  );
}

function WorkersTable({ workers }: { workers: readonly WorkerReply[] }) {
  const t = useWords();
  return (
    <Wide className={styles.wide} label={t.server.workers}>
      <table>
        <thead>
          <tr>
            <th>{t.server.host}</th>
            <th className={styles.number}>{t.server.pid}</th>
            <th>{t.server.version}</th>
            <th>{t.server.since}</th>
            <th className={styles.number}>{t.server.drives}</th>
            <th>{t.turns.status}</th>
          </tr>
        </thead>
        <tbody>
          {workers.map((each) => (
            <tr key={each.owner ?? each.started_at}>
              <td>{visible(each.host ?? "–")}</td>
              <td className={styles.number}>{each.pid ?? "–"}</td>
              <td>{each.version}</td>
              <td>{ago(each.started_at, t.locale)}</td>
              <td className={styles.number}>{each.running}</td>
              <td>{each.draining ? t.server.draining : t.server.serving}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Wide>
  );
}

const PILLS = { connected: "completed", idle: "waiting", failing: "failed" } as const;

/** One that fails takes nothing but its own tools away. */
export function McpServers({ servers, away }: { servers: readonly McpReply[]; away: boolean }) {
  const t = useWords();
  return (
    <section className={styles.section}>
      <h2>{t.server.mcp}</h2>
      {away && <p className={styles.hint}>{t.server.awayMcp}</p>}
      {servers.length === 0 && !away && <p className={styles.hint}>{t.server.noMcp}</p>}
      {servers.map((each) => (
        <p key={`${each.agent}/${each.name}`} className={styles.past}>
          <code>{visible(each.name)}</code>
          <span className="pill" data-status={PILLS[each.state]}>
            {t.server.mcpStates[each.state]}
          </span>
          <span className={styles.hint}>
            {visible(each.agent)} · {t.server.tools(each.tools)}
          </span>
          {each.problem && <span className="error">{visible(each.problem)}</span>}
        </p>
      ))}
    </section>
  );
}
