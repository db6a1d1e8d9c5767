import { memo, useMemo } from "react";
import ReactMarkdown, { type Components, type Options } from "react-markdown";
import rehypeSanitize from "rehype-sanitize";
import remarkGfm from "remark-gfm";
import { Boundary } from "../app/Boundary";
import { visible } from "../words/visible";
import { useWords } from "../words/words";
import { blocksOf, isHeavy } from "./blocks";
import { CodeBlock } from "./CodeBlock";
import { highlight } from "./highlight";
import { ImageLink, SafeLink } from "./links";
import styles from "./markdown.module.css";
import { rawAsText, schema } from "./safety";

const REMARK: Options["remarkPlugins"] = [remarkGfm];
const PLAIN: Options["rehypePlugins"] = [rawAsText, [rehypeSanitize, schema]];
const COLOURED: Options["rehypePlugins"] = [...PLAIN, highlight];

const COMPONENTS: Components = {
  // The page's own headings stand above those of an answer.
  h1: "h2",
  h2: "h3",
  h3: "h4",
  h4: "h5",
  h5: "h6",
  a: ({ href, children }) => <SafeLink address={href}>{children}</SafeLink>,
  img: ({ src, alt }) => <ImageLink address={typeof src === "string" ? src : undefined} text={alt} />,
  pre: ({ children }) => <CodeBlock>{children}</CodeBlock>,
  table: ({ children }) => (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
    <div className={styles.wide} tabIndex={0}>
      <table>{children}</table>
    </div>
  ),
};

/** A model's text. While `live`, only what grows is rendered again; once complete it is rendered whole, so that references
 * between its parts work. */
export function Markdown({ text, live }: { text: string; live: boolean }) {
  const shown = useMemo(() => visible(text), [text]);
  if (isHeavy(shown)) return <Plain text={shown} />;
  return (
    <Boundary fallback={() => <Plain text={shown} />}>
      <div className={styles.markdown}>{live ? <Growing text={shown} /> : <Whole text={shown} closed />}</div>
    </Boundary>
  );
}

function Growing({ text }: { text: string }) {
  return blocksOf(text).map((block, n) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: a block is known by its place; those before the last do not change
    <Whole key={n} text={block.text} closed={block.closed} />
  ));
}

const Whole = memo(function Whole({ text, closed }: { text: string; closed: boolean }) {
  return (
    <ReactMarkdown
      remarkPlugins={REMARK}
      rehypePlugins={closed ? COLOURED : PLAIN}
      components={COMPONENTS}
      urlTransform={unchanged}
    >
      {text}
    </ReactMarkdown>
  );
});

/** The links decide themselves, and show an address that they do not follow. */
function unchanged(address: string): string {
  return address;
}

function Plain({ text }: { text: string }) {
  const t = useWords();
  return (
    <div className={styles.markdown}>
      <p className={styles.hint}>{t.chat.tooHeavy}</p>
      <pre className={styles.plain}>{text}</pre>
    </div>
  );
}
