/** JSON whose large integers keep their digits: what a person approves is what was asked, to the last digit. */

interface ReviverContext {
  source?: string;
}

interface ExactJson {
  rawJSON(text: string): object;
  isRawJSON(value: unknown): boolean;
}

const exact: Partial<ExactJson> = JSON as Partial<ExactJson>;
const LONG_NUMBER = /\d{16}/;

export function parseJson(text: string): unknown {
  return exact.rawJSON && LONG_NUMBER.test(text) ? JSON.parse(text, keepDigits) : JSON.parse(text);
}

function keepDigits(this: unknown, _key: string, value: unknown, context?: ReviverContext): unknown {
  const source = context?.source;
  const rounded = typeof value === "number" && source !== undefined && String(value) !== source;
  return rounded && /^-?\d{16,}$/.test(source) && exact.rawJSON ? exact.rawJSON(source) : value;
}

/** Indented, for people. */
export function showJson(value: unknown): string {
  return JSON.stringify(value, null, 2) ?? "";
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !exact.isRawJSON?.(value);
}
