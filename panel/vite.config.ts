import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// Every address in the build is relative: the page works under whatever prefix a proxy gives it.
export default defineConfig({
  base: "./",
  plugins: [react()],
  resolve: {
    alias: {
      // For browsers it sets `innerHTML`, which the page's policy forbids: an answer with `&amp;` in it could not be shown.
      "decode-named-character-reference": fileURLToPath(
        new URL("node_modules/decode-named-character-reference/index.js", import.meta.url),
      ),
    },
  },
  build: {
    outDir: "../src/perdure/panel/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 900,
    modulePreload: { polyfill: false },
  },
  test: { environment: "node", include: ["src/**/*.test.{ts,tsx}"], restoreMocks: true, testTimeout: 60_000 },
});
