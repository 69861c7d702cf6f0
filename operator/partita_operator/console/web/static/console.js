// Keeps an open page up to date: when the cluster changes, it loads the page again and replaces the parts that differ.
"use strict";

const RENEW_MS = 60000; // times such as "5 s ago" are renewed without a change, too
let stream = null;
let loading = false;
let again = false;

async function refresh() {
  if (loading) {
    again = true;
    return;
  }
  loading = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    replaceParts(new DOMParser().parseFromString(await answer.text(), "text/html"));
    connected(true);
  } catch {
    connected(false);
  } finally {
    loading = false;
  }
  if (again) {
    again = false;
    refresh();
  }
}

function replaceParts(fresh) {
  const now = parts(document);
  const next = parts(fresh);
  const sameParts = now.size === next.size && [...now.keys()].every((id) => next.has(id));
  if (!sameParts) {
    keepingPlace(() => document.getElementById("main").replaceWith(document.adoptNode(fresh.getElementById("main"))));
    for (const id of ["age", "notices"]) replacePart(now.get(id), next.get(id));
    prepareSearch();
    return;
  }
  for (const [id, part] of now) replacePart(part, next.get(id));
}

function parts(page) {
  return new Map([...page.querySelectorAll("[data-live]")].map((part) => [part.id, part]));
}

function replacePart(part, next) {
  if (part.innerHTML === next.innerHTML) return;
  const open = new Set([...part.querySelectorAll("details[open]")].map((details) => details.id));
  keepingPlace(() => part.replaceChildren(...document.adoptNode(next).childNodes));
  for (const details of part.querySelectorAll("details")) details.open = details.open || open.has(details.id);
}

// The focus and the sideways scrolling of tables outlive a replacement.
function keepingPlace(replace) {
  const focused = document.activeElement;
  const path = focused && focused.closest("main") ? selector(focused) : null;
  const scrolled = [...document.querySelectorAll(".scroll")].map((region) => [selector(region), region.scrollLeft]);
  replace();
  for (const [place, left] of scrolled) {
    const region = left && document.querySelector(place);
    if (region) region.scrollLeft = left;
  }
  if (path && document.activeElement !== focused) document.querySelector(path)?.focus({ preventScroll: true });
}

function selector(element) {
  const steps = [];
  for (let here = element; here && here !== document.body; here = here.parentElement) {
    if (here.id) return [`#${CSS.escape(here.id)}`, ...steps].join(" > ");
    steps.unshift(`:nth-child(${[...here.parentElement.children].indexOf(here) + 1})`);
  }
  return ["body", ...steps].join(" > ");
}

function connected(well) {
  let notice = document.getElementById("disconnected");
  if (well) {
    notice?.remove();
  } else if (!notice) {
    notice = document.createElement("p");
    notice.id = "disconnected";
    notice.className = "notice bad";
    notice.textContent = "The console does not answer: this page may be out of date. Is `partita console` still running?";
    document.getElementById("notices").after(notice);
  }
}

// Browsers open few connections to one host: a page that nobody looks at needs none.
function followWhileVisible() {
  if (document.hidden) {
    stream?.close();
    stream = null;
  } else if (!stream) {
    stream = new EventSource("/changes");
    stream.addEventListener("open", refresh);
    stream.addEventListener("changed", refresh);
    stream.addEventListener("error", () => connected(false));
  }
}

function prepareSearch() {
  const search = document.querySelector("[data-search]");
  if (!search) return;
  search.hidden = false;
  let waiting = 0;
  search.querySelector("input").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const address = new URL(location.href);
      const text = event.target.value.trim();
      if (text) address.searchParams.set("q", text);
      else address.searchParams.delete("q");
      address.searchParams.delete("page");
      history.replaceState(null, "", address);
      refresh();
    }, 200);
  });
}

document.addEventListener("visibilitychange", followWhileVisible);
setInterval(() => document.hidden || refresh(), RENEW_MS);
prepareSearch();
followWhileVisible();
