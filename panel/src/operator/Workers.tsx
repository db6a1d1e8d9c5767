import type { McpReply, WorkerReply } from "../api/schema";
import { Wide } from "../app/Wide";
import { ago } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import styles from "./operator.module.css";

/** The processes that drive turns. */
export function Workers({ workers }: { workers: readonly WorkerReply[] }) {
  const t = useWords();
  return (
    <section className={styles.section}>
      <h2>{t.server.workers}</h2>
      {workers.length === 0 && <p className={styles.hint}>{t.server.noWorkers}</p>}
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
    </section>
  );
}

const PILLS = { connected: "completed", idle: "waiting", failing: "failed" } as const;

/** One that fails takes nothing but its own tools away. */
export function McpServers({ servers }: { servers: readonly McpReply[] }) {
  const t = useWords();
  return (
    <section className={styles.section}>
      <h2>{t.server.mcp}</h2>
      {servers.length === 0 && <p className={styles.hint}>{t.server.noMcp}</p>}
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
