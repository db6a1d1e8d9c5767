import { useMutation, useQueryClient } from "@tanstack/react-query";
import { ApiError, call } from "../api/client";
import { keys, useMe } from "../api/queries";
import { untilAnswered } from "../api/repeating";
import { reread } from "../api/reread";
import type { CardReply, DecidedReply, DecisionKind, DecisionRequest } from "../api/schema";
import { drafts } from "../app/drafts";
import { notify } from "../app/notify";
import type { Words } from "../words/en";
import { clock } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";

export type Decision = DecisionRequest & { decision: DecisionKind };

/** The first decision counts; who comes second is told who decided, when and what. A decision that a server did not answer is
 * sent again until one does: it counts once. Whatever the server answers, what waits is read again. */
export function useDecide(card: CardReply) {
  const t = useWords();
  const client = useQueryClient();
  const { data: me } = useMe();
  return useMutation<DecidedReply, Error, Decision>({
    ...untilAnswered,
    mutationFn: (body) => call<DecidedReply>("POST", `api/approvals/${encodeURIComponent(card.id)}`, { body }),
    onSuccess: () => drafts.forget(draftOf(card)),
    onError: (error, body) => {
      if (!wasLate(error)) return;
      drafts.forget(draftOf(card));
      if (!isOwn(error, body, me?.name)) notify(lateText(error, t));
    },
    onSettled: () => {
      void reread(client, keys.approvals);
      void reread(client, keys.turn(card.turn));
    },
  });
}

/** Where what a person has begun to write on a card is kept until it is decided. */
export function draftOf(card: CardReply): string {
  return `card ${card.id} `;
}

export function wasLate(error: Error | null): error is ApiError {
  return error instanceof ApiError && error.code === "APPROVAL_DECIDED";
}

/** The same decision of the same person: it was taken, and its answer was lost. */
function isOwn({ envelope }: ApiError, body: Decision, name: string | undefined): boolean {
  return envelope.decided_by === name && envelope.decision === body.decision;
}

function lateText({ envelope }: ApiError, t: Words): string {
  const { decision, decided_by: by, decided_at: at } = envelope;
  const known = Object.entries(t.card.decisions).find(([name]) => name === decision)?.[1];
  return t.card.lost(known ?? t.app.unknown, visible(by ?? t.app.unknown), at ? clock(at, t.locale) : t.app.unknown);
}

export type Deciding = ReturnType<typeof useDecide>;
