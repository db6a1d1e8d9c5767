import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { useLocation, useRoute } from "wouter";
import { ApiError, call } from "../api/client";
import { ACTIVE, keys } from "../api/queries";
import { untilAnswered } from "../api/repeating";
import type { ConversationSummary } from "../api/schema";
import { Dialog } from "../app/Dialog";
import { drafts } from "../app/drafts";
import { ErrorText } from "../app/Failed";
import { Held } from "../app/Held";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { edits } from "./branching";
import { draftOf } from "./useSend";

interface Props {
  conversation: ConversationSummary;
  onClose(): void;
}

export function RenameDialog({ conversation, onClose }: Props) {
  const t = useWords();
  const client = useQueryClient();
  const [title, setTitle] = useState(conversation.title);
  const rename = useMutation({
    mutationFn: () => call("PATCH", `api/conversations/${conversation.id}`, { body: { title } }),
    ...untilAnswered,
    onSuccess: async () => {
      onClose();
      await client.invalidateQueries({ queryKey: keys.conversations });
      await client.invalidateQueries({ queryKey: keys.conversation(conversation.id) });
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    rename.mutate();
  };
  return (
    <Dialog title={t.list.rename} onClose={onClose}>
      <form onSubmit={submit}>
        <label>
          {t.list.newTitle}
          <input value={title} maxLength={200} onChange={(event) => setTitle(event.target.value)} />
        </label>
        <Held of={rename} />
        <ErrorText error={rename.error} />
        <div className="buttons">
          <button type="button" onClick={onClose}>
            {t.app.cancel}
          </button>
          <button type="submit" className="primary" disabled={!title.trim() || rename.isPending}>
            {t.list.save}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** A turn may have begun since the list was read: then the server refuses, and the person is asked again. */
export function DeleteDialog({ conversation, onClose }: Props) {
  const t = useWords();
  const remove = useRemove(conversation, onClose);
  const listed = conversation.status !== null && ACTIVE.has(conversation.status);
  const begun = isBusy(remove.error);
  const cancel = listed || begun;
  return (
    <Dialog title={t.list.deleteTitle} onClose={onClose}>
      <p>{t.list.deleteText(visible(conversation.title) || t.app.untitled)}</p>
      {cancel && <p role={begun ? "alert" : undefined}>{begun ? t.list.deleteBegun : t.list.deleteActive}</p>}
      <Held of={remove} />
      {!begun && <ErrorText error={remove.error} />}
      <div className="buttons">
        <button type="button" onClick={onClose}>
          {t.app.cancel}
        </button>
        <button type="button" className="danger" disabled={remove.isPending} onClick={() => remove.mutate({ cancel })}>
          {cancel ? t.list.cancelAndDelete : t.list.delete}
        </button>
      </div>
    </Dialog>
  );
}

function useRemove({ id }: ConversationSummary, onRemoved: () => void) {
  const client = useQueryClient();
  const [, go] = useLocation();
  const [here] = useRoute(`/c/${id}`);
  return useMutation<void, Error, { cancel: boolean }>({
    mutationFn: async ({ cancel }) => {
      try {
        await call("DELETE", `api/conversations/${id}${cancel ? "?cancel=1" : ""}`);
      } catch (error) {
        if (!isGone(error)) throw error;
      }
    },
    ...untilAnswered,
    onSuccess: async () => {
      drafts.forget(draftOf(id));
      drafts.forget(edits(id));
      onRemoved();
      if (here) go("/");
      await client.invalidateQueries({ queryKey: keys.conversations });
    },
    onError: () => void client.invalidateQueries({ queryKey: keys.conversations }),
  });
}

function isBusy(error: Error | null): boolean {
  return error instanceof ApiError && error.code === "TURN_IN_PROGRESS";
}

/** Somebody else was faster: it is what was wanted. */
function isGone(error: unknown): boolean {
  return error instanceof ApiError && error.status === 404;
}
