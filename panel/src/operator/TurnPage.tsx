import { Link } from "wouter";
import { ApiError } from "../api/client";
import { useTurn } from "../api/queries";
import { AgentAway } from "../app/AgentAway";
import { Awaiting } from "../app/Awaiting";
import { Nothing, Refused } from "../app/Failed";
import { FaultText } from "../app/FaultText";
import { ReachContext, useReach } from "../app/reach";
import { StatusPill } from "../app/StatusDot";
import { useTitle } from "../app/useTitle";
import { LongText } from "../chat/LongText";
import { showJson } from "../fold/json";
import { failureOf } from "../words/faults";
import { useWords } from "../words/words";
import { Attempts } from "./Attempts";
import { Calls } from "./Calls";
import { Decisions } from "./Decisions";
import { History } from "./History";
import styles from "./operator.module.css";
import { Timeline } from "./Timeline";
import { TurnControls } from "./TurnControls";
import { TurnFacts } from "./TurnFacts";

/** Everything that is recorded of one turn. */
export default function TurnPage({ id }: { id: string }) {
  const t = useWords();
  useTitle(`${t.turns.turn} ${id.slice(0, 8)}`);
  const { data: turn, error, failureReason } = useTurn(id);
  const reach = useReach(turn?.agent);
  if (error instanceof ApiError && error.status === 404) {
    return <Nothing why={turn ? t.turns.gone : t.turns.missing} href="/turns" way={t.turns.allTurns} />;
  }
  if (!turn) return error ? <Refused error={error} /> : <Awaiting why={failureReason} />;
  return (
    <ReachContext value={reach}>
      <div className={styles.page}>
        <header className={styles.header}>
          <h1>
            {t.turns.turn} <code>{turn.id.slice(0, 8)}</code>
          </h1>
          <StatusPill status={turn.status} />
          <AgentAway reach={reach} />
          <Link href={`/c/${turn.conversation}`}>{t.card.openConversation}</Link>
          <TurnControls turn={turn} />
        </header>
        {turn.error && (
          <p className={styles.failure}>
            <code>{turn.error.code}</code> <FaultText fault={failureOf(turn.error, t)} />
          </p>
        )}
        <TurnFacts turn={turn} />
        <Timeline turn={turn} />
        <Attempts attempts={turn.attempts} />
        <Calls calls={turn.calls} />
        <Decisions cards={turn.cards} />
        <History turn={turn} />
        <details>
          <summary>{t.turns.raw}</summary>
          <LongText text={showJson(turn)} name={`${turn.id}.json`} />
        </details>
      </div>
    </ReachContext>
  );
}
