import { useEffect, useState } from "react";
import { serverNow } from "../api/skew";
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
  const [now, setNow] = useState(serverNow);
  useEffect(() => {
    if (!live) return;
    setNow(serverNow());
    const timer = setInterval(() => setNow(serverNow()), TICK_MS);
    return () => clearInterval(timer);
  }, [live]);
  return now;
}
