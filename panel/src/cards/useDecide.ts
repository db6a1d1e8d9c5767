import { useMutation, useQueryClient } from "@tanstack/react-query";
import { call } from "../api/client";
import { keys } from "../api/queries";
import type { CardReply, DecidedReply, DecisionKind, DecisionRequest } from "../api/schema";

export type Decision = DecisionRequest & { decision: DecisionKind };

/** The first decision counts. Whatever the server answers, what waits is read again. */
export function useDecide(card: CardReply) {
  const client = useQueryClient();
  return useMutation<DecidedReply, Error, Decision>({
    mutationFn: (body) => call<DecidedReply>("POST", `api/approvals/${encodeURIComponent(card.id)}`, { body }),
    onSettled: async () => {
      await Promise.all([
        client.invalidateQueries({ queryKey: keys.approvals }),
        client.invalidateQueries({ queryKey: keys.turn(card.turn) }),
      ]);
    },
  });
}

export type Deciding = ReturnType<typeof useDecide>;
