import { Link } from "wouter";
import type { TurnSummary } from "../api/schema";
import { StatusPill } from "../app/StatusDot";
import { Wide } from "../app/Wide";
import { between, count, moment } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import styles from "./operator.module.css";

export function TurnsTable({ turns }: { turns: readonly TurnSummary[] }) {
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
            <th>{t.turns.attempts}</th>
            <th>{t.turns.duration}</th>
            <th>{t.turns.tokens}</th>
            <th>{t.turns.why}</th>
            <th>{t.turns.conversation}</th>
          </tr>
        </thead>
        <tbody>
          {turns.map((turn) => (
            <Row key={turn.id} turn={turn} />
          ))}
        </tbody>
      </table>
    </Wide>
  );
}

function Row({ turn }: { turn: TurnSummary }) {
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
        <bdi>{visible(turn.agent)}</bdi>
      </td>
      <td className={styles.number}>{turn.attempt_count}</td>
      <td className={styles.number}>{between(turn.accepted_at, turn.ended_at, t.locale)}</td>
      <td className={styles.number}>{count(turn.usage.total_tokens ?? 0, t.locale)}</td>
      <td>{turn.reason ? visible(turn.reason) : ""}</td>
      <td>
        <Link href={`/c/${turn.conversation}`}>{turn.conversation.slice(0, 8)}</Link>
      </td>
    </tr>
  );
}
