import type { CardReply } from "../api/schema";
import { Card } from "../cards/Card";
import { clock } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import styles from "./operator.module.css";

/** What was asked of people in a turn, and what they said. */
export function Decisions({ cards }: { cards: readonly CardReply[] }) {
  const t = useWords();
  if (cards.length === 0) return null;
  return (
    <section className={styles.section}>
      <h2>{t.turns.cards}</h2>
      {cards.map((card) =>
        card.state === "opened" ? <Card key={card.id} card={card} /> : <Past key={card.id} card={card} />,
      )}
    </section>
  );
}

function Past({ card }: { card: CardReply }) {
  const t = useWords();
  return (
    <p className={styles.past}>
      <span>
        {t.card[card.kind]} {card.tool && <code>{visible(card.tool)}</code>}
      </span>
      {card.decision ? (
        <span>
          {t.tool.decided(t.card.decisions[card.decision], visible(card.decided_by ?? ""))}
          {card.decided_at && `, ${clock(card.decided_at, t.locale)}`}
          {card.decided_arguments && ` · ${t.tool.edited}`}
        </span>
      ) : (
        <span>{t.card.closed}</span>
      )}
      {card.note && <q>{visible(card.note)}</q>}
    </p>
  );
}
