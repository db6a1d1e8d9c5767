import { QueryClientProvider } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useState } from "react";
import { Route, Router, Switch } from "wouter";
import { Changes } from "../api/changes";
import { newClient } from "../api/queries";
import { ChatPage } from "../chat/ChatPage";
import { useCourier } from "../chat/useSend";
import type { LineState } from "../stream/connection";
import { watchPage } from "../stream/nudge";
import { useWords, WordsProvider } from "../words/words";
import { Boundary } from "./Boundary";
import { ROOT } from "./base";
import { watchEscape } from "./escape";
import { Failed, NotFound } from "./Failed";
import { LineContext } from "./line";
import { Shell } from "./Shell";

const TurnsPage = lazy(() => import("../operator/TurnsPage"));
const TurnPage = lazy(() => import("../operator/TurnPage"));
const InboxPage = lazy(() => import("../operator/InboxPage"));
const ServerPage = lazy(() => import("../operator/ServerPage"));

const client = newClient();

export function App() {
  return (
    <WordsProvider>
      <QueryClientProvider client={client}>
        <Router base={ROOT.replace(/\/$/, "")}>
          <Page />
        </Router>
      </QueryClientProvider>
    </WordsProvider>
  );
}

function Page() {
  const line = useChanges();
  useCourier();
  useEffect(watchEscape, []);
  const t = useWords();
  return (
    <LineContext value={line}>
      <Shell>
        <Boundary fallback={(retry) => <Failed retry={retry} />}>
          <Suspense fallback={<p className="empty">{t.app.loading}</p>}>
            <Switch>
              <Route path="/">
                <ChatPage />
              </Route>
              <Route path="/c/:id">{({ id }) => <ChatPage key={id} id={id} />}</Route>
              <Route path="/turns">
                <TurnsPage />
              </Route>
              <Route path="/turns/:id">{({ id }) => <TurnPage key={id} id={id} />}</Route>
              <Route path="/approvals">
                <InboxPage />
              </Route>
              <Route path="/server">
                <ServerPage />
              </Route>
              <Route>
                <NotFound />
              </Route>
            </Switch>
          </Suspense>
        </Boundary>
      </Shell>
    </LineContext>
  );
}

function useChanges(): LineState {
  const [line, setLine] = useState<LineState>("connecting");
  useEffect(() => {
    const end = new AbortController();
    void new Changes(client, setLine).run(end.signal);
    const unwatch = watchPage();
    return () => {
      end.abort();
      unwatch();
    };
  }, []);
  return line;
}
