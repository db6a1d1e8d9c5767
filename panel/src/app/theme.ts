/** Light, dark, or as the system has it. */

import { Kept } from "./kept";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const kept = new Kept<Theme>("perdure-theme", "localStorage");
let chosen = THEMES.find((each) => each === kept.read()) ?? "system";

export function chosenTheme(): Theme {
  return chosen;
}

export function chooseTheme(theme: Theme): void {
  chosen = theme;
  kept.write(theme);
  applyTheme();
}

export function applyTheme(): void {
  document.documentElement.dataset.theme = chosen;
}
