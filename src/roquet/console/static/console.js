// What pages need beyond links and forms: the token of the sign-in address, charts, the live
// tail, names typed before something is deleted, and keys. Texts of a cluster are only ever set
// as text, never as HTML.
"use strict";

(() => {
  const TAIL_MAX = 200;
  const EVERY_MS = 5000;
  const root = document.body.dataset.root;

  // The token stands behind a #, so that no server and no log on the way gets to see it.
  // Where the page is open already, following the link only changes what is behind the #.
  const byToken = document.getElementById("by-token");
  const signIn = () => {
    if (!byToken || location.hash.length <= 1) return;
    byToken.elements.token.value = decodeURIComponent(location.hash.slice(1));
    history.replaceState(null, "", location.pathname);
    byToken.submit();
  };
  signIn();
  window.addEventListener("hashchange", signIn);

  // On a phone the pages stand in one row: the one that is open is to be seen.
  const current = document.querySelector(".side [aria-current]");
  if (current) current.scrollIntoView({ block: "nearest", inline: "center" });

  for (const form of document.querySelectorAll("form[data-typed]")) {
    const button = form.querySelector("button");
    const check = () => {
      button.disabled = form.elements.confirm.value !== form.dataset.typed;
    };
    form.addEventListener("input", check);
    check();
  }

  for (const all of document.querySelectorAll("[data-all]")) {
    all.addEventListener("change", () => {
      for (const box of all.form.querySelectorAll('input[name="id"]')) box.checked = all.checked;
    });
  }

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    });
  }

  for (const back of document.querySelectorAll("[data-back]")) {
    back.addEventListener("click", (event) => {
      if (history.length > 1) {
        event.preventDefault();
        history.back();
      }
    });
  }

  // --- tables wider than the screen: said, and reached by keys ------------------------------

  function mark(place) {
    const before = place.previousElementSibling;
    let sign = before && before.classList.contains("more") ? before : null;
    if (!sign) {
      sign = document.createElement("p");
      sign.className = "more";
      sign.textContent = "More columns: scroll sideways \u2192";
      place.before(sign);
    }
    const isWide = place.scrollWidth > place.clientWidth + 1;
    const isScrolled = isWide || place.scrollHeight > place.clientHeight + 1;
    sign.classList.toggle("on", isWide);
    place.classList.toggle("wide", isWide);
    if (isScrolled) {
      const heading = place.closest("section, main").querySelector("h2, h1");
      place.tabIndex = 0;
      place.setAttribute("role", "region");
      place.setAttribute("aria-label", heading ? `Table: ${heading.textContent}` : "Table");
    } else {
      for (const it of ["tabindex", "role", "aria-label"]) place.removeAttribute(it);
    }
  }
  const markAll = () => document.querySelectorAll(".scroll").forEach(mark);
  markAll();
  addEventListener("resize", markAll);
  document.addEventListener("toggle", markAll, true);
  document.addEventListener("htmx:afterSettle", markAll);

  // --- charts ------------------------------------------------------------------------------

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Pages show times in UTC, so charts do, too.
  const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19);

  function chart(place) {
    const names = place.dataset.series.split(",");
    let plot = null;
    const make = (data) => {
      const strokes = [colour("--link"), colour("--amber")];
      const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
      place.replaceChildren();
      plot = new uPlot({
        width: place.clientWidth - 16,
        height: 200,
        scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
        axes: [
          // A label has seconds: steps below one would show it twice.
          { ...axis, space: 80, incrs: [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600], values: (_, splits) => splits.map(clock) },
          { ...axis, size: 60 },
        ],
        series: [
          { label: "UTC", value: (_, at) => (at === null ? "-" : clock(at)) },
          ...names.map((name, at) => ({ label: name, stroke: strokes[at], width: 2 })),
        ],
      }, data, place);
    };
    const look = async () => {
      if (document.hidden) return;
      const answer = await fetch(place.dataset.chart, { headers: { "HX-Request": "true" } });
      if (!answer.ok) return;
      const found = await answer.json();
      if (found.time_ms.length < 2) return;
      const data = [found.time_ms.map((it) => it / 1000), ...names.map((name) => found[name])];
      if (plot) plot.setData(data);
      else make(data);
    };
    addEventListener("resize", () => plot && plot.setSize({ width: place.clientWidth - 16, height: 200 }));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { plot = null; look(); });
    look();
    setInterval(look, EVERY_MS);
  }
  document.querySelectorAll("[data-chart]").forEach(chart);

  // --- the live tail -----------------------------------------------------------------------

  function tail(place) {
    const button = place.querySelector("[data-start]");
    const state = place.querySelector("[data-state]");
    const only = place.querySelector("[data-only]");
    const list = place.querySelector("ol");
    let source = null;
    let count = 0;
    const element = (kind, text, ...classes) => {
      const made = document.createElement(kind);
      made.textContent = text;
      made.classList.add(...classes);
      return made;
    };
    const put = (item) => {
      list.prepend(item);
      while (list.children.length > TAIL_MAX) list.lastChild.remove();
    };
    const stop = (text) => {
      if (source) source.close();
      source = null;
      button.textContent = "Follow";
      state.textContent = text;
    };
    button.addEventListener("click", () => {
      if (source) {
        stop(`Stopped after ${count} messages.`);
        return;
      }
      count = 0;
      const asked = new URLSearchParams({ topic: place.dataset.topic });
      for (const name of ["tag", "sql"]) {
        const value = place.querySelector(`[data-${name}]`).value.trim();
        if (value) asked.set(name, value);
      }
      source = new EventSource(`${place.dataset.tail}?${asked}`);
      button.textContent = "Stop";
      state.textContent = "Connecting ...";
      source.addEventListener("ready", () => { state.textContent = "Following: new messages come on top."; });
      source.addEventListener("message", (event) => {
        const it = JSON.parse(event.data);
        const text = [it.tag, it.keys, it.body].filter(Boolean).join("  ");
        if (only.value && !text.includes(only.value)) return;
        count += 1;
        const item = document.createElement("li");
        const link = element("a", new Date(it.stored_ms).toISOString().slice(11, 19), "at");
        const query = new URLSearchParams({ topic: place.dataset.topic, id: it.id });
        link.href = `${root}/message?${query}`;
        item.append(link, element("span", `${it.queue} @${it.offset}`, "at"), element("span", text, "said"));
        put(item);
        state.textContent = `Following: ${count} messages.`;
      });
      source.addEventListener("skipped", (event) => {
        put(element("li", `${JSON.parse(event.data).count} messages passed over: too many at once`, "dim"));
      });
      source.addEventListener("trouble", (event) => { state.textContent = JSON.parse(event.data).error; });
      source.addEventListener("end", () => stop("It ended: follow again to go on."));
      source.onerror = () => { if (source) stop(count ? "The connection ended: follow again to go on." : "It cannot be followed so: check the filters, or follow again."); };
    });
  }
  document.querySelectorAll("[data-tail]").forEach(tail);

  // --- keys: / for the filter, g and a letter for a page ------------------------------------

  let afterG = false;
  addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      const field = document.querySelector("[data-focus]");
      if (field) {
        event.preventDefault();
        field.focus();
      }
    } else if (afterG) {
      const link = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
      if (link) link.click();
    }
    afterG = event.key === "g" && !afterG;
  });
})();
