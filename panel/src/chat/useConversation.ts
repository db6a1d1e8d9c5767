import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useState, useSyncExternalStore } from "react";
import { keys, type Transcript, useTranscript, useTurn } from "../api/queries";
import { reread } from "../api/reread";
import type { TurnReply, TurnSummary } from "../api/schema";
import type { Fold } from "../fold/fold";
import type { LineState } from "../stream/connection";
import { Feed } from "./feed";
import { currentTurn, type Item, itemsOf } from "./items";
import { useOutbox } from "./outbox";

/** A line that cannot be opened yet does not keep the stored transcript from being shown. */
const PATIENCE_MS = 700;

export interface Conversation {
  transcript: Transcript | undefined;
  error: Error | null;
  items: Item[];
  line: LineState;
  /** What the buttons are about, with its status as it is now. */
  current: TurnSummary | undefined;
  detail: TurnReply | undefined;
}

export function useConversation(id: string): Conversation {
  const feed = useFeed(id);
  const { fold, line, revision } = feed;
  const patient = usePatience(line === "connecting" && revision === 0);
  const { data: transcript, error } = useTranscript(id, !patient);
  useRereading(id, revision, fold);
  const current = useCurrent(transcript, fold);
  const { data: detail } = useTurn(current?.id);
  const sent = useOutbox(id);
  const items = useMemo(() => {
    const details = new Map(detail ? [[detail.id, detail]] : []);
    return itemsOf({ transcript, fold, sent, details });
  }, [transcript, fold, sent, detail]);
  return { transcript, error, items, line, current, detail };
}

function useFeed(id: string) {
  const feed = useMemo(() => new Feed(id), [id]);
  useEffect(() => {
    const end = new AbortController();
    void feed.run(end.signal);
    return () => end.abort();
  }, [feed]);
  return useSyncExternalStore(feed.subscribe, feed.snapshot);
}

function usePatience(wanted: boolean): boolean {
  const [over, setOver] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setOver(true), PATIENCE_MS);
    return () => clearTimeout(timer);
  }, []);
  return wanted && !over;
}

/** The stored transcript after an end or a reset; a turn's calls, cards and attempts whenever something of them was told. */
function useRereading(id: string, revision: number, fold: Fold): void {
  const client = useQueryClient();
  useEffect(() => {
    if (revision > 0) void reread(client, keys.conversation(id));
  }, [client, id, revision]);
  const told = [...fold]
    .map(([turn, { traces, approvals, attempt, ending }]) =>
      [turn, traces.filter((each) => each.call_id).length, cardsTold(approvals), attempt, ending?.seq ?? ""].join(":"),
    )
    .join(" ");
  useEffect(() => {
    for (const part of told.split(" ")) {
      const turn = part.split(":")[0];
      if (turn) void reread(client, keys.turn(turn));
    }
  }, [client, told]);
}

function cardsTold(approvals: ReadonlyMap<string, { seq: number }>): number {
  return Math.max(0, ...[...approvals.values()].map((each) => each.seq));
}

function useCurrent(transcript: Transcript | undefined, fold: Fold): TurnSummary | undefined {
  return useMemo(() => {
    const turns = (transcript?.turns ?? []).map((turn) => {
      const ending = fold.get(turn.id)?.ending;
      return ending ? { ...turn, status: ending.status } : turn;
    });
    return currentTurn(turns);
  }, [transcript, fold]);
}
