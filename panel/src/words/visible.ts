/** Text of models and tools may hold characters that turn its direction around, so that it reads as something it is not. */

const TURNERS = /[\u061C\u200E\u200F\u202A-\u202E\u2066-\u2069]/g;

/** Such characters as their escape. Everything of a model, a tool or another person passes here before it is shown. */
export function visible(text: string): string {
  return text.replace(TURNERS, (turner) => `\\u${turner.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
