import { useVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useLayoutEffect, useMemo, useRef } from "react";
import type { TurnSummary } from "../api/schema";
import { useWords } from "../words/words";
import styles from "./chat.module.css";
import { ItemView } from "./ItemView";
import type { Item } from "./items";
import { usePinned } from "./usePinned";

interface Props {
  items: readonly Item[];
  busy: boolean;
  turns: readonly TurnSummary[];
  /** What stands below the last item. */
  children: ReactNode;
}

const ESTIMATE = 90;
const BEYOND = 6;

/** The log of a conversation: only what is near the window is in the document, and it stays at its end while a person is there. */
export function Transcript({ items, busy, turns, children }: Props) {
  const t = useWords();
  const scroller = useRef<HTMLDivElement>(null);
  const byId = useMemo(() => new Map(turns.map((turn) => [turn.id, turn])), [turns]);
  const rows = useVirtualizer({
    count: items.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ESTIMATE,
    overscan: BEYOND,
    getItemKey: (n) => items[n]?.key ?? n,
  });
  const shown = rows.getVirtualItems();
  const { pinned, onScroll, toEnd } = usePinned(scroller);
  useLayoutEffect(() => {
    if (pinned.current) toEnd();
  });
  const above = shown[0]?.start ?? 0;
  const below = rows.getTotalSize() - (shown.at(-1)?.end ?? 0);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
    <div ref={scroller} className={styles.scroller} onScroll={onScroll} tabIndex={0}>
      <div className={styles.log} role="log" aria-label={t.chat.log} aria-busy={busy} aria-live="off">
        <div style={{ height: above }} />
        {shown.map(({ key, index }) => {
          const item = items[index];
          return item ? (
            <div key={key} data-index={index} data-kind={item.kind} ref={rows.measureElement} className={styles.item}>
              <ItemView item={item} turn={item.kind === "end" ? byId.get(item.turn) : undefined} />
            </div>
          ) : null;
        })}
        <div style={{ height: Math.max(0, below) }} />
        {children}
      </div>
      <JumpButton pinned={pinned.current} toEnd={toEnd} />
    </div>
  );
}

function JumpButton({ pinned, toEnd }: { pinned: boolean; toEnd(): void }) {
  const t = useWords();
  if (pinned) return null;
  return (
    <button type="button" className={styles.jump} onClick={toEnd}>
      ↓ {t.chat.jump}
    </button>
  );
}
