import type { CSSProperties } from "react";
import { ENDED } from "../api/queries";
import type { TurnReply } from "../api/schema";
import { Refused } from "../app/Failed";
import type { Words } from "../words/en";
import { clock, duration } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { useNow } from "./Elapsed";
import { type Bar, type Gap, type Layout, layout } from "./layout";
import { stepsOf } from "./steps";
import styles from "./timeline.module.css";
import { useTraces } from "./useTraces";

/** Attempts, the steps of the graph, tool calls and waits, one a row; time in which nothing ran is folded. */
export function Timeline({ turn }: { turn: TurnReply }) {
  const t = useWords();
  const live = !ENDED.has(turn.status);
  const now = useNow(live);
  const { traces, error } = useTraces(turn);
  const drawn = layout(turn, stepsOf(traces), now);
  if (drawn.bars.length === 0) return <NotBegun live={live} />;
  return (
    <section className={styles.section} aria-label={t.turns.timeline}>
      <h2>{t.turns.timeline}</h2>
      <Refused error={error} />
      <p className={styles.ends}>
        <span>{clock(new Date(drawn.start).toISOString(), t.locale)}</span>
        <span>{live ? t.turns.now : clock(new Date(drawn.end).toISOString(), t.locale)}</span>
      </p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <ol className={styles.timeline} data-live={live} tabIndex={0}>
        {drawn.bars.map((bar) => (
          <Row key={bar.key} bar={bar} drawn={drawn} />
        ))}
        {drawn.gaps.map((gap) => (
          <Fold key={gap.from} gap={gap} drawn={drawn} />
        ))}
      </ol>
      {drawn.hidden > 0 && <p className={styles.ends}>{t.turns.hidden(drawn.hidden)}</p>}
    </section>
  );
}

function NotBegun({ live }: { live: boolean }) {
  const t = useWords();
  return (
    <section className={styles.section} aria-label={t.turns.timeline}>
      <h2>{t.turns.timeline}</h2>
      <p className={styles.none}>{live ? t.turns.notBegun : t.turns.neverBegun}</p>
    </section>
  );
}

function Row({ bar, drawn }: { bar: Bar; drawn: Layout }) {
  const t = useWords();
  const name = nameOf(bar, t);
  return (
    <li className={styles.row} data-kind={bar.kind}>
      <span className={styles.name} title={name}>
        <bdi>{name}</bdi>
      </span>
      <span className={styles.took}>{duration(bar.milliseconds, t.locale)}</span>
      <span className={styles.track} title={t.turns.bars[bar.state]}>
        <span className={styles.bar} data-kind={bar.kind} data-state={bar.state} style={placed(bar, drawn)} />
      </span>
      <span className="unseen">{t.turns.bars[bar.state]}</span>
    </li>
  );
}

function nameOf(bar: Bar, t: Words): string {
  if (bar.kind === "attempt") return t.turns.attempt(Number(bar.name));
  if (bar.kind !== "parked") return visible(bar.name);
  return [visible(bar.name), bar.state === "opened" ? t.turns.waits : t.turns.parked].filter(Boolean).join(": ");
}

function Fold({ gap, drawn }: { gap: Gap; drawn: Layout }) {
  const t = useWords();
  const told = duration(gap.milliseconds, t.locale);
  return (
    <li className={styles.gap} style={placed(gap, drawn)} title={t.turns.idle(told)}>
      <span aria-hidden="true">{told}</span>
      <span className="unseen">{t.turns.idle(told)}</span>
    </li>
  );
}

function placed({ from, to }: { from: number; to: number }, { length }: Layout): CSSProperties {
  return { "--from": from / length, "--share": Math.min(1, (to - from) / length) } as CSSProperties;
}
