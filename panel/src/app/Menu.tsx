import { type FocusEvent, type ReactNode, useRef, useState } from "react";
import { useEscape } from "./escape";

interface Props {
  className: string | undefined;
  /** What opens it. */
  summary: ReactNode;
  /** Names it where `summary` does not. */
  label?: string;
  children: ReactNode;
}

/** Something to choose from: closed by a choice, by Escape, and by going elsewhere. */
export function Menu({ className, summary, label, children }: Props) {
  const element = useRef<HTMLDetailsElement>(null);
  const [open, setOpen] = useState(false);
  const close = () => {
    if (element.current) element.current.open = false;
  };
  /** Whoever works by keyboard is where they were, also after a dialog that a choice opens. */
  const back = () => {
    close();
    element.current?.querySelector("summary")?.focus();
  };
  useEscape(open ? back : undefined);
  const leave = (event: FocusEvent<HTMLDetailsElement>) => {
    if (!event.currentTarget.contains(event.relatedTarget)) close();
  };
  return (
    <details ref={element} className={className} onBlur={leave} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary aria-label={label}>{summary}</summary>
      {/* biome-ignore lint/a11y: the choices in it are buttons and links; this only closes what they are in */}
      <div onClick={back}>{children}</div>
    </details>
  );
}
