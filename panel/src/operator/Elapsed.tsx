import { useEffect, useState } from "react";
import { between } from "../words/figures";
import { useWords } from "../words/words";

const TICK_MS = 1_000;

/** How long it took, or takes so far. */
export function Elapsed({ from, to, still = false }: { from: string; to: string | null; still?: boolean }) {
  const { locale } = useWords();
  const now = useNow(to === null && !still);
  return between(from, to, locale, now);
}

/** The time, every second while it is asked for. */
export function useNow(live: boolean): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!live) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), TICK_MS);
    return () => clearInterval(timer);
  }, [live]);
  return now;
}
