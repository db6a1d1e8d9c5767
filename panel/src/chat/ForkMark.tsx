import { useConversations } from "../api/queries";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import styles from "./list.module.css";

/** Tells that a conversation was forked, and from which. */
export function ForkMark({ origin }: { origin: string }) {
  const t = useWords();
  const { data } = useConversations();
  const title = data?.pages.flatMap((page) => page.items).find((each) => each.id === origin)?.title;
  const said = title === undefined ? t.chat.forkedFrom : t.chat.forkOf(visible(title) || t.app.untitled);
  return (
    <span className={styles.fork} role="img" aria-label={said} title={said}>
      <svg viewBox="0 0 16 16" aria-hidden="true">
        <circle cx="4" cy="3" r="1.75" />
        <circle cx="12" cy="3" r="1.75" />
        <circle cx="8" cy="13" r="1.75" />
        <path d="M4 4.75V6a2 2 0 0 0 2 2h4a2 2 0 0 0 2-2V4.75M8 8v3.25" />
      </svg>
    </span>
  );
}
