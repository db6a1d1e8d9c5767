/** Numbers and times in a person's language. */

import { serverNow } from "../api/skew";

const SECOND = 1_000;
const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["day", 86_400 * SECOND],
  ["hour", 3_600 * SECOND],
  ["minute", 60 * SECOND],
  ["second", SECOND],
];

/** Of what has happened. Never in the future: two clocks may disagree. */
export function ago(at: string, locale: string, now: number = serverNow()): string {
  return relative(Math.min(0, Date.parse(at) - now), locale);
}

/** Of what is to come. */
export function ahead(at: string, locale: string, now: number = serverNow()): string {
  return relative(Date.parse(at) - now, locale);
}

function relative(passed: number, locale: string): string {
  const [unit, size] = UNITS.find(([, length]) => Math.abs(passed) >= length) ?? ["second", SECOND];
  return new Intl.RelativeTimeFormat(locale, { numeric: "auto", style: "short" }).format(
    Math.round(passed / size),
    unit,
  );
}

export function moment(at: string, locale: string): string {
  return new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "medium" }).format(new Date(at));
}

export function clock(at: string, locale: string): string {
  return new Intl.DateTimeFormat(locale, { timeStyle: "medium" }).format(new Date(at));
}

/** Never negative: two clocks may disagree. */
export function duration(milliseconds: number, locale: string): string {
  const passed = Math.max(0, milliseconds);
  if (passed < SECOND) return `${Math.round(passed)} ms`;
  if (passed < 60 * SECOND) {
    return `${new Intl.NumberFormat(locale, { maximumFractionDigits: 1 }).format(passed / SECOND)} s`;
  }
  const seconds = Math.round(passed / SECOND);
  const hours = Math.floor(seconds / 3_600);
  const minutes = Math.floor((seconds % 3_600) / 60);
  return hours > 0 ? `${hours} h ${minutes} min` : `${minutes} min ${seconds % 60} s`;
}

export function between(from: string, to: string | null, locale: string, now: number = serverNow()): string {
  return duration((to === null ? now : Date.parse(to)) - Date.parse(from), locale);
}

export function count(value: number, locale: string): string {
  return new Intl.NumberFormat(locale).format(value);
}

export function bytes(size: number, locale: string): string {
  const power = Math.min(3, Math.floor(Math.log2(Math.max(size, 1)) / 10));
  const short = new Intl.NumberFormat(locale, { maximumFractionDigits: power === 0 ? 0 : 1 }).format(
    size / 1024 ** power,
  );
  return `${short} ${["B", "KB", "MB", "GB"][power]}`;
}
