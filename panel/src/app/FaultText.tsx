import type { Fault } from "../words/faults";

/** The sentence, and below it what the server said. */
export function FaultText({ fault }: { fault: Fault }) {
  return (
    <>
      {fault.sentence}
      {fault.detail && (
        <span className="detail" lang="en">
          {fault.detail}
        </span>
      )}
    </>
  );
}
