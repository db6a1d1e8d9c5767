/** Frames as a conversation's stream carries them: see "The stream" in docs/http.md. */

import type { CardReply, DecisionKind } from "../api/schema";
import { isRecord, parseJson } from "./json";

export interface ToolCall {
  id: string;
  name: string;
  args: Record<string, unknown>;
}

export interface Message {
  id: string;
  role: "user" | "assistant" | "tool" | "system";
  content: string;
  /** What the model told of its thinking. */
  reasoning?: string;
  tool_calls?: ToolCall[];
  tool_call_id?: string;
  name?: string;
  status?: string;
  usage?: Record<string, number>;
}

interface Placed {
  seq: number;
  conversation: string;
  turn: string;
  attempt: number;
  at: string;
}

export interface TokenFrame extends Placed {
  event: "token";
  message_id: string;
  text: string;
}

export interface MessageFrame extends Placed {
  event: "message";
  message: Message;
}

export interface TraceFrame extends Placed {
  event: "trace";
  node: string;
  name: string;
  step: number;
  phase: string;
  call_id?: string;
  data?: Record<string, unknown>;
}

export interface ApprovalFrame extends Placed {
  event: "approval";
  card: string;
  kind: CardReply["kind"];
  state: CardReply["state"];
  decision?: DecisionKind;
  decided_by?: string;
}

export interface EndFrame extends Placed {
  event: "end";
  status: "completed" | "cancelled";
}

export interface ChatErrorFrame extends Placed {
  event: "chat-error";
  status: "failed" | "interrupted";
  code: string;
  reason: string;
  message: string;
}

export interface RewindFrame extends Placed {
  event: "rewind";
}

export interface ResetFrame {
  event: "reset";
  conversation: string;
  turn: string;
  to_seq: number;
  attempt: number;
  reason: string;
}

export interface GoneFrame {
  event: "gone";
  conversation: string;
}

export type NumberedFrame =
  | TokenFrame
  | MessageFrame
  | TraceFrame
  | ApprovalFrame
  | EndFrame
  | ChatErrorFrame
  | RewindFrame;

export type Frame = NumberedFrame | ResetFrame | GoneFrame;

const NUMBERED = new Set(["token", "message", "trace", "approval", "end", "chat-error", "rewind"]);

/**
 * One event of the stream. Null for a `ping`, for kinds that a newer server may send, and for what a gateway says when it does not
 * wait for a turn any more: the turn goes on, and the line that is opened again asks its agent. Throws on broken JSON.
 */
export function parseFrame(event: string, data: string): Frame | null {
  if (!NUMBERED.has(event) && event !== "reset" && event !== "gone") return null;
  const body = parseJson(data);
  if (!isRecord(body)) throw new Error(`A ${event} event without an object.`);
  if (event === "chat-error" && body.code === "DEADLINE" && body.seq === undefined) return null;
  if (NUMBERED.has(event) && typeof body.seq !== "number") throw new Error(`A ${event} event without a seq.`);
  return { ...body, event } as unknown as Frame;
}

export function isNumbered(frame: Frame): frame is NumberedFrame {
  return frame.event !== "reset" && frame.event !== "gone";
}
