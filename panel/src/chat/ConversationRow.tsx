import { useState } from "react";
import { Link, useRoute } from "wouter";
import type { ConversationSummary } from "../api/schema";
import { StatusDot } from "../app/StatusDot";
import { ago } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { DeleteDialog, RenameDialog } from "./ConversationDialogs";
import styles from "./list.module.css";

const SHOWN = new Set(["running", "queued", "parked", "failed", "interrupted"]);

export function ConversationRow({ conversation }: { conversation: ConversationSummary }) {
  const t = useWords();
  const [here] = useRoute(`/c/${conversation.id}`);
  const [asking, setAsking] = useState<"rename" | "delete" | null>(null);
  const title = visible(conversation.title) || t.app.untitled;
  const { status } = conversation;
  return (
    <li className={styles.row} data-here={here}>
      <Link href={`/c/${conversation.id}`} aria-current={here ? "page" : undefined}>
        <bdi className={styles.title}>{title}</bdi>
        <span className={styles.when}>
          {status && SHOWN.has(status) && <StatusDot status={status} />}
          {ago(conversation.updated_at, t.locale)}
        </span>
      </Link>
      <details className={styles.menu} onBlur={closeOutside}>
        <summary aria-label={t.list.actions(title)}>⋯</summary>
        <div className={styles.choices}>
          <button type="button" onClick={() => setAsking("rename")}>
            {t.list.rename}
          </button>
          <button type="button" onClick={() => setAsking("delete")}>
            {t.list.delete}
          </button>
        </div>
      </details>
      {asking === "rename" && <RenameDialog conversation={conversation} onClose={() => setAsking(null)} />}
      {asking === "delete" && <DeleteDialog conversation={conversation} onClose={() => setAsking(null)} />}
    </li>
  );
}

function closeOutside(event: React.FocusEvent<HTMLDetailsElement>): void {
  if (!event.currentTarget.contains(event.relatedTarget)) event.currentTarget.open = false;
}
