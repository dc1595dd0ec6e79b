"use strict";
// The page can be read without this script. The script filters, navigates, and shows changes side by side.
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const WIDE = 1200; // pixels from which changes are shown side by side at first

  // The reader's settings, in the storage of the browser. Browsers may have no storage for local files.
  const kept = {
    get(key) { try { return localStorage.getItem(`chirp-migrate-report-${key}`); } catch { return null; } },
    set(key, value) { try { localStorage.setItem(`chirp-migrate-report-${key}`, value); } catch { /* not kept, then */ } },
  };

  root.classList.add("js");
  setTheme(kept.get("theme"));
  root.dataset.view = kept.get("view") || (innerWidth >= WIDE ? "split" : "unified");
  document.addEventListener("DOMContentLoaded", start);

  function setTheme(theme) {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  }

  function start() {
    const hunks = all(".hunk");
    const items = all(".item");
    const filters = document.querySelector(".filters");
    const controls = { text: byId("by-text"), file: byId("by-file"), rule: byId("by-rule"), safety: byId("by-safety") };
    const findings = items.reduce((sum, one) => sum + Number(one.dataset.count), 0); // an item may stand for several
    let here = null;

    // Added files are long, so they are closed at first.
    for (const file of all(".file.added")) file.open = false;

    // --- colours -----------------------------------------------------------------------------------------------
    const themes = all("[data-theme][type=button]");
    const showTheme = () => {
      for (const one of themes) one.setAttribute("aria-pressed", String(one.dataset.theme === (root.dataset.theme || "auto")));
    };
    for (const one of themes) {
      one.addEventListener("click", () => { setTheme(one.dataset.theme); kept.set("theme", one.dataset.theme); showTheme(); });
    }
    showTheme();

    // --- side by side: unchanged lines are shown twice; a hunk is built when it is near the visible part -----------
    const twins = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) { twin(entry.target); twins.unobserve(entry.target); }
    }, { rootMargin: "1500px" });
    function twin(hunk) {
      if (hunk.dataset.twinned) return;
      hunk.dataset.twinned = "1";
      for (const line of all(".code > div[data-o]", hunk)) {
        const other = line.cloneNode(true);
        other.classList.add("twin");
        other.setAttribute("aria-hidden", "true");
        line.after(other);
      }
    }
    function setView(view) {
      root.dataset.view = view;
      byId("view").setAttribute("aria-pressed", String(view === "split"));
      if (view === "split") for (const hunk of hunks) twins.observe(hunk);
      else twins.disconnect();
    }
    const toggleView = () => {
      setView(root.dataset.view === "split" ? "unified" : "split");
      kept.set("view", root.dataset.view);
      if (here) here.scrollIntoView({ block: "nearest" });
    };
    setView(root.dataset.view);

    // --- filter ----------------------------------------------------------------------------------------------------
    const texts = new Map();
    function textOf(one) {
      if (!texts.has(one)) texts.set(one, `${one.dataset.file}\n${one.textContent}`.toLowerCase());
      return texts.get(one);
    }
    function apply() {
      const text = controls.text.value.trim().toLowerCase();
      const { file, rule, safety } = { file: controls.file.value, rule: controls.rule.value, safety: controls.safety.value };
      const wanted = (one) => (!file || one.dataset.file === file)
        && (!rule || one.dataset.rules.split(" ").includes(rule))
        && (!safety || one.dataset.safety.split(" ").includes(safety))
        && (!text || textOf(one).includes(text));
      let count = 0;
      for (const one of hunks) { one.hidden = !wanted(one); count += one.hidden ? 0 : 1; }
      let others = 0;
      for (const one of items) { one.hidden = !wanted(one); others += one.hidden ? 0 : Number(one.dataset.count); }
      for (const one of all(".file")) one.hidden = !one.querySelector(".hunk:not([hidden]), .item:not([hidden])");
      const active = Boolean(text || file || rule || safety);
      // Open the files that match the filter.
      if (active) for (const one of all(".file:not([hidden])")) one.open = true;
      const of = (part, whole) => (active ? `${part} of ${whole}` : whole);
      const noun = (number, word) => `${word}${number === 1 ? "" : "s"}`;
      const left = items.length ? ` and ${of(others, findings)} ${noun(findings, "finding")} not rewritten` : "";
      byId("shown").textContent = `Shown: ${of(count, hunks.length)} ${noun(hunks.length, "change")}${left}.`;
    }
    let waiting = 0;
    controls.text.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(apply, 120); });
    for (const one of [controls.file, controls.rule, controls.safety]) one.addEventListener("change", apply);
    filters.addEventListener("submit", (event) => event.preventDefault());
    filters.addEventListener("reset", () => setTimeout(apply));
    apply();

    // --- navigation ------------------------------------------------------------------------------------------------
    const bar = () => root.style.setProperty("--bar", `${getComputedStyle(filters).position === "sticky" ? filters.offsetHeight + 8 : 8}px`);
    new ResizeObserver(bar).observe(filters);
    const name = (hunk) => { try { history.replaceState(null, "", `#${hunk.id}`); } catch { /* some browsers, for local files */ } };
    function open(element) {
      for (let one = element; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
    }
    // The browser lays out content only near the visible part, so the target may move during scrolling. Scroll again.
    let going = null;
    function show(element, frames = 12) {
      going = element;
      const settle = (left) => {
        if (going !== element) return;
        element.scrollIntoView({ block: "start" });
        if (left) requestAnimationFrame(() => settle(left - 1));
      };
      settle(frames);
    }
    function goTo(hunk) {
      if (here) here.classList.remove("here");
      here = hunk;
      hunk.classList.add("here");
      open(hunk);
      hunk.querySelector("summary").focus({ preventScroll: true });
      show(hunk);
      name(hunk);
    }
    function step(direction) {
      const shown = hunks.filter((one) => !one.hidden);
      if (!shown.length) return;
      let at = shown.indexOf(here);
      if (at < 0) at = direction > 0 ? -1 : shown.length;
      goTo(shown[Math.min(Math.max(at + direction, 0), shown.length - 1)]);
    }
    function arrive() {
      let id = location.hash.slice(1);
      let target = byId(id);
      if (!target) { try { id = decodeURIComponent(id); target = byId(id); } catch { return; } }
      if (!target) return;
      if (target.closest("[hidden]")) { filters.reset(); for (const one of Object.values(controls)) one.value = ""; apply(); }
      if (target.classList.contains("hunk")) { goTo(target); return; }
      open(target);
      show(target);
    }
    for (const event of ["wheel", "touchstart", "pointerdown"]) addEventListener(event, () => { going = null; }, { passive: true });
    addEventListener("hashchange", arrive);
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a[href^='#']");
      // A second click on a link does not change the address, but the user may have closed the target of the link.
      if (link && link.getAttribute("href") === location.hash) { event.preventDefault(); arrive(); }
    });
    for (const hunk of hunks) {
      hunk.firstElementChild.addEventListener("focus", () => {
        if (here && here !== hunk) here.classList.remove("here");
        here = hunk;
        hunk.classList.add("here");
      });
    }
    // The browser scrolls to a wrong position if files are closed or opened, so the script scrolls after the browser.
    if (location.hash) history.scrollRestoration = "manual";
    addEventListener("load", () => setTimeout(arrive));

    // --- all at once, help, keys -------------------------------------------------------------------------------------
    const setAll = (open_) => { for (const one of hunks) one.open = open_; for (const one of all(".file")) one.open = one.open || open_; };
    const help = byId("help");
    byId("close-all").addEventListener("click", () => setAll(false));
    byId("open-all").addEventListener("click", () => setAll(true));
    byId("view").addEventListener("click", toggleView);
    byId("ask").addEventListener("click", () => help.showModal());
    help.querySelector("[data-close]").addEventListener("click", () => help.close());
    const keys = {
      j: () => step(1),
      k: () => step(-1),
      o: () => { if (here) here.open = !here.open; },
      u: toggleView,
      c: () => setAll(false),
      e: () => setAll(true),
      "/": () => { controls.text.focus(); controls.text.select(); },
      "?": () => help.showModal(),
    };
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
      const typing = event.target.closest("input, select, textarea");
      if (typing) { if (event.key === "Escape") typing.blur(); return; }
      const action = keys[event.key];
      if (action) { event.preventDefault(); action(); }
    });
    addEventListener("beforeprint", () => { for (const one of all("details")) one.open = true; });
  }
})();
