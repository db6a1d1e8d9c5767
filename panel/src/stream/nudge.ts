/** Tells lines when the world around the page changed: it is looked at again, the network came back or went away. */

export const nudge = new EventTarget();

export function wake(): void {
  nudge.dispatchEvent(new Event("check"));
  nudge.dispatchEvent(new Event("wake"));
}

/** A person looks, or wants to know now: also where another tab holds the line, one that nobody looks at perhaps. */
export function ask(): void {
  nudge.dispatchEvent(new Event("ask"));
  wake();
}

/** Lines that stand are opened anew. */
export function cut(): void {
  nudge.dispatchEvent(new Event("cut"));
}

export function watchPage(): () => void {
  const stop = new AbortController();
  const listen = { signal: stop.signal };
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && ask(), listen);
  window.addEventListener("pageshow", ask, listen);
  window.addEventListener("online", ask, listen);
  window.addEventListener("offline", cut, listen);
  return () => stop.abort();
}
