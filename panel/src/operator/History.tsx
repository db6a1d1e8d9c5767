import { useState } from "react";
import type { CheckpointSummary, TurnReply } from "../api/schema";
import { Awaiting } from "../app/Awaiting";
import { Refused } from "../app/Failed";
import { clock } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { CheckpointView } from "./CheckpointView";
import styles from "./operator.module.css";
import { useHistory } from "./useHistory";

/** The checkpoints of a turn's conversation, newest first; those of the turn stand out. */
export function History({ turn }: { turn: TurnReply }) {
  const t = useWords();
  const [open, setOpen] = useState(false);
  const { data, error, failureReason, hasNextPage, fetchNextPage, isFetchingNextPage } = useHistory(
    turn.conversation,
    open,
  );
  const checkpoints = data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <details className={styles.section} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <h2 className={styles.inline}>{t.turns.history}</h2>
      </summary>
      <Refused error={error} />
      {open && !data && !error && <Awaiting why={failureReason} />}
      {checkpoints.map((each) => (
        <Entry key={each.id} turn={turn} checkpoint={each} />
      ))}
      {hasNextPage && (
        <button type="button" disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
          {t.app.more}
        </button>
      )}
    </details>
  );
}

function Entry({ turn, checkpoint }: { turn: TurnReply; checkpoint: CheckpointSummary }) {
  const t = useWords();
  const [open, setOpen] = useState(false);
  return (
    <details
      className={styles.call}
      data-own={checkpoint.turn === turn.id}
      onToggle={(event) => setOpen(event.currentTarget.open)}
    >
      <summary>
        <code>{checkpoint.step ?? "–"}</code>
        <span>{checkpoint.source && t.turns.sources[checkpoint.source]}</span>
        {checkpoint.turn === turn.id && <span className="unseen">{t.turns.own}</span>}
        <span className={styles.hint}>
          {checkpoint.created_at && clock(checkpoint.created_at, t.locale)}
          {` · ${t.turns.messages(checkpoint.message_count)}`}
          {checkpoint.next.length > 0 && ` · ${t.turns.next(checkpoint.next.map(visible).join(", "))}`}
        </span>
      </summary>
      {open && <CheckpointView conversation={turn.conversation} checkpoint={checkpoint} />}
    </details>
  );
}
