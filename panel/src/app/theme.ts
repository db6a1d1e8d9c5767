/** Light, dark, or as the system has it. */

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEPT = "perdure-theme";

export function chosenTheme(): Theme {
  const kept = localStorage.getItem(KEPT);
  return THEMES.find((each) => each === kept) ?? "system";
}

export function chooseTheme(theme: Theme): void {
  localStorage.setItem(KEPT, theme);
  applyTheme();
}

export function applyTheme(): void {
  document.documentElement.dataset.theme = chosenTheme();
}
