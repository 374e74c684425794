"use strict";
// Shows the values under the pointer, and loads the page of a run that goes on again. Everything else of the page works
// without it. Text is never taken for markup.
(() => {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);

  function show(parts, x, y) {
    tip.replaceChildren(...parts);
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const room = document.documentElement.clientWidth;
    tip.style.left = `${Math.max(4, Math.min(x + 14, room - width - 4))}px`;
    tip.style.top = `${y - height - 12 > 4 ? y - height - 12 : y + 18}px`;
  }

  function element(name, text, className) {
    const made = document.createElement(name);
    made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  function nearest(data, x, y) {
    let best = 0, least = Infinity;
    data.x.forEach((place, index) => {
      const away = Math.abs(place - x) + (data.y ? Math.abs(data.y[index] - y) * 0.06 : 0);
      if (away < least) [best, least] = [index, away];
    });
    return best;
  }

  function lines(area, data, index) {
    const parts = [element("b", data.at[index])];
    data.series.forEach((series, number) => {
      const value = series.values[index];
      if (value === null) return;
      const line = element("div", "");
      if (series.name) {
        const key = element("i", "");
        key.style.background = `var(--s${(number % 8) + 1})`;
        line.append(key);
      }
      line.append(series.name ? `${series.name} ${value}` : value);
      parts.push(line);
    });
    return parts;
  }

  for (const area of document.querySelectorAll(".area")) {
    const data = JSON.parse(area.querySelector("script").textContent);
    const cursor = area.querySelector(".cursor");
    let index = 0;
    const hide = () => { tip.hidden = cursor.hidden = true; };
    const point = (x, y) => {
      cursor.style.left = `${data.x[index]}%`;
      cursor.hidden = false;
      show(lines(area, data, index), x, y);
    };
    const move = (event) => {
      const box = area.getBoundingClientRect();
      index = nearest(data, 100 * (event.clientX - box.left) / box.width, 100 * (event.clientY - box.top) / box.height);
      point(event.clientX, event.clientY);
    };
    area.addEventListener("pointermove", move);
    area.addEventListener("pointerdown", move);
    area.addEventListener("pointerleave", hide);
    area.addEventListener("blur", hide);
    area.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      index = Math.max(0, Math.min(data.x.length - 1, index + step));
      const box = area.getBoundingClientRect();
      point(box.left + box.width * data.x[index] / 100, box.top + 10);
    });
  }

  document.addEventListener("pointerover", (event) => {
    const cell = event.target.closest("[data-tip]");
    if (!cell) {
      if (!event.target.closest(".area")) tip.hidden = true;
      return;
    }
    const [title, ...rest] = cell.dataset.tip.split("\n");
    show([element("b", title), element("div", rest.join("\n"))], event.clientX, event.clientY);
  });
})();

// The page of a run that goes on is written anew again and again. Loading it again keeps what the reader has done: the
// place on the page, the parts that are open, and how far wide tables are scrolled.
(() => {
  const key = `warpsmith ${location.pathname}`;
  // Parts by a name that they have on the next page, too: section, headings of the parts around, own heading.
  function parts() {
    const found = new Map();
    let section = "";
    for (const each of document.querySelectorAll("h2, details, .card")) {
      if (each.tagName === "H2") { section = each.id; continue; }
      const names = [section];
      for (let part = each; part; part = part.parentElement.closest("details")) {
        names.push(part.tagName, part.querySelector("summary span, th")?.textContent ?? "");
      }
      let name = names.join(" "), count = 1;
      while (found.has(name)) name = `${names.join(" ")} ${++count}`;
      found.set(name, each);
    }
    return found;
  }

  function keep() {
    const open = {}, left = {};
    for (const [name, part] of parts()) {
      if (part.tagName === "DETAILS") open[name] = part.open;
      if (part.scrollLeft) left[name] = part.scrollLeft;
    }
    // The heading above the top of the window keeps its distance, also if sections before it have grown.
    const above = [...document.querySelectorAll("h2")].filter((each) => each.getBoundingClientRect().top <= 0).at(-1);
    const offset = above ? -above.getBoundingClientRect().top : scrollY;
    sessionStorage.setItem(key, JSON.stringify({ open, left, x: scrollX, above: above?.id, offset }));
  }

  function restore() {
    const kept = JSON.parse(sessionStorage.getItem(key) ?? "null");
    if (!kept) return;
    sessionStorage.removeItem(key);
    history.scrollRestoration = "manual";
    for (const [name, part] of parts()) {
      if (name in kept.open) part.open = kept.open[name];
      if (name in kept.left) part.scrollLeft = kept.left[name];
    }
    const above = kept.above && document.getElementById(kept.above);
    const top = above ? above.getBoundingClientRect().top + scrollY : 0;
    scrollTo({ left: kept.x, top: top + kept.offset, behavior: "instant" });
  }

  try {
    restore();
  } catch { /* a browser that keeps nothing shows the page from its top */ }

  const seconds = Number(document.documentElement.dataset.live ?? 0);
  if (!seconds) return;
  const again = () => {
    if (document.hidden || String(getSelection())) return setTimeout(again, 1000);
    try { keep(); } catch { /* as above */ }
    location.reload();
  };
  setTimeout(again, 1000 * seconds);
})();
