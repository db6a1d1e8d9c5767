import { useAgents, useMe, useReady, useServer } from "../api/queries";
import type { AgentReply, DatabaseReply, TurnStatus } from "../api/schema";
import { AgentAway } from "../app/AgentAway";
import { Awaiting } from "../app/Awaiting";
import { Refused } from "../app/Failed";
import { useTitle } from "../app/useTitle";
import { bytes, count, duration } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { ForgetAgent } from "./ForgetAgent";
import { type Metrics, turnCounts, useMetrics } from "./metrics";
import styles from "./operator.module.css";
import { Fact } from "./TurnFacts";
import { McpServers, Workers } from "./Workers";

/** Whether the server is well, what it hosts, and its numbers. */
export default function ServerPage() {
  const t = useWords();
  useTitle(t.server.title);
  const { data: ready, error, failureReason } = useReady();
  const { data: agents } = useAgents();
  const { data: server, error: serverError } = useServer();
  const { data: metrics } = useMetrics();
  const { data: me } = useMe();
  const away = agents?.items.some((each) => each.reach !== "reachable") ?? false;
  return (
    <div className={styles.page}>
      <header className={styles.header}>
        <h1>{t.server.title}</h1>
        {ready && (
          <span className="pill" data-status={PILLS[ready.status]}>
            {t.server.ready[ready.status]}
          </span>
        )}
      </header>
      <Refused error={error ?? serverError} />
      {!ready && !error && <Awaiting why={failureReason} />}
      <section className={styles.section}>
        <h2>{t.server.health}</h2>
        {ready?.reasons?.length === 0 && !away && <p>{t.server.fine}</p>}
        {server?.nats && <p>{t.server.nats[server.nats]}</p>}
        <Sentences title={t.server.reasons} items={ready?.reasons} />
        <Sentences title={t.server.notices} items={ready?.notices} />
      </section>
      <section className={styles.section}>
        <h2>{t.server.agents}</h2>
        {agents?.items.length === 0 && <p className={styles.hint}>{t.chat.noAgent}</p>}
        {agents?.items.map((agent) => (
          <Agent key={agent.name} agent={agent} mayForget={me?.role === "operator"} />
        ))}
      </section>
      {server && <Workers workers={server.workers} away={away} />}
      {server && <McpServers servers={server.mcp_servers} away={away} />}
      {server?.database && <Database database={server.database} />}
      {metrics && <Numbers metrics={metrics} />}
      {me && (
        <section className={styles.section}>
          <h2>{t.server.you}</h2>
          <p>
            {visible(me.name)} · {t.server.role[me.role]}
          </p>
        </section>
      )}
    </div>
  );
}

const PILLS = { ready: "completed", degraded: "parked", unready: "failed" } as const;

function Sentences({ title, items }: { title: string; items: readonly string[] | null | undefined }) {
  if (!items || items.length === 0) return null;
  return (
    <>
      <h3>{title}</h3>
      <ul className={styles.sentences}>
        {items.map((each) => (
          <li key={each}>{visible(each)}</li>
        ))}
      </ul>
    </>
  );
}

function Agent({ agent, mayForget }: { agent: AgentReply; mayForget: boolean }) {
  const t = useWords();
  return (
    <dl className={styles.facts}>
      <Fact name={t.turns.agent}>
        <bdi>{visible(agent.name)}</bdi>
        {agent.default && ` (${t.server.standard})`} <AgentAway reach={agent.reach} />{" "}
        {mayForget && agent.reach === "unreachable" && <ForgetAgent agent={agent.name} />}
      </Fact>
      {agent.model && <Fact name={t.server.model}>{visible(agent.model)}</Fact>}
      {agent.uncovered_tools.length > 0 && (
        <Fact name={t.server.uncovered}>{agent.uncovered_tools.map(visible).join(", ")}</Fact>
      )}
    </dl>
  );
}

function Database({ database }: { database: DatabaseReply }) {
  const t = useWords();
  return (
    <section className={styles.section}>
      <h2>{t.server.database}</h2>
      <dl className={styles.facts}>
        <Fact name={t.server.size}>{bytes(database.bytes, t.locale)}</Fact>
        <Fact name={t.server.wal}>{bytes(database.wal_bytes, t.locale)}</Fact>
        <Fact name={t.server.path}>
          <code>{visible(database.path)}</code>
        </Fact>
      </dl>
    </section>
  );
}

function Numbers({ metrics }: { metrics: Metrics }) {
  const t = useWords();
  const value = (name: string) => metrics.get(`perdure_${name}`) ?? 0;
  return (
    <section className={styles.section}>
      <h2>{t.server.numbers}</h2>
      <dl className={styles.facts}>
        {turnCounts(metrics).map(([status, number]) => (
          <Fact key={status} name={t.server.active(t.status[status as TurnStatus])}>
            {count(number, t.locale)}
          </Fact>
        ))}
        <Fact name={t.server.oldest}>{duration(value("oldest_queued_seconds") * 1_000, t.locale)}</Fact>
        <Fact name={t.server.streams}>{count(value("streams_open"), t.locale)}</Fact>
      </dl>
    </section>
  );
}
