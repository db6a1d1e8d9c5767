// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { parseMetrics, turnCounts } from "./metrics";

describe("the server's numbers", () => {
  it("are read from its text", () => {
    const metrics = parseMetrics('# HELP x y\nperdure_turns{status="running"} 2.0\nperdure_database_bytes 4096.0\n');
    expect(metrics.get("perdure_database_bytes")).toBe(4096);
    expect(turnCounts(metrics)).toEqual([["running", 2]]);
  });
});
