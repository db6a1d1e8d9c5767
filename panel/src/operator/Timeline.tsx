import { useEffect, useState } from "react";
import { ENDED } from "../api/queries";
import type { TurnReply } from "../api/schema";
import { duration } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { type Bar, type Layout, layout } from "./layout";
import styles from "./operator.module.css";

const TICK_MS = 1_000;

/** Attempts in the first row, tool calls below; time in which nothing ran is folded. */
export function Timeline({ turn }: { turn: TurnReply }) {
  const t = useWords();
  const live = !ENDED.has(turn.status);
  const now = useNow(live);
  const drawn = layout(turn, now);
  return (
    <section className={styles.section} aria-label={t.turns.timeline}>
      <h2>{t.turns.timeline}</h2>
      <ol className={styles.timeline} style={{ gridTemplateRows: `repeat(${drawn.rows}, 1.6rem)` }}>
        {drawn.bars.map((bar) => (
          <BarView key={bar.key} bar={bar} drawn={drawn} />
        ))}
        {drawn.gaps.map((gap) => (
          <li
            key={gap.from}
            className={styles.gap}
            style={{ insetInlineStart: percent(gap.from, drawn), width: percent(gap.to - gap.from, drawn) }}
            title={t.turns.idle(duration(gap.milliseconds, t.locale))}
          >
            <span className="unseen">{t.turns.idle(duration(gap.milliseconds, t.locale))}</span>
          </li>
        ))}
        {live && <li className={styles.now}>{t.turns.now}</li>}
      </ol>
    </section>
  );
}

function BarView({ bar, drawn }: { bar: Bar; drawn: Layout }) {
  const t = useWords();
  const names = { attempt: t.turns.attempt(Number(bar.name)), call: visible(bar.name), parked: t.turns.parked };
  const label = names[bar.kind];
  return (
    <li className={styles.track} style={{ gridRow: bar.row + 1 }}>
      <span
        className={styles.bar}
        data-kind={bar.kind}
        data-state={bar.state}
        style={{ marginInlineStart: percent(bar.from, drawn), width: percent(bar.to - bar.from, drawn) }}
        title={label}
      />
      <span className={styles.label}>{label}</span>
    </li>
  );
}

function percent(part: number, drawn: Layout): string {
  return `${Math.min(100, (100 * part) / drawn.length)}%`;
}

function useNow(live: boolean): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!live) return;
    const timer = setInterval(() => setNow(Date.now()), TICK_MS);
    return () => clearInterval(timer);
  }, [live]);
  return now;
}
