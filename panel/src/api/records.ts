/** What the journal has of a turn. */

import { call } from "./client";
import { type Page, query } from "./queries";
import type { EventReply } from "./schema";

const PAGE = "200";
const MOST_PAGES = 500;

/** Its committed events of one kind, oldest first, page by page. Of a turn without end not all of them. */
export async function* recordedPages(
  turn: string,
  kind: EventReply["event"],
  signal: AbortSignal,
): AsyncGenerator<EventReply[], void> {
  let cursor: string | null = null;
  for (let read = 0; read === 0 || (cursor !== null && read < MOST_PAGES); read += 1) {
    const asked = query({ kind, limit: PAGE, cursor: cursor ?? undefined });
    const page: Page<EventReply> = await call("GET", `api/turns/${encodeURIComponent(turn)}/events${asked}`, {
      signal,
    });
    yield page.items;
    cursor = page.next;
  }
}
