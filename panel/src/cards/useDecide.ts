import { useMutation, useQueryClient } from "@tanstack/react-query";
import { ApiError, call } from "../api/client";
import { keys } from "../api/queries";
import type { CardReply, DecidedReply, DecisionKind, DecisionRequest } from "../api/schema";
import { notify } from "../app/notify";
import type { Words } from "../words/en";
import { clock } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";

export type Decision = DecisionRequest & { decision: DecisionKind };

/** The first decision counts; who comes second is told who decided, when and what. Whatever the server answers, what waits is
 * read again. */
export function useDecide(card: CardReply) {
  const t = useWords();
  const client = useQueryClient();
  return useMutation<DecidedReply, Error, Decision>({
    mutationFn: (body) => call<DecidedReply>("POST", `api/approvals/${encodeURIComponent(card.id)}`, { body }),
    onError: (error) => {
      if (wasLate(error)) notify(lateText(error, t));
    },
    onSettled: async () => {
      await Promise.all([
        client.invalidateQueries({ queryKey: keys.approvals }),
        client.invalidateQueries({ queryKey: keys.turn(card.turn) }),
      ]);
    },
  });
}

export function wasLate(error: Error | null): error is ApiError {
  return error instanceof ApiError && error.code === "APPROVAL_DECIDED";
}

function lateText({ envelope }: ApiError, t: Words): string {
  const { decision, decided_by: by, decided_at: at } = envelope;
  const known = Object.entries(t.card.decisions).find(([name]) => name === decision)?.[1];
  return t.card.lost(known ?? t.app.unknown, visible(by ?? t.app.unknown), at ? clock(at, t.locale) : t.app.unknown);
}

export type Deciding = ReturnType<typeof useDecide>;
