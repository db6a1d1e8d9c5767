import { ApiError } from "../api/client";
import { ACTIVE, useAgents, useMe } from "../api/queries";
import { Awaiting } from "../app/Awaiting";
import { useEscape } from "../app/escape";
import { Nothing, Refused } from "../app/Failed";
import { ReachContext, useReach } from "../app/reach";
import { useWords } from "../words/words";
import { Announcer } from "./Announcer";
import { BranchPicker } from "./BranchPicker";
import { type Branching, BranchingContext, useBranchingOf } from "./branching";
import { Composer } from "./Composer";
import { Copy } from "./Copy";
import styles from "./chat.module.css";
import { Header } from "./Header";
import { OpenCards } from "./OpenCards";
import { StateView } from "./StateView";
import { Transcript } from "./Transcript";
import { ActionsHeld, TurnButtons } from "./TurnButtons";
import { Unfollowed } from "./Unfollowed";
import { type Conversation as Told, useConversation } from "./useConversation";
import { type Sending, useSend } from "./useSend";
import { useTurnActions } from "./useTurnActions";

export function Conversation({ id }: { id: string }) {
  const t = useWords();
  const send = useSend(id);
  const told = useConversation(id, send.unsent);
  const branching = useBranchingOf(id);
  const atEnd = branching.points.get(null);
  const { transcript, error, line, current, detail } = told;
  const reach = useReach(transcript?.agent, transcript?.reach);
  if (line === "gone" || line === "missing" || (error instanceof ApiError && error.status === 404)) {
    const seen = line === "gone" || transcript !== undefined;
    return <Nothing why={seen ? t.chat.gone : t.chat.missing} href="/" way={t.app.toChat} />;
  }
  return (
    <ReachContext value={reach}>
      <div className={styles.page}>
        <Header id={id} transcript={transcript} line={line} current={current} />
        <Copy transcript={transcript} reach={reach} />
        <Announcer id={id} current={current} />
        {!transcript && <Unread error={error} why={told.why} empty={told.items.length === 0} />}
        <BranchingContext value={branching}>
          <Transcript items={told.items} busy={current !== undefined && ACTIVE.has(current.status)} turns={told.turns}>
            {transcript?.state && <StateView state={transcript.state} />}
            {line === "unfollowed" && <Unfollowed ask={told.ask} />}
            <OpenCards cards={detail?.cards} />
            {atEnd && <BranchPicker point={atEnd} />}
          </Transcript>
        </BranchingContext>
        <Foot id={id} told={told} branching={branching} send={send} />
      </div>
    </ReachContext>
  );
}

function Unread({ error, why, empty }: { error: Error | null; why: Error | null; empty: boolean }) {
  if (error) return <Refused error={error} />;
  return empty ? <Awaiting why={why} /> : null;
}

interface FootProps {
  id: string;
  told: Told;
  branching: Branching;
  send: Sending;
}

function Foot({ id, told, branching, send }: FootProps) {
  const t = useWords();
  const { transcript, current, items } = told;
  const { data: me } = useMe();
  const { data: agents } = useAgents();
  const actions = useTurnActions(id, current);
  const active = current !== undefined && ACTIVE.has(current.status);
  useEscape(active ? actions.stop : undefined, true);
  const foreign = transcript && me && transcript.owner !== (me.admin ? "local" : me.name);
  const lastSaid = items.findLast((each) => each.kind === "user" && !each.pending);
  const buttons = <TurnButtons current={current} resumable={transcript?.resumable ?? false} actions={actions} />;
  const held = <ActionsHeld actions={actions} />;
  if (foreign) {
    return (
      <div className={styles.foreign}>
        <p>{t.chat.foreign(transcript.owner)}</p>
        {held}
        {buttons}
      </div>
    );
  }
  return (
    <Composer
      conversation={id}
      json={agents?.items.find((each) => each.name === transcript?.agent)?.input === "json"}
      send={send}
      busy={active}
      held={held}
      hint={active ? (current.status === "parked" ? t.chat.parkedHint : t.chat.queueHint) : undefined}
      onUp={lastSaid ? () => branching.edit(lastSaid.key) : undefined}
    >
      {buttons}
    </Composer>
  );
}
