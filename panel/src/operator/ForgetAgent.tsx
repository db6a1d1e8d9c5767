import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError, call } from "../api/client";
import { keys } from "../api/queries";
import { Dialog } from "../app/Dialog";
import { ErrorText } from "../app/Failed";
import { visible } from "../words/visible";
import { useWords } from "../words/words";

/** Of an agent that was taken away: a button, and what happens before it does. */
export function ForgetAgent({ agent }: { agent: string }) {
  const t = useWords();
  const [asks, setAsks] = useState(false);
  return (
    <>
      <button type="button" onClick={() => setAsks(true)}>
        {t.server.forget}
      </button>
      {asks && <ForgetDialog agent={agent} onClose={() => setAsks(false)} />}
    </>
  );
}

function ForgetDialog({ agent, onClose }: { agent: string; onClose(): void }) {
  const t = useWords();
  const client = useQueryClient();
  const forget = useMutation({
    mutationFn: () => forgotten(agent),
    onSuccess: onClose,
    // Refused, it may be back, and the list behind this stale.
    onSettled: () => client.invalidateQueries({ queryKey: keys.server }),
  });
  return (
    <Dialog title={t.server.forgetTitle(visible(agent))} onClose={onClose}>
      <p>{t.server.forgetText}</p>
      <p>{t.server.forgetStays}</p>
      <ErrorText error={forget.error} />
      <div className="buttons">
        <button type="button" onClick={onClose}>
          {t.app.cancel}
        </button>
        <button type="button" className="danger" disabled={forget.isPending} onClick={() => forget.mutate()}>
          {t.server.forgetIt}
        </button>
      </div>
    </Dialog>
  );
}

/** Somebody else was faster: it is what was wanted. */
async function forgotten(agent: string): Promise<void> {
  try {
    await call("DELETE", `api/agents/${encodeURIComponent(agent)}`);
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 404)) throw error;
  }
}
