/** The steps of a turn's graph, from its traces: a node that was entered and left. Pure. */

export interface Trace {
  attempt: number;
  at: string;
  name: string;
  step: number;
  phase: string;
  outcome: string | undefined;
}

export interface Step {
  key: string;
  attempt: number;
  number: number;
  /** The node, with the nodes it is nested in: `team/model`. */
  name: string;
  from: string;
  /** Null while something of it is under way, and where its end was never recorded. */
  to: string | null;
  outcome: "done" | "failed" | "interrupted";
}

interface Draft extends Step {
  inside: number;
}

/** Tasks of one node in one step are one: they ran side by side. */
export function stepsOf(traces: readonly Trace[]): Step[] {
  const steps = new Map<string, Draft>();
  for (const trace of traces) {
    if (trace.phase !== "enter" && trace.phase !== "leave") continue;
    const key = `${trace.attempt}:${trace.step}:${trace.name}`;
    const step = steps.get(key) ?? begun(key, trace);
    steps.set(key, trace.phase === "enter" ? entered(step) : left(step, trace));
  }
  return [...steps.values()].map(({ inside: _, ...step }) => step);
}

function begun(key: string, { attempt, step, name, at }: Trace): Draft {
  return { key, attempt, number: step, name, from: at, to: null, outcome: "done", inside: 0 };
}

function entered(step: Draft): Draft {
  return { ...step, inside: step.inside + 1, to: null };
}

function left(step: Draft, trace: Trace): Draft {
  const inside = Math.max(0, step.inside - 1);
  const outcome = trace.outcome === "failed" || trace.outcome === "interrupted" ? trace.outcome : step.outcome;
  return { ...step, inside, outcome, to: inside === 0 ? trace.at : null };
}
