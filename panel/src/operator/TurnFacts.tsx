import type { ReactNode } from "react";
import type { TurnReply } from "../api/schema";
import { count, duration, moment } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { Elapsed } from "./Elapsed";
import styles from "./operator.module.css";
import { Reason } from "./Reason";

export function TurnFacts({ turn }: { turn: TurnReply }) {
  const t = useWords();
  const { spent, usage } = turn;
  return (
    <dl className={styles.facts}>
      <Fact name={t.turns.agent}>
        <bdi>{visible(turn.agent)}</bdi>
      </Fact>
      <Fact name={t.turns.owner}>
        <bdi>{visible(turn.owner)}</bdi>
      </Fact>
      <Fact name={t.turns.accepted}>{moment(turn.accepted_at, t.locale)}</Fact>
      <Fact name={t.turns.duration}>
        <Elapsed from={turn.accepted_at} to={turn.ended_at} />
      </Fact>
      <Fact name={t.turns.worked}>
        <Worked turn={turn} />
      </Fact>
      <Fact name={t.turns.steps}>{count(turn.supersteps, t.locale)}</Fact>
      <Fact name={t.turns.modelCalls}>{count(spent.model_calls, t.locale)}</Fact>
      <Fact name={t.turns.toolCalls}>{count(spent.tool_calls, t.locale)}</Fact>
      <Fact name={t.turns.tokens}>{count(usage.total_tokens ?? 0, t.locale)}</Fact>
      {turn.reason && (
        <Fact name={t.turns.why}>
          <Reason turn={turn} />
        </Fact>
      )}
    </dl>
  );
}

/** Time in attempts: those that ended, and the one that goes on. */
function Worked({ turn }: { turn: TurnReply }) {
  const t = useWords();
  const before = turn.spent.seconds * 1_000;
  const open = turn.attempts.find((each) => each.ended_at === null);
  if (!open) return duration(before, t.locale);
  return <Elapsed from={new Date(Date.parse(open.started_at) - before).toISOString()} to={null} />;
}

export function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
