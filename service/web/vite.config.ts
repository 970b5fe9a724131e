import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  build: {
    outDir: "../internal/server/dashboard/dist",
    emptyOutDir: false, // a file of the repository is there
    assetsInlineLimit: 0, // the Content-Security-Policy lets no font come from the style sheet itself
    modulePreload: { polyfill: false },
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  server: { proxy: { "/api": "http://127.0.0.1:8081", "/session": "http://127.0.0.1:8081" } },
});
