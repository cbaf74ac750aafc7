// Live refresh: htmx asks for the page again, and idiomorph changes only what differs. This pauses it, announces
// changes to screen readers, keeps what the user looks at in place, and says when the server is gone.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const pause = byId("pause");
  const lost = byId("lost");
  const said = byId("said");
  let paused = false;

  Idiomorph.defaults.ignoreActiveValue = true;

  const isBusy = () => {
    const selection = document.getSelection();
    return Boolean(selection && !selection.isCollapsed && String(selection).trim());
  };

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Resume" : "Pause";
    said.textContent = paused ? "Refreshing is paused" : "Refreshing goes on";
  });

  document.body.addEventListener("htmx:beforeRequest", (event) => {
    const polls = /^every /.test(event.detail.elt.getAttribute("hx-trigger") || "");
    if (polls && (paused || document.hidden || isBusy())) event.preventDefault();
  });

  // What the user looks at stays where it is when something above it appears or goes.
  let anchors = [];
  const anchored = () => {
    const main = byId("main");
    const focused = document.activeElement;
    if (focused !== main && main.contains(focused)) return [focused];
    if (window.scrollY < 10) return [];
    const inView = (each) => each.getBoundingClientRect().top > 0;
    return [...main.querySelectorAll("h2, tbody tr")].filter(inView).slice(0, 12);
  };
  document.body.addEventListener("htmx:beforeSwap", () => {
    anchors = anchored().map((element) => ({ element, top: element.getBoundingClientRect().top }));
  });
  document.body.addEventListener("htmx:afterSwap", () => {
    const anchor = anchors.find((each) => each.element.isConnected);
    if (anchor) window.scrollBy({ top: anchor.element.getBoundingClientRect().top - anchor.top, behavior: "instant" });
    anchors = [];
  });

  const gone = (text) => {
    lost.textContent = text;
    lost.hidden = false;
  };
  document.body.addEventListener("htmx:sendError", () => gone("The connection is lost: nodesmith ui has ended. What is shown is old."));
  document.body.addEventListener("htmx:timeout", () => gone("nodesmith ui did not answer in time. What is shown is old."));
  document.body.addEventListener("htmx:responseError", (event) => {
    const code = event.detail.xhr.status;
    if (code === 404) gone("This is gone from the cluster. What is shown is old.");
    else gone("The page could not be refreshed (" + code + "). What is shown is old.");
  });

  let badges = document.querySelector("#nav").textContent;
  document.body.addEventListener("htmx:afterSettle", (event) => {
    lost.hidden = true;
    const moment = byId("moment");
    const range = byId("at");
    if (moment && range) range.setAttribute("aria-valuetext", moment.dataset.label);
    const now = document.querySelector("#nav").textContent;
    if (now !== badges) {
      badges = now;
      const told = [...document.querySelectorAll("#nav .badge")].map((each) => each.textContent.trim());
      said.textContent = told.join(", ") || "nothing is pending";
    }
  });
})();
