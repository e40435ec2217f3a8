/* The proof stage by stage, the episode's values over its steps, and the table of who found what. */
const Proof = (() => {
  const { el, svg, scale, labelled, number, gap, polyline, icon } = Drawing;

  const CLIP = "url(#in-proof)";

  const ends = (model) => (model.here.ascents || []).map((path) => Network.value(model.net, path[path.length - 1]));

  /* Pre-search bounds can be far up: the search itself decides what is drawn, and they are clipped and named. */
  const heights = (stages, value, lost) => {
    const searched = stages.filter((stage) => stage[1] !== null);
    const low = Math.min(value, ...lost, ...searched.map((stage) => stage[1]));
    /* A search that is done at its first node leaves only the bound before it to look at. */
    const before = stages.filter((stage) => stage[1] === null).map((stage) => stage[2]), known = searched[0][2] - value;
    const first = known > 1e-5 * Math.max(1, Math.abs(value)) || !before.length ? known : Math.min(...before) - value;
    const reach = Math.max(first, 0.25 * (value - low), 0.002 * Math.abs(value), 1e-4);
    return [low - 0.18 * (reach + value - low), value + 1.35 * reach + 0.1 * (value - low)];
  };

  const draw = (holder, model, stage) => {
    const width = Math.max(260, holder.clientWidth), height = 250, { here } = model, stages = here.stages;
    const box = { left: 56, right: width - 14, top: 22, bottom: height - 42 };
    const lost = ends(model).filter((v) => here.value - v > 1e-3 * Math.max(1, Math.abs(here.value)));
    const [bottom, top] = heights(stages, here.value, lost), y = scale(bottom, top, box.bottom, box.top);
    const x = scale(0, Math.max(stages.length - 1, 1), box.left + 22, box.right - 22);
    const drawing = svg(width, height, `upper bound over ${stages.length} stages, closing on ${number(here.value)}`);
    for (const [t, text] of labelled(bottom, top, 4)) {
      drawing.append(el("path", { class: "rule", d: `M${box.left} ${y(t)}H${box.right}` }),
        el("text", { x: box.left - 7, y: y(t) + 4, "text-anchor": "end" }, text));
    }
    const every = Math.ceil(stages.length / (width / 66)), last = stages.length - 1;
    stages.forEach(([name], k) => {
      if (k !== last && (k % every || last - k < every)) return;
      const words = name.split(" ");
      drawing.append(el("text", { x: x(k), y: box.bottom + 17, "text-anchor": "middle" }, words[0]),
        el("text", { x: x(k), y: box.bottom + 31, "text-anchor": "middle" }, words[1]));
    });
    for (const v of new Set(lost.map((v) => +v.toFixed(4)))) {
      drawing.append(el("path", { class: "lost", d: `M${box.left} ${y(v)}H${box.right}` }));
    }
    if (lost.length) {
      drawing.append(el("text", { class: "lost", x: box.left + 4, y: y(Math.min(...lost)) + 14 },
        `${lost.length} of ${here.ascents.length} ascents end below the maximum`));
    }
    drawing.append(el("clipPath", { id: "in-proof" },
      el("rect", { x: 0, y: box.top - 6, width, height: height - box.top })));
    lines(drawing, stages, stage, x, y, box);
    holder.replaceChildren(drawing);
  };

  const lines = (drawing, stages, stage, x, y, box) => {
    const searched = stages.map((each, k) => [each, k]).filter(([each]) => each[1] !== null);
    const upper = stages.map((each, k) => [x(k), y(each[2])]), worth = searched.map(([each, k]) => [x(k), y(each[1])]);
    const back = [...worth].reverse(), from = searched[0][1];
    drawing.append(el("path", { class: "gap", d: polyline([...upper.slice(from), ...back]) + "Z", "clip-path": CLIP }));
    drawing.append(el("path", { class: "bound to-come", d: polyline(upper), "clip-path": CLIP }), el("path", { class: "worth to-come", d: polyline(worth) }));
    const past = worth.slice(0, Math.max(0, stage - from + 1));
    drawing.append(el("path", { class: "bound", d: polyline(upper.slice(0, stage + 1)), "clip-path": CLIP }));
    if (past.length) drawing.append(el("path", { class: "worth", d: polyline(past) }));
    upper.forEach(([px, py], k) => {
      const clipped = py < box.top - 6, shown = k <= stage ? "" : "to-come";
      if (clipped && (k === 0 || px - upper[0][0] > 56)) drawing.append(el("text", { class: `on-bound ${shown}`, x: px, y: box.top - 9, "text-anchor": "middle" }, `▲ ${number(stages[k][2], 1)}`));
      if (!clipped) drawing.append(el("circle", { class: `dot bound ${shown}`, cx: px, cy: py, r: k === stage ? 6 : 4 }));
    });
    worth.forEach(([px, py], k) => {
      drawing.append(el("circle", { class: `dot worth ${k + from <= stage ? "" : "to-come"}`, cx: px, cy: py, r: k + from === stage ? 6 : 4 }));
    });
  };

  /* The stage in a sentence. */
  const sentence = ({ here }, stage) => {
    const [name, value, upper] = here.stages[stage], b = (text) => `<b>${text}</b>`;
    if (value === null) return `Before the search, the ${name} says: no action is worth more than ${b(number(upper))}.`;
    const left = upper - value, done = stage === here.stages.length - 1 && here.proved;
    const known = `After ${b(name)}: no action is worth more than ${b(number(upper, 3))}, and one is worth ${b(number(value, 3))}.`;
    return done ? `${known} The gap is ${b(gap(Math.max(left, 0)))}: <b class="zero">proved</b>.` : `${known} The gap is ${b(gap(left))}.`;
  };

  /* The proved maximum over the states, with the one that is chosen. */
  const timeline = (holder, data, chosen) => {
    const width = Math.max(240, holder.clientWidth), height = 96, states = data.states;
    const box = { left: 50, right: width - 8, top: 8, bottom: height - 22 };
    const place = (k) => (states[k].step === undefined ? k : states[k].step);
    const values = states.map((each) => each.value);
    const x = scale(place(0), place(states.length - 1), box.left, box.right);
    const y = scale(Math.min(...values), Math.max(...values), box.bottom, box.top);
    const drawing = svg(width, height, "the proved maximum of Q over the states");
    for (const [t, text] of labelled(Math.min(...values), Math.max(...values), 2)) {
      drawing.append(el("path", { class: "rule", d: `M${box.left} ${y(t)}H${box.right}` }),
        el("text", { x: box.left - 7, y: y(t) + 4, "text-anchor": "end" }, text));
    }
    drawing.append(el("path", { class: "worth", d: polyline(values.map((v, k) => [x(place(k)), y(v)])) }),
      el("path", { class: "now", d: `M${x(place(chosen))} ${box.top - 4}V${box.bottom + 4}` }),
      el("circle", { class: "dot worth", cx: x(place(chosen)), cy: y(values[chosen]), r: 5.5 }),
      el("text", { x: box.left, y: height - 4 }, "max Q(x, ·), proved, over the states"));
    holder.replaceChildren(drawing);
    return (position) => {
      const wanted = x.back(position * (width / holder.clientWidth));
      return states.reduce((best, _, k) => (Math.abs(place(k) - wanted) < Math.abs(place(best) - wanted) ? k : best), 0);
    };
  };

  const table = (body, note, data, model) => {
    const { here, net } = model, rows = [["best", here.proved ? "proved maximum" : "best known", here.best]];
    const last = (path) => path[path.length - 1];
    if (here.guess) rows.push(["guess", "action function", here.guess]);
    if (here.ascents) rows.push(["ascents", here.guess ? "ascent from there" : "ascent from the centre", last(here.ascents[0])]);
    if (here.elites) rows.push(["elites", "cross-entropy", last(here.elites)]);
    body.replaceChildren(...rows.map(([kind, name, action]) => {
      const q = kind === "best" ? here.value : Network.value(net, action), short = Math.max(0, here.value - q);
      const none = short < 1e-4 * Math.max(1, Math.abs(here.value)) * 0.1;
      const cells = [name, number(q, 3), kind === "best" ? "" : none ? "0" : number(short, 3),
        Array.from(action, (v) => number(v, 2)).slice(0, 6).join("  ") + (action.length > 6 ? " …" : "")];
      const line = document.createElement("tr");
      cells.forEach((text, k) => {
        const cell = document.createElement("td");
        if (k === 0) cell.append(icon(kind));
        if (k === 2 && text) cell.className = none ? "zero" : "short";
        if (k === 3) cell.className = "action";
        cell.append(text);
        line.append(cell);
      });
      return line;
    }));
    const found = ends(model), well = found.filter((v) => here.value - v <= 1e-3 * Math.max(1, Math.abs(here.value))).length;
    note.textContent = found.length
      ? `Of ${found.length} ascents, from the first choice and from random actions, ${well} reach the maximum.` : "";
  };

  return { draw, sentence, timeline, table };
})();
