import { parseJson } from "../fold/json";

/** What a person typed: JSON when it is JSON, else the text itself. */
export function saidValue(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return text;
  }
}
