import { useEffect, useRef, useState } from "react";
import { ACTIVE } from "../api/queries";
import type { TurnSummary } from "../api/schema";
import { useWords } from "../words/words";

/** Says to a screen reader that an answer is complete, or that a decision is needed; not each word as it comes. */
export function Announcer({ current }: { current: TurnSummary | undefined }) {
  const t = useWords();
  const before = useRef(current?.status);
  const [said, setSaid] = useState("");
  const status = current?.status;
  useEffect(() => {
    const was = before.current;
    before.current = status;
    if (!was || !status || was === status || !ACTIVE.has(was)) return;
    if (status === "parked") setSaid(t.chat.asks);
    else if (status === "completed") setSaid(t.chat.arrived);
    else setSaid(ACTIVE.has(status) ? "" : t.status[status]);
  }, [status, t]);
  return (
    <p className="unseen" role="status" aria-live="polite">
      {said}
    </p>
  );
}
