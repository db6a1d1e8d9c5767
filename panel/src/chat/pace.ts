/** Work that follows what streams in: once per animation frame, with a rest between two, and seldom while nobody looks. */

export const REST_MS = 50;
export const HIDDEN_MS = 250;

export class Pace {
  private asked = false;
  private doneAt = Number.NEGATIVE_INFINITY;

  constructor(private readonly work: () => void) {}

  /** The work is done soon, once for all that asked meanwhile. */
  ask(): void {
    if (this.asked) return;
    this.asked = true;
    const rest = document.visibilityState === "visible" ? this.doneAt + REST_MS - performance.now() : HIDDEN_MS;
    if (rest > 0) setTimeout(this.onFrame, rest);
    else this.onFrame();
  }

  /** A hidden page has no frames. */
  private readonly onFrame = (): void => {
    if (document.visibilityState === "visible") requestAnimationFrame(this.run);
    else this.run();
  };

  private readonly run = (): void => {
    this.asked = false;
    this.doneAt = performance.now();
    this.work();
  };
}
