// What makes the pages live. They work without it: everything here is a shorter way to what links and forms do.
"use strict";

(() => {
  const body = document.body;
  const topic = body.dataset.live ? { topic: body.dataset.live, run: body.dataset.run } : null;

  // Where links are scrolled sideways, the one to this page is in sight.
  for (const link of document.querySelectorAll("nav [aria-current]")) {
    const row = link.parentElement;
    row.scrollLeft = link.offsetLeft - (row.clientWidth - link.offsetWidth) / 2;
  }

  // --- the same page again, with what has changed put into its regions

  const PAUSE = 700; // milliseconds between two looks
  const SCROLLS = "pre, .timeline, .graph"; // what is scrolled within a region
  const FOCUSED = "a[href], button, summary, [tabindex]"; // what the keyboard reaches, beside fields
  let planned = 0;
  let looking = false;
  let stale = false;
  let last = Date.now();

  function soon() {
    if (document.hidden) { stale = true; return; }
    if (planned || looking) { stale = true; return; }
    planned = setTimeout(look, Math.max(0, last + PAUSE - Date.now()));
  }

  async function look() {
    planned = 0;
    looking = true;
    stale = false;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.redirected && new URL(answer.url).pathname === "/sign-in") return lamp("lost", "signed out");
      if (answer.ok) take(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch {
      lamp("lost", "not live");
    } finally {
      looking = false;
      last = Date.now();
      if (stale) soon();
    }
  }

  function take(page) {
    document.title = page.title;
    if (page.body.dataset.etag) body.dataset.etag = page.body.dataset.etag;
    const slider = document.querySelector("[data-slider] [type=range]");
    const newer = page.querySelector("[data-slider] [type=range]");
    if (slider && newer) slider.max = newer.max;
    for (const region of document.querySelectorAll("[data-region]")) {
      const fresh = page.getElementById(region.id);
      if (fresh) swap(region, fresh);
    }
  }

  function swap(region, fresh) {
    if (region.innerHTML === fresh.innerHTML) return;
    const inUse = [...region.querySelectorAll("input:not([type=hidden]), textarea, select")].some(isTouched);
    if (inUse) return warn(region, fresh);
    const held = document.activeElement;
    const place = [...region.querySelectorAll(FOCUSED)].indexOf(held);
    const open = [...region.querySelectorAll("details")].map((one) => one.open);
    const scrolled = [...region.querySelectorAll(SCROLLS)].map(scrollOf);
    region.replaceChildren(...document.adoptNode(fresh).childNodes);
    region.querySelectorAll("details").forEach((one, n) => { one.open = open[n] ?? one.open; });
    region.querySelectorAll(SCROLLS).forEach((one, n) => { one.scrollTop = scrolled[n] ?? 0; });
    if (place >= 0) {
      const offered = [...region.querySelectorAll(FOCUSED)];
      const same = offered.find((one) => nameOf(one) === nameOf(held));
      (same ?? (held.matches("[tabindex]") ? offered[place] : null))?.focus({ preventScroll: true });
    }
  }

  function nameOf(element) {
    return element.getAttribute("href") ?? element.textContent;
  }

  // Where it was scrolled to. Who looks at the end of what still grows, goes on to look at its end.
  function scrollOf(box) {
    const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 4;
    return box.matches("[data-follow]") && atEnd ? Number.MAX_SAFE_INTEGER : box.scrollTop;
  }
  for (const box of document.querySelectorAll("[data-follow]")) box.scrollTop = box.scrollHeight;

  function isTouched(input) {
    if (input === document.activeElement) return true;
    if (input.type === "radio" || input.type === "checkbox") return input.checked !== input.defaultChecked;
    if (input.tagName === "SELECT") return [...input.options].some((one) => one.selected !== one.defaultSelected);
    return input.value !== input.defaultValue;
  }

  // A form that somebody fills in stays; but a question that is no longer open says so.
  function warn(region, fresh) {
    for (const question of region.querySelectorAll(".question")) {
      if (fresh.querySelector(`#${CSS.escape(question.id)}`) || question.querySelector(".closed")) continue;
      const note = document.createElement("p");
      note.className = "notice closed";
      note.setAttribute("role", "alert");
      note.textContent = "This question is no longer open: it was answered elsewhere.";
      question.prepend(note);
    }
  }

  // --- what changed: told by the one stream of this browser, or by one of our own while the tab is seen

  function lamp(state, word) {
    const found = document.getElementById("lamp");
    if (!found) return;
    found.dataset.state = state;
    document.getElementById("lamp-word").textContent = word || { on: "live", off: "not live", lost: "reconnecting" }[state];
  }

  function heard(message) {
    if (message.state) return lamp(message.state);
    if (message.mark && message.mark.etag && message.mark.etag === body.dataset.etag) return;
    soon();
  }

  function listenTogether() {
    const worker = new SharedWorker("/static/live.js");
    worker.port.onmessage = (event) => heard(event.data);
    worker.port.postMessage(topic);
    addEventListener("pagehide", () => worker.port.postMessage({ topic: "bye" }));
    addEventListener("pageshow", (event) => { if (event.persisted) worker.port.postMessage(topic); });
  }

  function listenAlone() {
    const query = new URLSearchParams(topic.run ? { run: topic.run } : { store: "true" });
    let source = null;
    const turn = () => {
      if (document.hidden && source) { source.close(); source = null; lamp("off"); }
      if (document.hidden || source) return;
      source = new EventSource(`/api/v1/events?${query}`);
      source.onopen = () => lamp("on");
      source.onerror = () => lamp("lost");
      for (const name of ["store", "run"]) source.addEventListener(name, (event) => heard({ mark: JSON.parse(event.data) }));
    };
    document.addEventListener("visibilitychange", turn);
    turn();
  }

  if (topic) {
    if (window.SharedWorker) listenTogether();
    else listenAlone();
    document.addEventListener("visibilitychange", () => { if (!document.hidden && stale) soon(); });
    setInterval(() => { if (!document.hidden) soon(); }, 30000); // so that "2 min ago" stays true
  }

  // --- the slider over a run's entries

  const slider = document.querySelector("[data-slider]");
  if (slider) {
    const range = slider.querySelector("[type=range]");
    let waiting = 0;
    let newest = 0;
    range.addEventListener("input", () => {
      document.getElementById("at-shown").textContent = range.value;
      clearTimeout(waiting);
      waiting = setTimeout(show, 90);
    });
    const show = async () => {
      const turn = ++newest;
      const url = new URL(slider.action);
      url.searchParams.set("at", range.value);
      const answer = await fetch(url, { headers: { Accept: "text/html" } });
      if (!answer.ok || turn !== newest) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      history.replaceState(null, "", url);
      swap(document.getElementById("region-state"), page.getElementById("region-state"));
      for (const id of ["step-back", "step-on"]) document.getElementById(id).replaceWith(page.getElementById(id));
    };
  }

  // --- keys

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "/") {
      const search = document.querySelector("[data-search]");
      if (search) { event.preventDefault(); search.focus(); search.select(); }
    } else if (event.key === "j" || event.key === "k") {
      const rows = [...document.querySelectorAll("[data-row]")].filter((row) => row.querySelector("a, button"));
      const here = rows.findIndex((row) => row.contains(document.activeElement));
      const next = rows[event.key === "j" ? here + 1 : Math.max(here - 1, 0)];
      next?.querySelector("a, button").focus();
    }
  });
})();
