import type { TurnStatus } from "../api/schema";
import { useWords } from "../words/words";

export function StatusDot({ status }: { status: TurnStatus }) {
  const t = useWords();
  return (
    <span className="dot" data-status={status} role="img" aria-label={t.status[status]} title={t.status[status]} />
  );
}

export function StatusPill({ status }: { status: TurnStatus }) {
  const t = useWords();
  return (
    <span className="pill" data-status={status}>
      {t.status[status]}
    </span>
  );
}
