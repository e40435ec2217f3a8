"use strict";
/* Learning curves that can be asked: over which axis, only the last quarter, and what is the value here.
   Without this script the page shows the same curves, drawn once. */
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const BOX = { left: 50, right: 348, top: 26, bottom: 206 }, PANEL = 236;
  const look = { axis: "gradient steps", zoom: false };

  const el = (name, attributes, text) => {
    const found = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
    if (text !== undefined) found.textContent = text;
    return found;
  };

  const ticks = (low, high) => {
    if (!(high > low)) return [low];
    const power = 10 ** Math.floor(Math.log10((high - low) / 4));
    for (const factor of [10, 5, 2, 1]) {
      const step = factor * power, first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
      if (last - first + 1 < 3 && factor > 1) continue;
      return Array.from({ length: last - first + 1 }, (_, k) => +((first + k) * step).toFixed(10));
    }
    return [low];
  };

  const short = (v) => (v === 0 ? "0" : Math.abs(v) >= 1e6 ? `${+(v / 1e6).toPrecision(4)}M`
    : Math.abs(v) >= 1e4 ? `${+(v / 1e3).toPrecision(4)}k` : `${+v.toPrecision(4)}`);
  const amount = (v) => (Math.abs(v) >= 1e4 ? v.toFixed(0) : v.toFixed(Math.abs(v) < 1 ? 3 : 1));
  const span = (seconds) => (seconds < 100 ? `${seconds.toFixed(0)} s` : seconds < 6000 ? `${(seconds / 60).toFixed(1)} min`
    : `${(seconds / 3600).toFixed(1)} h`);
  const place = (v) => (look.axis === "seconds" ? span(v) : Math.round(v).toLocaleString("en"));

  /* The lines of a panel as they are to be drawn: over the chosen axis, from the first point that is shown. */
  const shown = (panel) => {
    const lines = panel.lines.filter((line) => line.x[look.axis]);
    const end = Math.max(...lines.map((line) => line.x[look.axis].at(-1)));
    const begin = Math.min(...lines.map((line) => line.x[look.axis][0]));
    const from = look.zoom ? begin + 0.75 * (end - begin) : begin < 0.2 * end ? 0 : begin;
    return { from, end, lines: lines.map((line) => {
      const first = Math.max(0, line.x[look.axis].findIndex((v) => v >= from));
      const cut = (values) => values && values.slice(first);
      return { ...line, x: cut(line.x[look.axis]), y: cut(line.y), spread: cut(line.spread),
        window: line.window < 0 ? -1 : Math.max(0, line.window - first) };
    }) };
  };

  const scales = (panel, { from, end, lines }) => {
    const part = document.getElementById("band-full") && document.getElementById("band-full").checked ? 1 : 0.5;
    let low = Infinity, high = -Infinity;
    for (const line of lines) {
      line.y.forEach((v, k) => {
        const spread = line.spread ? part * line.spread[k] : 0;
        low = Math.min(low, v - spread);
        high = Math.max(high, v + spread);
      });
    }
    const log = panel.logarithmic, at = log ? (v) => Math.log10(Math.max(v, 1e-6)) : (v) => v;
    if (low === high) [low, high] = [low - 1, high + 1];
    const marks = log ? [] : ticks(low, high);
    if (log) for (let p = Math.floor(at(low)); p <= Math.ceil(at(high)); p++) marks.push(10 ** p);
    const bottom = Math.min(at(low), at(marks[0])), top = Math.max(at(high), at(marks.at(-1)));
    const x = (v) => BOX.left + ((v - from) / Math.max(end - from, 1e-9)) * (BOX.right - BOX.left);
    const y = (v) => BOX.bottom - ((at(v) - bottom) / Math.max(top - bottom, 1e-9)) * (BOX.bottom - BOX.top);
    return { x, y, marks };
  };

  const path = (points) => `M${points.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L")}`;

  const draw = (group, panel) => {
    const view = shown(panel);
    if (!view.lines.length) {
      group.replaceChildren(el("text", { class: "title", x: BOX.left, y: BOX.top - 10 }, panel.title),
        el("text", { class: "tick", x: BOX.left, y: 60 }, `not recorded over ${look.axis}`));
      return;
    }
    const { x, y, marks } = scales(panel, view), parts = [];
    parts.push(el("text", { class: "title", x: BOX.left, y: BOX.top - 10 }, panel.title));
    for (const t of marks) {
      parts.push(el("path", { class: "rule", d: `M${BOX.left} ${y(t)}H${BOX.right}` }),
        el("text", { class: "tick", x: BOX.left - 6, y: y(t) + 4, "text-anchor": "end" }, short(t)));
    }
    for (const t of ticks(view.from, view.end)) {
      parts.push(el("text", { class: "tick", x: x(t), y: BOX.bottom + 16,
        "text-anchor": x(t) > BOX.right - 12 ? "end" : "middle" }, look.axis === "seconds" ? span(t) : short(t)));
    }
    for (const line of view.lines.filter((each) => each.spread)) {
      for (const [name, part] of [["full", 1], ["half", 0.5]]) {
        const edge = (sign) => line.x.map((v, k) => [x(v), y(line.y[k] + sign * part * line.spread[k])]);
        parts.push(el("path", { class: `band ${name} c${line.colour}`, d: `${path([...edge(1), ...edge(-1).reverse()])}Z` }));
      }
    }
    for (const line of view.lines) {
      const points = line.x.map((v, k) => [x(v), y(line.y[k])]), end = points.at(-1);
      parts.push(el("path", { class: `curve c${line.colour}`, d: path(points) + (points.length === 1 ? "h3" : "") }));
      if (line.window >= 0) {
        parts.push(el("path", { class: `last c${line.colour}`, d: `M${points[line.window][0]} ${end[1]}H${end[0]}` }),
          el("circle", { class: `end c${line.colour}`, cx: end[0], cy: end[1], r: 3.2 }));
      }
    }
    parts.push(el("g", { class: "cursor" }));
    group.replaceChildren(...parts);
    group.view = { ...view, x, y };
  };

  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;

  /* Values of all lines of a panel at a place of its axis. */
  const read = (group, panel, wanted) => {
    const { lines, x, y } = group.view, rows = [];
    const closest = (line) => line.x.reduce((best, v, k) => (Math.abs(v - wanted) < Math.abs(line.x[best] - wanted) ? k : best), 0);
    const cursor = [el("path", { class: "rule strong", d: `M${x(wanted)} ${BOX.top}V${BOX.bottom}` })];
    for (const line of lines) {
      const k = closest(line);
      if (Math.abs(line.x[k] - wanted) > 0.06 * (group.view.end - group.view.from) + 1e-9) continue;
      rows.push([line.y[k], line, k]);
      cursor.push(el("circle", { class: `end c${line.colour}`, cx: x(line.x[k]), cy: y(line.y[k]), r: 4 }));
    }
    group.querySelector(".cursor").replaceChildren(...cursor);
    const head = document.createElement("strong");
    head.textContent = `${panel.title}, ${place(wanted)} ${look.axis === "seconds" ? "" : look.axis}`;
    tip.replaceChildren(head, ...rows.sort((a, b) => b[0] - a[0]).map(([value, line, k]) => {
      const row = document.createElement("div"), key = document.createElement("i"), name = document.createElement("span");
      key.className = `chart c${line.colour}`;
      name.textContent = line.name;
      row.append(key, name, `${amount(value)}${line.spread ? ` ± ${amount(line.spread[k])}` : ""}`);
      return row;
    }));
    const frame = group.getBoundingClientRect(), page = document.documentElement;
    tip.hidden = false;
    const left = frame.left + page.scrollLeft + frame.width * (x(wanted) < (BOX.left + BOX.right) / 2 ? 0.55 : 0.02);
    tip.style.left = `${Math.max(4, Math.min(left, page.clientWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${frame.top + page.scrollTop - tip.offsetHeight - 4}px`;
  };

  const forget = (group) => {
    group.querySelector(".cursor")?.replaceChildren();
    tip.hidden = true;
  };

  const attend = (group, panel) => {
    const zone = (event) => {
      const inverse = group.getScreenCTM().inverse(), at = new DOMPoint(event.clientX, event.clientY).matrixTransform(inverse);
      const { from, end } = group.view, share = (at.x - BOX.left) / (BOX.right - BOX.left);
      return share < -0.02 || share > 1.02 ? null : from + Math.min(1, Math.max(0, share)) * (end - from);
    };
    const catcher = el("rect", { x: 0, y: 0, width: BOX.right + 12, height: PANEL, class: "catcher" });
    group.before(catcher);
    catcher.setAttribute("transform", group.getAttribute("transform"));
    group.setAttribute("tabindex", "0");
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", `${panel.title}: arrow keys read values`);
    let wanted = null;
    const point = (event) => {
      wanted = group.view ? zone(event) : null;
      if (wanted === null) forget(group);
      else read(group, panel, wanted);
    };
    catcher.addEventListener("pointermove", point);
    catcher.addEventListener("pointerdown", point);
    catcher.addEventListener("pointerleave", () => {
      wanted = null;
      forget(group);
    });
    group.addEventListener("blur", () => forget(group));
    group.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!way || !group.view) return;
      event.preventDefault();
      const { from, end } = group.view;
      wanted = Math.min(end, Math.max(from, (wanted ?? (way > 0 ? from : end)) + (way * (end - from)) / 40));
      read(group, panel, wanted);
    });
  };

  const figures = [...document.querySelectorAll("figure.live")].flatMap((figure) => {
    const panels = JSON.parse(figure.querySelector("script").textContent);
    return [...figure.querySelectorAll("g.panel")].map((group, k) => [group, panels[k]]);
  });
  const redraw = () => { for (const [group, panel] of figures) draw(group, panel); };

  const controls = () => {
    const axes = [...new Set(figures.flatMap(([, panel]) => panel.lines.flatMap((line) => Object.keys(line.x))))];
    const set = document.createElement("fieldset");
    set.setAttribute("aria-label", "axis");
    set.append(Object.assign(document.createElement("span"), { textContent: "over:" }));
    for (const name of axes) {
      const label = document.createElement("label"), box = document.createElement("input");
      Object.assign(box, { type: "radio", name: "axis", value: name, checked: name === look.axis });
      box.addEventListener("change", () => { look.axis = name; redraw(); });
      label.append(box, name === "seconds" ? " wall time" : ` ${name}`);
      set.append(label);
    }
    const label = document.createElement("label"), zoom = document.createElement("input");
    Object.assign(zoom, { type: "checkbox", id: "zoom" });
    zoom.addEventListener("change", () => { look.zoom = zoom.checked; redraw(); });
    label.append(zoom, " only the last quarter");
    set.append(label);
    const before = document.querySelector("fieldset");
    if (before) before.after(set);
    else figures[0][0].closest("figure").before(set);
    for (const band of document.querySelectorAll("input[name=band]")) band.addEventListener("change", redraw);
  };

  for (const [group, panel] of figures) attend(group, panel);
  document.body.append(tip);
  controls();
  redraw();
})();
