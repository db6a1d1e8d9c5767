import { useState } from "react";
import { Link, useRoute } from "wouter";
import type { ConversationSummary } from "../api/schema";
import { Ago } from "../app/Ago";
import { Menu } from "../app/Menu";
import { StatusDot } from "../app/StatusDot";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { DeleteDialog, RenameDialog } from "./ConversationDialogs";
import { ForkMark } from "./ForkMark";
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
          {conversation.forked_from && <ForkMark origin={conversation.forked_from.conversation} />}
          {status && SHOWN.has(status) && <StatusDot status={status} />}
          <Ago at={conversation.updated_at} />
        </span>
      </Link>
      <Menu className={styles.menu} summary="⋯" label={t.list.actions(title)}>
        <button type="button" onClick={() => setAsking("rename")}>
          {t.list.rename}
        </button>
        <button type="button" onClick={() => setAsking("delete")}>
          {t.list.delete}
        </button>
      </Menu>
      {asking === "rename" && <RenameDialog conversation={conversation} onClose={() => setAsking(null)} />}
      {asking === "delete" && <DeleteDialog conversation={conversation} onClose={() => setAsking(null)} />}
    </li>
  );
}
