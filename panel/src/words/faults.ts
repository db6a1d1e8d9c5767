/** What went wrong, in a person's language: the server tells it by a code, and in its own words, which are English. */

import { ApiError } from "../api/client";
import type { ErrorCode, FailureCode, TurnError } from "../api/schema";
import type { Words } from "./en";
import { visible } from "./visible";

export interface Fault {
  sentence: string;
  /** What the server said, where that tells more than the sentence: names, numbers. */
  detail: string | null;
}

/** Of these the server's own words tell nothing that the sentence does not, or what is of use to programs alone. */
const PLAIN_ERRORS: ReadonlySet<string> = new Set<ErrorCode>([
  "AMBIGUOUS_RESUME",
  "APPROVAL_UNKNOWN",
  "FORK_POINT_GONE",
  "IDEMPOTENCY_KEY_REUSED",
  "INTERNAL",
  "NOT_READY",
  "STORAGE_FULL",
  "TURN_IN_PROGRESS",
  "TURN_NOT_PARKED",
  "UNAUTHORIZED",
]);
const PLAIN_FAILURES: ReadonlySet<string> = new Set<FailureCode>(["OWNER_DIED", "TURN_NOT_RESUMABLE"]);

export function faultOf(error: Error, t: Words): Fault {
  if (!(error instanceof ApiError)) return { sentence: t.app.broken, detail: ownWords(error) };
  if (error.code === "UNREACHABLE") return { sentence: t.app.unreachable, detail: null };
  return fault(said(t.errors, error.code, t), PLAIN_ERRORS.has(error.code) ? null : ownWords(error));
}

/** Why a turn failed. */
export function failureOf(error: TurnError, t: Words): Fault {
  return fault(said(t.failures, error.code, t), PLAIN_FAILURES.has(error.code) ? null : ownWords(error));
}

/** In English the server may say just the same. */
function fault(sentence: string, detail: string | null): Fault {
  return { sentence, detail: detail === sentence ? null : detail };
}

/** A code that the page does not know comes from a proxy, or from an agent that is newer. */
function said(sentences: Readonly<Record<string, string>>, code: string, t: Words): string {
  return (Object.hasOwn(sentences, code) && sentences[code]) || t.app.refused(visible(code));
}

function ownWords({ message }: { message: string }): string | null {
  return visible(message) || null;
}
