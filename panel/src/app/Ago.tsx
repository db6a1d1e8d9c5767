import { useEffect, useState } from "react";
import { ago } from "../words/figures";
import { useWords } from "../words/words";

const STEP_MS = 20_000;

/** How long ago something was, also while nothing else changes. */
export function Ago({ at }: { at: string }) {
  const { locale } = useWords();
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), STEP_MS);
    return () => clearInterval(timer);
  }, []);
  return ago(at, locale);
}
