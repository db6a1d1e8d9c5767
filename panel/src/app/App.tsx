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

/** Parts that come after the chat: fetched as soon as it stands, so that they open also when the server is away by then. */
const loadOperator = {
  TurnsPage: () => import("../operator/TurnsPage"),
  TurnPage: () => import("../operator/TurnPage"),
  InboxPage: () => import("../operator/InboxPage"),
  ServerPage: () => import("../operator/ServerPage"),
};
const TurnsPage = lazy(loadOperator.TurnsPage);
const TurnPage = lazy(loadOperator.TurnPage);
const InboxPage = lazy(loadOperator.InboxPage);
const ServerPage = lazy(loadOperator.ServerPage);

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
  useEffect(() => {
    for (const load of Object.values(loadOperator)) void load();
  }, []);
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
