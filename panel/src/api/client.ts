/** Requests to the server and the one kind of error they fail with. */

import { address } from "../app/base";
import { isRecord, parseJson } from "../fold/json";
import { cut } from "../stream/nudge";
import type { ErrorEnvelope } from "./schema";
import { hear } from "./skew";

/** What the server refused, in its own words, or `UNREACHABLE` when there was no answer. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly envelope: ErrorEnvelope,
  ) {
    super(envelope.message);
  }

  get code(): string {
    return this.envelope.code;
  }

  /** Nothing was decided: the same request may be sent again. */
  get passing(): boolean {
    return this.status === 0 || this.status === 502 || this.status === 503 || this.status === 504;
  }
}

export function request(path: string, init: RequestInit = {}): Promise<Response> {
  return fetch(address(path), { credentials: "same-origin", ...init });
}

export interface Send {
  body?: unknown;
  /** Sent twice with the same key, it counts once. */
  key?: string;
  signal?: AbortSignal;
}

/** The JSON of the answer. Throws ApiError. */
export async function call<T>(method: string, path: string, send: Send = {}): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  const init: RequestInit = { method, headers };
  if (send.body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(send.body);
  }
  if (send.key !== undefined) headers["Idempotency-Key"] = send.key;
  if (send.signal) init.signal = send.signal;
  const text = await answered(path, init);
  return (text === "" ? undefined : parseJson(text)) as T;
}

async function answered(path: string, init: RequestInit): Promise<string> {
  let response: Response;
  let text: string;
  try {
    const asked = Date.now();
    response = await request(path, init);
    hear(response.headers.get("Date"), asked);
    text = await response.text();
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, { code: "UNREACHABLE", message: "" });
  }
  // A stream that was opened before goes on: its line is to find out too, and the page to say so.
  if (response.status === 401) cut();
  if (!response.ok) throw new ApiError(response.status, envelopeOf(response, text));
  return text;
}

function envelopeOf(response: Response, text: string): ErrorEnvelope {
  try {
    const body = parseJson(text);
    if (isRecord(body) && typeof body.code === "string" && typeof body.message === "string") {
      return body as unknown as ErrorEnvelope;
    }
  } catch {
    // A proxy between us answered with something else.
  }
  return { code: `HTTP_${response.status}`, message: response.statusText };
}
