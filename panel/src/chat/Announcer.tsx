import { useEffect, useRef, useState } from "react";
import { ACTIVE } from "../api/queries";
import type { TurnSummary } from "../api/schema";
import { useWords } from "../words/words";
import { useOutbox } from "./outbox";

/** Says to a screen reader that an answer is complete, or that a decision is needed; not each word as it comes. */
export function Announcer({ id, current }: { id: string; current: TurnSummary | undefined }) {
  const t = useWords();
  const sent = useOutbox(id);
  const ours = sent.some((each) => each.turn === current?.id);
  const before = useRef(current?.status);
  const [said, setSaid] = useState("");
  const status = current?.status;
  useEffect(() => {
    const was = before.current;
    before.current = status;
    const began = was === undefined ? ours : ACTIVE.has(was);
    if (!status || was === status || !began) return;
    if (status === "parked") setSaid(t.chat.asks);
    else if (status === "completed") setSaid(t.chat.arrived);
    else setSaid(ACTIVE.has(status) ? "" : t.status[status]);
  }, [status, ours, t]);
  return (
    <p className="unseen" role="status" aria-live="polite">
      {said}
    </p>
  );
}
