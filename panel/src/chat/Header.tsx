import { useContext } from "react";
import { Link } from "wouter";
import { type Transcript, useConversations } from "../api/queries";
import type { TurnSummary } from "../api/schema";
import { address } from "../app/base";
import { Menu } from "../app/Menu";
import { ReachContext } from "../app/reach";
import { StatusPill } from "../app/StatusDot";
import { useTitle } from "../app/useTitle";
import type { LineState } from "../stream/connection";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import styles from "./chat.module.css";
import { ForkMark } from "./ForkMark";
import { Line } from "./Line";

interface Props {
  id: string;
  transcript: Transcript | undefined;
  line: LineState;
  current: TurnSummary | undefined;
}

export function Header({ id, transcript, line, current }: Props) {
  const t = useWords();
  const { data: list } = useConversations();
  const reach = useContext(ReachContext);
  // The list hears of a new title at once.
  const title = list?.pages.flatMap((page) => page.items).find((each) => each.id === id)?.title ?? transcript?.title;
  const exported = (format: string) => address(`api/conversations/${encodeURIComponent(id)}/export?format=${format}`);
  useTitle(title === undefined ? undefined : visible(title) || t.app.untitled);
  return (
    <header className={styles.header}>
      <h1>
        <bdi>{title === undefined ? "…" : visible(title) || t.app.untitled}</bdi>
      </h1>
      {current && <StatusPill status={current.status} />}
      {transcript?.forked_from && (
        <Link href={`/c/${transcript.forked_from.conversation}`} className={styles.origin}>
          <ForkMark origin={transcript.forked_from.conversation} />
        </Link>
      )}
      <Line state={line} reach={reach} />
      <span className={styles.tools}>
        {current && <Link href={`/turns/${current.id}`}>{t.chat.details}</Link>}
        <Menu className={styles.export} summary={t.chat.exportAs}>
          <a href={exported("markdown")} download>
            {t.chat.exportMarkdown}
          </a>
          {reach === "reachable" ? (
            <a href={exported("jsonl")} download>
              {t.chat.exportJsonl}
            </a>
          ) : (
            <span className={styles.later}>{t.chat.exportLater}</span>
          )}
        </Menu>
      </span>
    </header>
  );
}
