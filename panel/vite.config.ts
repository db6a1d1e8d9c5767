import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// Every address in the build is relative: the page works under whatever prefix a proxy gives it.
export default defineConfig({
  base: "./",
  plugins: [react()],
  build: {
    outDir: "../src/perdure/panel/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 900,
    modulePreload: { polyfill: false },
  },
  test: { environment: "node", include: ["src/**/*.test.{ts,tsx}"], restoreMocks: true },
});
