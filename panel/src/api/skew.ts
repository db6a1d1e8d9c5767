/** The server's clock, by which all its times are: a browser's may be hours off, and "3 hours ago" is then no time of anything. */

const SECOND = 1_000;

let skew = 0;

/** In milliseconds, as the server's answers told it last. */
export function serverNow(): number {
  return Date.now() + skew;
}

/**
 * `date`: the header of an answer, which has whole seconds and was written at some time between `asked` and `answered`. What lies
 * within that doubt changes nothing, so a slow answer moves no clock and the times shown do not jump.
 */
export function hear(date: string | null, asked: number, answered: number = Date.now()): void {
  const told = date === null ? Number.NaN : Date.parse(date);
  const difference = told + SECOND / 2 - (asked + answered) / 2;
  const doubt = SECOND + (answered - asked) / 2;
  if (Math.abs(difference - skew) > doubt) skew = difference;
}
