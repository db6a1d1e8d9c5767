import { Link } from "wouter";
import { useApprovals } from "../api/queries";
import { Awaiting } from "../app/Awaiting";
import { Refused } from "../app/Failed";
import { useTitle } from "../app/useTitle";
import { Card } from "../cards/Card";
import { ago } from "../words/figures";
import { useWords } from "../words/words";
import styles from "./operator.module.css";

/** Everything that waits for a person, oldest first. */
export default function InboxPage() {
  const t = useWords();
  useTitle(t.inbox.title);
  const { data, error, failureReason, hasNextPage, fetchNextPage, isFetchingNextPage } = useApprovals();
  const cards = data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <div className={styles.page}>
      <header className={styles.header}>
        <h1>{t.inbox.title}</h1>
      </header>
      <Refused error={error} />
      {!data && !error && <Awaiting why={failureReason} />}
      {data && cards.length === 0 && (
        <div className="empty">
          <p>{t.inbox.none}</p>
          <p>{t.inbox.hint}</p>
        </div>
      )}
      <div className={styles.cards}>
        {cards.map((card) => (
          <Card key={card.id} card={card}>
            <p className={styles.hint}>
              {t.inbox.since(ago(card.opened_at, t.locale))} ·{" "}
              <Link href={`/c/${card.conversation}`}>{t.card.openConversation}</Link> ·{" "}
              <Link href={`/turns/${card.turn}`}>{t.turns.turn}</Link>
            </p>
          </Card>
        ))}
      </div>
      {hasNextPage && (
        <button
          type="button"
          className={styles.more}
          disabled={isFetchingNextPage}
          onClick={() => void fetchNextPage()}
        >
          {t.app.more}
        </button>
      )}
    </div>
  );
}
