// Made from the server's OpenAPI description and its tables of codes by scripts/api_types.py. Do not edit.

export interface AcceptedReply {
  conversation: string;
  turn: string;
  status: TurnStatus;
}

export interface AgentReply {
  name: string;
  input: "message" | "json";
  model: string | null;
  default: boolean;
  problems: string[];
  uncovered_tools: string[];
  reach: Reach;
}

export interface AgentsReply {
  items: AgentReply[];
}

export interface AttemptReply {
  number: number;
  owner: string;
  started_at: string;
  ended_at: string | null;
  outcome: string | null;
  error: string | null;
}

export interface AuditReply {
  number: number;
  at: string;
  by: string;
  action: string;
  conversation: string | null;
  turn: string | null;
  card: string | null;
  detail: Record<string, unknown>;
}

export interface BranchPointReply {
  message: string | null;
  checkpoint: string | null;
  branches: BranchReply[];
}

export interface BranchReply {
  conversation: string;
  title: string;
  message: string | null;
  status: TurnStatus | null;
  created_at: string;
  current: boolean;
}

export interface BranchesReply {
  items: BranchPointReply[];
}

export interface CallReply {
  id: string;
  message_id: string;
  key: string;
  name: string;
  server: string | null;
  arguments: Record<string, unknown>;
  effect_class: "read" | "keyed" | "checkable" | "once";
  state: "running" | "done" | "paused" | "unknown";
  status: "success" | "error" | null;
  starts: number;
  attempt: number;
  started_at: string;
  ended_at: string | null;
  error: string | null;
}

export interface CardReply {
  id: string;
  turn: string;
  conversation: string;
  interrupt_id: string;
  kind: "approval" | "uncertain" | "interrupt";
  state: CardState;
  tool: string | null;
  call_id: string | null;
  message_id: string | null;
  server: string | null;
  arguments: Record<string, unknown> | null;
  digest: string | null;
  effect_class: "read" | "keyed" | "checkable" | "once" | null;
  key: string | null;
  opened_at: string;
  expires_at: string | null;
  request?: unknown;
  why?: string | null;
  deciders?: string[] | null;
  decision?: DecisionKind | null;
  decided_by?: string | null;
  decided_at?: string | null;
  note?: string | null;
  decided_arguments?: Record<string, unknown> | null;
  result?: unknown;
  value?: unknown;
}

export type CardState = "opened" | "decided" | "closed";

export interface ChatRequest {
  message?: string | null;
  input?: Record<string, unknown> | null;
  resume?: boolean | Record<string, unknown> | null;
  conversation?: string | null;
  agent?: string | null;
  when_busy?: "reject" | "enqueue" | "interrupt" | null;
  discard_pending?: boolean | null;
}

export interface CheckpointReply {
  id: string;
  parent: string | null;
  step: number | null;
  source: "input" | "loop" | "update" | "fork" | null;
  turn: string | null;
  created_at: string | null;
  next: string[];
  tasks: TaskReply[];
  message_count: number;
  interrupts: InterruptReply[];
  values: Record<string, unknown>;
  truncated: boolean;
}

export interface CheckpointSummary {
  id: string;
  parent: string | null;
  step: number | null;
  source: "input" | "loop" | "update" | "fork" | null;
  turn: string | null;
  created_at: string | null;
  next: string[];
  tasks: TaskReply[];
  message_count: number;
  interrupts: InterruptReply[];
}

export interface ConversationReply {
  id: string;
  title: string;
  agent: string;
  owner: string;
  status: TurnStatus | null;
  message_count: number;
  created_at: string;
  updated_at: string;
  forked_from: OriginReply | null;
  resumable: boolean;
  messages: (Record<string, unknown>)[];
  turns: TurnOfConversation[];
  state: Record<string, unknown> | null;
  reach: Reach;
}

export interface ConversationSummary {
  id: string;
  title: string;
  agent: string;
  owner: string;
  status: TurnStatus | null;
  message_count: number;
  created_at: string;
  updated_at: string;
  forked_from: OriginReply | null;
}

export interface DatabaseReply {
  path: string;
  bytes: number;
  wal_bytes: number;
}

export interface DecidedReply {
  card: CardReply;
  turn_status: TurnStatus;
}

export type DecisionKind = "approve" | "deny" | "happened" | "retry" | "give_up" | "answer";

export interface DecisionRequest {
  decision: string;
  arguments?: Record<string, unknown> | null;
  note?: string | null;
  result?: unknown;
  value?: unknown;
}

export type ErrorCode = "BAD_REQUEST" | "IDEMPOTENCY_KEY_REUSED" | "AMBIGUOUS_RESUME" | "UNAUTHORIZED" | "FORBIDDEN" | "NOT_FOUND" | "METHOD_NOT_ALLOWED" | "TURN_IN_PROGRESS" | "TURN_NOT_RESUMABLE" | "TURN_NOT_PARKED" | "APPROVAL_UNKNOWN" | "APPROVAL_DECIDED" | "FORK_POINT_GONE" | "AGENT_IN_USE" | "TOO_LARGE" | "NOT_READY" | "AGENT_UNAVAILABLE" | "STORAGE_ERROR" | "STORAGE_FULL" | "INTERNAL";

export interface ErrorEnvelope {
  code: string;
  message: string;
  conversation?: string | null;
  turn?: string | null;
  pending?: string[] | null;
  decision?: string | null;
  decided_by?: string | null;
  decided_at?: string | null;
}

export type EventKind = "token" | "message" | "trace" | "approval" | "rewind" | "end" | "chat-error";

export interface EventReply {
  seq: number;
  event: EventKind;
  attempt: number;
  at: string;
  data: Record<string, unknown>;
}

export type FailureCode = "MODEL_UNAVAILABLE" | "RECURSION_LIMIT" | "TOOL_FAILURE" | "AGENT_FAILURE" | "ATTEMPTS_EXHAUSTED" | "OWNER_DIED" | "STATE_TYPE_NOT_ALLOWED" | "LIMIT_REACHED" | "OUTCOME_UNKNOWN" | "TURN_NOT_RESUMABLE";

export interface ForkFrom {
  message?: string | null;
  checkpoint?: string | null;
}

export interface ForkReply {
  conversation: string;
  turn: string | null;
  status: TurnStatus | null;
  forked_from: OriginReply;
}

export interface ForkRequest {
  from: ForkFrom;
  message?: string | null;
  title?: string | null;
}

export interface HealthReply {
  status?: "ok";
}

export interface InterruptReply {
  id: string;
  value: unknown;
}

export interface McpReply {
  agent: string;
  name: string;
  state: "connected" | "idle" | "failing";
  tools: number;
  problem: string | null;
}

export interface MeReply {
  name: string;
  role: Role;
  admin: boolean;
}

export interface NewTokenReply {
  name: string;
  role: Role;
  created_at: string;
  created_by: string;
  revoked_at: string | null;
  last_used_at: string | null;
  secret: string;
}

export interface OriginReply {
  conversation: string;
  message: string | null;
  checkpoint: string | null;
}

export interface PageAuditReply {
  items: AuditReply[];
  next: string | null;
}

export interface PageCardReply {
  items: CardReply[];
  next: string | null;
}

export interface PageCheckpointSummary {
  items: CheckpointSummary[];
  next: string | null;
}

export interface PageConversationSummary {
  items: ConversationSummary[];
  next: string | null;
}

export interface PageEventReply {
  items: EventReply[];
  next: string | null;
}

export interface PageTurnSummary {
  items: TurnSummary[];
  next: string | null;
}

export type Reach = "reachable" | "unreachable" | "disconnected";

export interface ReadyReply {
  status: "ready" | "degraded" | "unready";
  reasons?: string[] | null;
  notices?: string[] | null;
}

export interface RenameRequest {
  title: string;
}

export type Role = "user" | "operator";

export interface ServerReply {
  version: string;
  draining: boolean;
  workers: WorkerReply[];
  mcp_servers: McpReply[];
  database: DatabaseReply | null;
  nats: "connected" | "lost" | null;
}

export interface SpentReply {
  model_calls: number;
  tool_calls: number;
  tokens: number;
  seconds: number;
}

export interface TaskReply {
  id: string;
  name: string;
  error: string | null;
  interrupts: InterruptReply[];
}

export interface TokenReply {
  name: string;
  role: Role;
  created_at: string;
  created_by: string;
  revoked_at: string | null;
  last_used_at: string | null;
}

export interface TokenRequest {
  name: string;
  role: Role;
}

export interface TokensReply {
  items: TokenReply[];
}

export interface TurnCounts {
  waiting: number;
  queued: number;
  running: number;
  parked: number;
  completed: number;
  failed: number;
  cancelled: number;
  interrupted: number;
}

export interface TurnError {
  code: string;
  message: string;
}

export interface TurnOfConversation {
  id: string;
  conversation: string;
  agent: string;
  owner: string;
  status: TurnStatus;
  reason: string | null;
  error: TurnError | null;
  attempt_count: number;
  supersteps: number;
  usage: Record<string, number>;
  accepted_at: string;
  ended_at: string | null;
  next_attempt_at: string | null;
  cancel_requested_at: string | null;
  input: Record<string, unknown> | null;
}

export interface TurnReply {
  id: string;
  conversation: string;
  agent: string;
  owner: string;
  status: TurnStatus;
  reason: string | null;
  error: TurnError | null;
  attempt_count: number;
  supersteps: number;
  usage: Record<string, number>;
  accepted_at: string;
  ended_at: string | null;
  next_attempt_at: string | null;
  cancel_requested_at: string | null;
  resumable: boolean;
  spent: SpentReply;
  attempts: AttemptReply[];
  calls: CallReply[];
  cards: CardReply[];
}

export type TurnStatus = "waiting" | "queued" | "running" | "parked" | "completed" | "failed" | "cancelled" | "interrupted";

export interface TurnSummary {
  id: string;
  conversation: string;
  agent: string;
  owner: string;
  status: TurnStatus;
  reason: string | null;
  error: TurnError | null;
  attempt_count: number;
  supersteps: number;
  usage: Record<string, number>;
  accepted_at: string;
  ended_at: string | null;
  next_attempt_at: string | null;
  cancel_requested_at: string | null;
}

export interface WorkerReply {
  owner: string | null;
  host: string | null;
  pid: number | null;
  boot: string | null;
  version: string;
  started_at: string;
  draining: boolean;
  running: number;
}
