// Live updates of a run, and links to the lines of its log. Without this file every page still reads.
"use strict";

(() => {
  const live = document.getElementById("live");
  const log = document.getElementById("log");

  // A click on the number of a line puts its link into the address bar.
  if (log) {
    log.addEventListener("click", (event) => {
      const line = event.target;
      const number = line.tagName === "LI" && event.offsetX < 48;
      if (number) location.hash = line.id;
    });
  }
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const fold = target.closest("details");
    if (fold) fold.open = true;
    target.scrollIntoView({ block: "center" });
  };
  addEventListener("hashchange", reveal);
  reveal();

  if (!live || !live.dataset.events || !window.EventSource) return;

  const follow = document.getElementById("follow");
  let following = !location.hash;
  const show = () => {
    follow.hidden = false;
    follow.setAttribute("aria-pressed", String(following));
  };
  follow.addEventListener("click", () => {
    following = !following;
    show();
    if (following) toEnd();
  });
  show();
  const toEnd = () => { log.scrollTop = log.scrollHeight; };
  // Whoever scrolls up wants to read, not to be carried away.
  log.addEventListener("wheel", (event) => { if (event.deltaY < 0 && following) { following = false; show(); } }, { passive: true });

  const most = 20000;
  const section = (step) => {
    let fold = log.querySelector(`details[data-step="${CSS.escape(step)}"]`);
    if (!fold) {
      fold = document.createElement("details");
      fold.className = "step";
      fold.id = "step-" + step;
      fold.dataset.step = step;
      fold.open = true;
      const summary = document.createElement("summary");
      const name = document.createElement("span");
      name.textContent = step;
      summary.append(name);
      const list = document.createElement("ol");
      list.className = "lines";
      fold.append(summary, list);
      log.append(fold);
      const empty = document.getElementById("nolog");
      if (empty) empty.remove();
    }
    return fold.querySelector("ol");
  };

  let source = null;
  let place = new URLSearchParams(live.dataset.events.split("?")[1]).get("from");
  const path = live.dataset.events.split("?")[0];
  const seen = (event) => { if (event.lastEventId) place = event.lastEventId; };
  const connect = () => {
    if (source) return;
    source = new EventSource(path + "?from=" + encodeURIComponent(place));
    source.addEventListener("run", (event) => {
      seen(event);
      // A form that somebody is about to use is not replaced under the pointer.
      if (!live.contains(document.activeElement) || document.activeElement === document.body) live.innerHTML = event.data;
    });
    source.addEventListener("log", (event) => {
      seen(event);
      const { step, html } = JSON.parse(event.data);
      const list = section(step);
      list.insertAdjacentHTML("beforeend", html);
      while (list.children.length > most) list.firstElementChild.remove();
      if (following) toEnd();
    });
    // A line can come before the status that says whose it is.
    source.addEventListener("fold", (event) => {
      seen(event);
      const { step, line } = JSON.parse(event.data);
      const list = section(step);
      const late = [...log.querySelectorAll("ol.lines li")].filter((one) => one.value >= line && one.parentElement !== list);
      list.append(...late);
      for (const fold of [...log.querySelectorAll("details.step")]) {
        if (!fold.querySelector("li")) fold.remove();
      }
      if (following) toEnd();
    });
    source.addEventListener("end", (event) => {
      seen(event);
      stop();
      follow.hidden = true;
      live.removeAttribute("data-events");
      document.removeEventListener("visibilitychange", visible);
    });
    source.onerror = () => {
      // A browser that gave up starts again where it was.
      if (source && source.readyState === EventSource.CLOSED) { stop(); setTimeout(connect, 2000); }
    };
  };
  const stop = () => { if (source) source.close(); source = null; };
  // A browser has six connections to one host: a tab that nobody sees holds none.
  const visible = () => { if (document.hidden) stop(); else connect(); };
  document.addEventListener("visibilitychange", visible);
  addEventListener("pagehide", stop);
  connect();
})();
