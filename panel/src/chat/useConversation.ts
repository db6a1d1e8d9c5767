import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { keys, type Transcript, useTranscript, useTurnsDetails } from "../api/queries";
import { reread } from "../api/reread";
import type { TurnOfConversation, TurnReply } from "../api/schema";
import type { Fold } from "../fold/fold";
import type { LineState } from "../stream/connection";
import { ask } from "../stream/nudge";
import { breaksOf } from "./breaks";
import type { Unsent } from "./courier";
import { Feed } from "./feed";
import { type Item, itemsOf } from "./items";
import { useOutbox } from "./outbox";
import { currentTurn, detailed, turnsOf } from "./turns";
import { useRecorded } from "./useRecorded";

/** A line that cannot be opened yet does not keep the stored transcript from being shown. */
const PATIENCE_MS = 700;

export interface Conversation {
  transcript: Transcript | undefined;
  error: Error | null;
  /** Why the transcript is asked for again. */
  why: Error | null;
  items: Item[];
  line: LineState;
  turns: readonly TurnOfConversation[];
  /** What the buttons are about, with its status as it is now. */
  current: TurnOfConversation | undefined;
  detail: TurnReply | undefined;
  /** Of a turn that is followed no more: reads what became of it and follows again. */
  ask(): void;
}

const NONE: readonly never[] = [];

export function useConversation(id: string, unsent: readonly Unsent[]): Conversation {
  const client = useQueryClient();
  const feed = useFeed(id);
  const { fold, line, revision } = feed;
  const patient = usePatience(line === "connecting" && revision === 0);
  const { data: transcript, error, failureReason: why } = useTranscript(id, !patient);
  useRereading(id, revision, fold);
  const sent = useOutbox(id);
  const read = transcript?.turns ?? NONE;
  const known = useMemo(() => turnsOf(id, read, fold, sent), [id, read, fold, sent]);
  const now = currentTurn(known)?.id;
  const details = useTurnsDetails(wanted(known, now));
  const turns = useMemo(() => known.map((turn) => detailed(turn, details.get(turn.id))), [known, details]);
  const recorded = useRecorded(broken(details, fold));
  const messages = transcript?.messages ?? NONE;
  const items = useMemo(
    () => itemsOf({ messages, turns, fold, sent, unsent, details, recorded }),
    [messages, turns, fold, sent, unsent, details, recorded],
  );
  const current = turns.find((turn) => turn.id === now);
  useAsking(line === "unfollowed", `${current?.id} ${current?.status}`);
  const askAgain = () => {
    void reread(client, keys.conversation(id));
    if (now !== undefined) void reread(client, keys.turn(now));
    ask();
  };
  return { transcript, error, why, items, line, turns, current, detail: details.get(now ?? ""), ask: askAgain };
}

/** What became of a turn that is followed no more may be told elsewhere: the line is then of use again. */
function useAsking(unfollowed: boolean, turn: string): void {
  const seen = useRef(turn);
  useEffect(() => {
    if (unfollowed && seen.current !== turn) ask();
    seen.current = turn;
  }, [unfollowed, turn]);
}

/** Of a turn that needed more than one attempt is shown where it went on. */
function wanted(turns: readonly TurnOfConversation[], current: string | undefined): string[] {
  return turns.filter((turn) => turn.id === current || turn.attempt_count > 1).map((turn) => turn.id);
}

/** Those that were broken off and that the stream told no messages of: they were over before this page was opened. */
function broken(details: ReadonlyMap<string, TurnReply>, fold: Fold): string[] {
  return [...details.values()]
    .filter((each) => breaksOf(each).length > 0 && !fold.get(each.id)?.attempts.size)
    .map((each) => each.id);
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
