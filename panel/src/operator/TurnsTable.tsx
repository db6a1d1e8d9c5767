import { Link } from "wouter";
import type { TurnSummary } from "../api/schema";
import { StatusPill } from "../app/StatusDot";
import { Wide } from "../app/Wide";
import { count, moment } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { Elapsed } from "./Elapsed";
import styles from "./operator.module.css";
import { Reason } from "./Reason";

export function TurnsTable({ turns, paused }: { turns: readonly TurnSummary[]; paused: boolean }) {
  const t = useWords();
  if (turns.length === 0) return null;
  return (
    <Wide className={styles.wide} label={t.turns.title}>
      <table>
        <thead>
          <tr>
            <th>{t.turns.accepted}</th>
            <th>{t.turns.status}</th>
            <th>{t.turns.agent}</th>
            <th>{t.turns.conversation}</th>
            <th className={styles.number}>{t.turns.attempts}</th>
            <th className={styles.number}>{t.turns.duration}</th>
            <th className={styles.number}>{t.turns.tokens}</th>
            <th>{t.turns.why}</th>
          </tr>
        </thead>
        <tbody>
          {turns.map((turn) => (
            <Row key={turn.id} turn={turn} paused={paused} />
          ))}
        </tbody>
      </table>
    </Wide>
  );
}

function Row({ turn, paused }: { turn: TurnSummary; paused: boolean }) {
  const t = useWords();
  return (
    <tr>
      <td>
        <Link href={`/turns/${turn.id}`}>{moment(turn.accepted_at, t.locale)}</Link>
      </td>
      <td>
        <StatusPill status={turn.status} />
      </td>
      <td>
        <bdi className={styles.short} title={visible(turn.agent)}>
          {visible(turn.agent)}
        </bdi>
      </td>
      <td>
        <Link href={`/c/${turn.conversation}`}>{turn.conversation.slice(0, 8)}</Link>
      </td>
      <td className={styles.number}>{turn.attempt_count}</td>
      <td className={styles.number}>
        <Elapsed from={turn.accepted_at} to={turn.ended_at} still={paused} />
      </td>
      <td className={styles.number}>{count(turn.usage.total_tokens ?? 0, t.locale)}</td>
      <td>
        <Reason turn={turn} />
      </td>
    </tr>
  );
}
