import { useEffect, useRef } from "react";

const HIGHEST_PX = 240;

/** A field that is as high as its text, up to a limit. */
export function useGrowing(text: string) {
  const field = useRef<HTMLTextAreaElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: its height follows from the text
  useEffect(() => {
    const area = field.current;
    if (!area) return;
    area.style.height = "auto";
    const borders = area.offsetHeight - area.clientHeight;
    area.style.height = `${Math.min(area.scrollHeight + borders, HIGHEST_PX)}px`;
  }, [text]);
  return field;
}
