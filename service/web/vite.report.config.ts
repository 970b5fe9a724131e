import { defineConfig } from "vite";

// The code of the page that `stint simulate --html` writes, which is one file, as it is put into the page.
export default defineConfig({
  build: {
    outDir: "../internal/server/dashboard/dist",
    emptyOutDir: false,
    copyPublicDir: false,
    lib: { entry: "src/report.tsx", formats: ["iife"], name: "report", fileName: () => "report.js", cssFileName: "report" },
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
});
