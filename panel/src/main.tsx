import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app/App";
import { holdLinks } from "./app/base";
import { applyTheme } from "./app/theme";
import "./look/base.css";
import "./look/code.css";

holdLinks();
applyTheme();

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
}
