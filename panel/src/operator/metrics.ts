/** The server's numbers, as Prometheus reads them. */

import { useQuery } from "@tanstack/react-query";
import { request } from "../api/client";
import { keys, REFRESH_MS } from "../api/queries";

export type Metrics = ReadonlyMap<string, number>;

/** `name{labels}` → value. */
export function parseMetrics(text: string): Metrics {
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(
    lines.map((line): [string, number] => {
      const space = line.lastIndexOf(" ");
      return [line.slice(0, space), Number(line.slice(space + 1))];
    }),
  );
}

/** Turns that have not ended, by status. */
export function turnCounts(metrics: Metrics): [string, number][] {
  return [...metrics].flatMap(([name, value]): [string, number][] => {
    const status = /^perdure_turns\{status="(\w+)"\}$/.exec(name)?.[1];
    return status ? [[status, value]] : [];
  });
}

/** Null for who may not read them. */
export function useMetrics() {
  return useQuery({
    queryKey: [...keys.server, "metrics"],
    queryFn: async ({ signal }) => {
      const response = await request("metrics", { signal });
      return response.ok ? parseMetrics(await response.text()) : null;
    },
    refetchInterval: REFRESH_MS,
  });
}
