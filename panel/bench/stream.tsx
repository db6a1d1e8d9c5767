/** One answer in many updates, shown by the page's Markdown (`?as=page`) or parsed whole at each update (`?as=whole`). */

import { useEffect, useRef, useState } from "react";
import { createRoot } from "react-dom/client";
import ReactMarkdown from "react-markdown";
import rehypeSanitize from "rehype-sanitize";
import remarkGfm from "remark-gfm";
import { Pace } from "../src/chat/pace";
import { highlight } from "../src/markdown/highlight";
import { Markdown } from "../src/markdown/Markdown";
import { rawAsText, schema } from "../src/markdown/safety";
import { answer, UPDATE_MS, UPDATES } from "./answer";

function Whole({ text }: { text: string }) {
  return (
    <ReactMarkdown remarkPlugins={[remarkGfm]} rehypePlugins={[rawAsText, [rehypeSanitize, schema], highlight]}>
      {text}
    </ReactMarkdown>
  );
}

/** Updates come as frames do; the page takes them at its own pace, the other each at once. */
function Streaming({ as }: { as: string | null }) {
  const came = useRef(0);
  const [shown, setShown] = useState(0);
  useEffect(() => {
    const show = () => setShown(came.current);
    const pace = new Pace(show);
    const timer = setInterval(() => {
      came.current += 1;
      if (as === "whole") show();
      else pace.ask();
      if (came.current === UPDATES) clearInterval(timer);
    }, UPDATE_MS);
    return () => clearInterval(timer);
  }, [as]);
  useEffect(() => {
    if (shown === UPDATES) document.title = "done";
  }, [shown]);
  const text = answer.slice(0, Math.ceil((answer.length * shown) / UPDATES));
  return as === "whole" ? <Whole text={text} /> : <Markdown text={text} live={shown < UPDATES} />;
}

const root = document.getElementById("root");
if (root) createRoot(root).render(<Streaming as={new URLSearchParams(window.location.search).get("as")} />);
