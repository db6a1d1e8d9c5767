import { type ReactNode, useId, useLayoutEffect, useRef } from "react";
import { useEscape } from "./escape";

interface Props {
  title: string;
  onClose(): void;
  children: ReactNode;
}

/** A modal dialog, open as long as it is rendered. Closed while it is still there, it gives the focus back. */
export function Dialog({ title, onClose, children }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEscape(onClose);
  useLayoutEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={element} aria-labelledby={heading} onCancel={onClose}>
      <h2 id={heading}>{title}</h2>
      {children}
    </dialog>
  );
}
