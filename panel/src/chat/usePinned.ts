import { type RefObject, useCallback, useRef, useState } from "react";

/** So near the end counts as at the end. */
const NEAR = 48;

/** Whether a person reads at the end: then the view follows what comes; else it stays where it is. */
export function usePinned(scroller: RefObject<HTMLElement | null>) {
  const pinned = useRef(true);
  const [, show] = useState(true);
  const onScroll = useCallback(() => {
    const element = scroller.current;
    if (!element) return;
    pinned.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR;
    show(pinned.current);
  }, [scroller]);
  const toEnd = useCallback(() => {
    const element = scroller.current;
    if (element) element.scrollTop = element.scrollHeight;
  }, [scroller]);
  return { pinned, onScroll, toEnd };
}
