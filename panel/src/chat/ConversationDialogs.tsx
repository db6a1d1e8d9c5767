import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { useLocation, useRoute } from "wouter";
import { call } from "../api/client";
import { ACTIVE, keys } from "../api/queries";
import type { ConversationSummary } from "../api/schema";
import { Dialog } from "../app/Dialog";
import { ErrorText } from "../app/Failed";
import { visible } from "../words/visible";
import { useWords } from "../words/words";

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

export function DeleteDialog({ conversation, onClose }: Props) {
  const t = useWords();
  const client = useQueryClient();
  const [, go] = useLocation();
  const [here] = useRoute(`/c/${conversation.id}`);
  const active = conversation.status !== null && ACTIVE.has(conversation.status);
  const remove = useMutation({
    mutationFn: () => call("DELETE", `api/conversations/${conversation.id}${active ? "?cancel=1" : ""}`),
    onSuccess: async () => {
      onClose();
      if (here) go("/");
      await client.invalidateQueries({ queryKey: keys.conversations });
    },
  });
  return (
    <Dialog title={t.list.deleteTitle} onClose={onClose}>
      <p>{t.list.deleteText(visible(conversation.title))}</p>
      {active && <p>{t.list.deleteActive}</p>}
      <ErrorText error={remove.error} />
      <div className="buttons">
        <button type="button" onClick={onClose}>
          {t.app.cancel}
        </button>
        <button type="button" className="danger" disabled={remove.isPending} onClick={() => remove.mutate()}>
          {t.list.delete}
        </button>
      </div>
    </Dialog>
  );
}
