import { useAgents, useTurn } from "../api/queries";
import type { Message } from "../fold/frames";
import { showJson } from "../fold/json";
import { between } from "../words/figures";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { LongText } from "./LongText";
import styles from "./tool.module.css";
import { type CallPlace, type ToolView, toolView } from "./toolState";

interface Props extends CallPlace {
  turn: string;
  result: Message | undefined;
  /** The stream told that it was started. */
  started: boolean;
}

/** One call of a tool: what was asked, what came of it, and what happened to it on the way. */
export function ToolCard({ turn, result, started, ...place }: Props) {
  const t = useWords();
  const { data } = useTurn(turn || undefined);
  const { call } = place;
  const view = toolView(place, result, data, { started, covered: useCovered(data?.agent, call.name) });
  const given = view.record?.arguments ?? call.args;
  return (
    <details className={styles.card} data-state={view.state}>
      <summary>
        <bdi className={styles.name}>{visible(call.name) || t.tool.orphan}</bdi>
        <code className={styles.preview}>{visible(previewOf(given))}</code>
        <span className={styles.state}>{t.tool.states[view.state]}</span>
        <Marks view={view} />
      </summary>
      <div className={styles.inside}>
        <h2>{t.tool.arguments}</h2>
        <LongText text={showJson(given)} name={`${call.name}-arguments.json`} />
        {view.record?.error && <p className="error">{visible(view.record.error)}</p>}
        {result && (
          <>
            <h2>{t.tool.result}</h2>
            <LongText text={result.content} name={`${call.name}-result.txt`} />
          </>
        )}
      </div>
    </details>
  );
}

/** Whether the server says that each start of the tool is in its ledger. */
function useCovered(agent: string | undefined, tool: string): boolean {
  const { data } = useAgents();
  const found = data?.items.find((each) => each.name === agent);
  return found !== undefined && !found.uncovered_tools.includes(tool);
}

const PREVIEW = 60;

function previewOf(given: Record<string, unknown>): string {
  const text = Object.keys(given).length === 0 ? "" : JSON.stringify(given);
  return text.length > PREVIEW ? `${text.slice(0, PREVIEW)}…` : text;
}

function Marks({ view }: { view: ToolView }) {
  const t = useWords();
  const { record, card } = view;
  return (
    <span className={styles.marks}>
      {record?.server && <span>{t.tool.server(visible(record.server))}</span>}
      {view.ranBefore && <span data-mark="attempt">{t.tool.ranBefore}</span>}
      {view.rerun > 0 && <span data-mark="attempt">{t.tool.rerun(view.rerun)}</span>}
      {card?.state === "decided" && card.decision && (
        <span>
          {t.tool.decided(t.card.decisions[card.decision], visible(card.decided_by ?? ""))}
          {card.decided_arguments ? ` · ${t.tool.edited}` : ""}
        </span>
      )}
      {record?.ended_at && <span data-mark="time">{between(record.started_at, record.ended_at, t.locale)}</span>}
    </span>
  );
}
