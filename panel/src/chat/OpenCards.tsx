import type { CardReply } from "../api/schema";
import { Card } from "../cards/Card";

/** What the current turn waits for, at the end of the transcript. */
export function OpenCards({ cards }: { cards: readonly CardReply[] | undefined }) {
  return (cards ?? []).filter((each) => each.state === "opened").map((each) => <Card key={each.id} card={each} />);
}
