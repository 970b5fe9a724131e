import "./fonts.css";
import "./colours.css";
import "./style.css";

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ask, whenSignedOut } from "./api";
import type { Session } from "./api";
import { start, useLive } from "./live";
import { messageOf } from "./ui";
import { Client } from "./pages/client";
import { Denials } from "./pages/denials";
import { Domains } from "./pages/domains";
import { Explain } from "./pages/explain";
import { Overview } from "./pages/overview";
import { Revision, Revisions } from "./pages/revisions";
import { RulePage } from "./pages/rule";
import { Rules } from "./pages/rules";
import { Playground, Simulate } from "./pages/simulate";

const pages = [
  { path: "", name: "Overview" },
  { path: "client", name: "Client" },
  { path: "rules", name: "Rules" },
  { path: "denials", name: "Denials" },
  { path: "explain", name: "Explain" },
  { path: "simulate", name: "Simulate" },
  { path: "playground", name: "Playground" },
];

/** place is the address of the page that is shown: the parts of what follows #/. */
function usePlace(): string[] {
  const read = () => {
    const raw = location.hash.replace(/^#\/?/, "").split("/");
    const state = raw.findIndex((part) => part.includes("=")); // it is the last part, and what people type has its slashes as they are
    if (state >= 0 && raw[0] !== "client") raw.push(raw.splice(state).join("/"));
    const parts = raw.map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });
    return parts[0]?.includes("=") ? ["", ...parts] : parts; // the state of the overview
  };
  const [place, set] = useState(read);
  useEffect(() => {
    let shown = read();
    const changed = () => {
      const next = read();
      const stays = shown[0] === next[0] && (shown[1] === next[1] || !!(shown[1] ?? next[1])?.includes("="));
      shown = next;
      set(next);
      if (!stays) scrollTo(0, 0);
    };
    addEventListener("hashchange", changed);
    set(read()); // it may have changed before somebody listened
    return () => removeEventListener("hashchange", changed);
  }, []);
  return place;
}

/** editsRules says of a page that rules can be edited on it. */
const editsRules = (page?: string) => page === "rules" || page === "revisions" || page === "client" || page === "simulate";

function Page({ place, session }: { place: string[]; session: Session }) {
  const writes = session.writes;
  const edits = writes && session.rules?.editable !== false;
  const [page = "", one, two] = place;
  switch (page) {
    case "":
      return <Overview state={one} writes={writes} />;
    case "client":
      return <Client key={one} name={one || undefined} writes={writes} edits={edits} />;
    case "rules":
      return !one ? <Rules writes={writes} edits={edits} /> : one === "new" ? <RulePage key="new" template={two} writes={writes} edits={edits} /> : one.includes("=") ? <Rules state={one} writes={writes} edits={edits} /> : <RulePage key={one} id={one} writes={writes} edits={edits} />;
    case "revisions":
      return one ? <Revision key={one} number={one} edits={edits} /> : <Revisions />;
    case "domains":
      return <Domains />;
    case "denials":
      return <Denials state={one} />;
    case "explain":
      return <Explain state={one} />;
    case "simulate":
      return <Simulate state={one} writes={writes} edits={edits} />;
    case "playground":
      return writes ? <Playground state={one} /> : <><h1 class="lead">Playground</h1><p class="empty">The playground uses the service's processor. It needs a token with the role write.</p></>;
    default:
      return <><h1 class="lead">There is no such page.</h1><p><a href="#/">Overview</a></p></>;
  }
}

function Themes() {
  const [theme, set] = useState(() => localStorage.getItem("stint.theme") ?? "");
  useEffect(() => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    localStorage.setItem("stint.theme", theme);
  }, [theme]);
  return (
    <select aria-label="Theme" value={theme} onChange={(e) => set(e.currentTarget.value)}>
      <option value="">system theme</option>
      <option value="light">light theme</option>
      <option value="dark">dark theme</option>
    </select>
  );
}

function Shell({ session, signOut }: { session: Session; signOut: () => void }) {
  const place = usePlace();
  const live = useLive();
  const [menu, setMenu] = useState(false); // open, on a phone
  useEffect(start, []);
  const title = pages.find((p) => p.path === place[0])?.name ?? place[0] ?? "";
  useEffect(() => void (document.title = [place[1]?.includes("=") ? "" : place[1], title, "stint"].filter(Boolean).join(" · ")), [place, title]);
  return (
    <>
      <header class="top">
        <strong>stint</strong>
        <span class="faint" title="All times are UTC. That of your clock is shown where you point at one.">UTC</span>
        <button class="menu-button" aria-expanded={menu} aria-controls="menu" onClick={() => setMenu(!menu)}>Menu</button>
        <div id="menu" class={menu ? "menu open" : "menu"}>
          <nav aria-label="Pages">
            {pages.map((p) => <a key={p.path} href={"#/" + p.path} onClick={() => setMenu(false)} aria-current={(place[0] === "revisions" || place[0] === "domains" ? "rules" : place[0]) === p.path ? "page" : undefined}>{p.name}</a>)}
          </nav>
          <span class="spring" />
          <span class="faint">{session.name ?? ""}{session.writes ? "" : " (read only)"}</span>
          <Themes />
          {session.required && <button onClick={signOut}>Sign out</button>}
        </div>
      </header>
      {live.state === "lost" && <div class="notice bad" role="status">The connection to the service is broken. The figures below are old. The page reconnects by itself.</div>}
      {live.state === "refused" && <div class="notice bad" role="status">The service refuses the stream of events. The figures below are old. The page asks again every 5 seconds.</div>}
      {!session.required && (
        <div class="notice">
          No admin token is configured, so everybody on this machine may do everything here, and clients are shown without their names. To change that, put a line such as <code>TOKEN write alice</code> into a file, with a TOKEN of <code>openssl rand -hex 32</code>, and start with <code>--admin-tokens-file FILE</code>.
        </div>
      )}
      {session.rules?.forgotten && session.writes && editsRules(place[0]) && (
        <div class="notice">
          Edited rules are kept in the memory of this process, and are lost when it ends. To keep them, set <code>rules_from</code> to a folder of files or to a database, or <code>store.url</code> to a Redis.
        </div>
      )}
      {session.rules && !session.rules.editable && editsRules(place[0]) && (
        <div class="notice">Rules come from {session.rules.from}. They are changed there; these pages only show them.</div>
      )}
      <main><Page place={place} session={session} /></main>
    </>
  );
}

function SignIn({ signedIn }: { signedIn: (s: Session) => void }) {
  const [token, setToken] = useState("");
  const [fault, setFault] = useState("");
  const submit = (e: Event) => {
    e.preventDefault();
    ask<Session>("/session", { method: "POST", body: { token } }).then(({ body }) => signedIn(body), (error: unknown) => setFault(messageOf(error)));
  };
  return (
    <main class="signin">
      <h1 class="lead">stint</h1>
      <form onSubmit={submit}>
        <input type="text" name="username" autocomplete="username" value="stint" hidden readOnly />
        <label class="field"><span>Admin token</span>
          <input type="password" name="token" autocomplete="current-password" autofocus value={token} onInput={(e) => setToken(e.currentTarget.value)} />
        </label>
        <div class="row"><button class="main" type="submit" disabled={!token}>Sign in</button></div>
        {fault && <p class="fault" role="alert">{fault}</p>}
        <p class="faint">
          Tokens stand in the file that <code>--admin-tokens-file</code> names; <code>--demo</code> without one makes a token and writes
          it into the program's log. It is sent once; a session lasts 12 hours.
        </p>
      </form>
    </main>
  );
}

function App() {
  const [session, setSession] = useState<Session | null>();
  const [fault, setFault] = useState("");
  useEffect(() => {
    whenSignedOut(() => setSession(null));
    ask<Session>("/session").then(
      ({ body }) => setSession(body.required && body.name === undefined ? null : body),
      (error: unknown) => setFault(messageOf(error)),
    );
  }, []);
  if (fault) return <main class="signin"><p class="fault" role="alert">{fault}</p><button onClick={() => location.reload()}>Try again</button></main>;
  if (session === undefined) return null;
  if (session === null) return <SignIn signedIn={setSession} />;
  return <Shell session={session} signOut={() => void ask("/session", { method: "DELETE" }).finally(() => location.reload())} />;
}

const root = document.getElementById("app");
if (root) render(<App />, root);
