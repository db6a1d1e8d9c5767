/** Escape closes what was opened last; where nothing is open it reaches the page itself. */

import { useEffect, useRef } from "react";

type Handler = () => void;

export class Layers {
  private readonly over: Handler[] = [];
  private readonly pages: Handler[] = [];

  /** `page`: below everything that is open over it. */
  add(handler: Handler, page = false): () => void {
    const layers = page ? this.pages : this.over;
    layers.push(handler);
    return () => {
      layers.splice(layers.lastIndexOf(handler), 1);
    };
  }

  /** Whether something took it. */
  press(): boolean {
    const handler = this.over.at(-1) ?? this.pages.at(-1);
    handler?.();
    return handler !== undefined;
  }
}

const layers = new Layers();

/** What has a use for Escape of its own says so by `preventDefault`; text in the making is its input method's. */
export function watchEscape(): () => void {
  const press = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || event.defaultPrevented || event.isComposing || event.repeat) return;
    if (event.target instanceof HTMLSelectElement) return;
    if (layers.press()) event.preventDefault();
  };
  window.addEventListener("keydown", press);
  return () => window.removeEventListener("keydown", press);
}

/** As long as `handler` is given. */
export function useEscape(handler: Handler | undefined, page = false): void {
  const latest = useRef(handler);
  useEffect(() => {
    latest.current = handler;
  });
  const wanted = handler !== undefined;
  useEffect(() => (wanted ? layers.add(() => latest.current?.(), page) : undefined), [wanted, page]);
}
