import { QueryClientProvider } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Route, Router, Switch, useLocation } from "wouter";
import { Changes } from "../api/changes";
import { newClient } from "../api/queries";
import { ChatPage } from "../chat/ChatPage";
import { useCourier } from "../chat/useSend";
import InboxPage from "../operator/InboxPage";
import ServerPage from "../operator/ServerPage";
import TurnPage from "../operator/TurnPage";
import TurnsPage from "../operator/TurnsPage";
import type { LineState } from "../stream/connection";
import { watchPage } from "../stream/nudge";
import { WordsProvider } from "../words/words";
import { Boundary } from "./Boundary";
import { ROOT } from "./base";
import { watchEscape } from "./escape";
import { Failed, NotFound } from "./Failed";
import { LineContext } from "./line";
import { Shell } from "./Shell";

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
  const [path] = useLocation();
  useCourier();
  useEffect(watchEscape, []);
  return (
    <LineContext value={line}>
      <Shell>
        <Boundary key={path} fallback={(retry) => <Failed retry={retry} />}>
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
