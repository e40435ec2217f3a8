/* Q over one action, the others held: exact pieces with their kinks, the bound above, and what each method chose. */
const Slices = (() => {
  const { el, svg, scale, labelled, number, polyline, mark } = Drawing;

  /* What is drawn between: the curve, and as much of the room up to the bound as leaves the curve readable. */
  const heights = (values, value, upper) => {
    const low = Math.min(...values), high = Math.max(...values, value), range = Math.max(high - low, 1e-6);
    return [low - 0.1 * range, Math.min(Math.max(upper, high + 0.12 * range), high + 0.8 * range) + 0.1 * range];
  };

  const frame = (box, x, y, names) => {
    const group = el("g", {});
    for (const [t, text] of labelled(y.back(box.bottom), y.back(box.top), 3)) {
      group.append(el("path", { class: "rule", d: `M${box.left} ${y(t)}H${box.right}` }),
        el("text", { x: box.left - 6, y: y(t) + 4, "text-anchor": "end" }, text));
    }
    for (const [t, text] of labelled(x.back(box.left), x.back(box.right), 4)) {
      group.append(el("text", { x: x(t), y: box.bottom + 17, "text-anchor": "middle" }, text));
    }
    group.append(el("text", { class: "strong", x: box.right, y: box.bottom + 32, "text-anchor": "end" }, names));
    return group;
  };

  const admissible = (span, box, x) => {
    const [from, to] = span.map(x), group = el("g", {});
    group.append(el("path", { class: "outside", d:
      `M${box.left} ${box.top}H${from}V${box.bottom}H${box.left}ZM${to} ${box.top}H${box.right}V${box.bottom}H${to}Z` }));
    return group;
  };

  /* One curve in `holder`, of a width and height; returns its scales. */
  const draw = (holder, data, model, look, { index, height, large }) => {
    const width = Math.max(220, holder.clientWidth), { net, here } = model, { low, high } = model.range;
    const box = { left: 52, right: width - 12, top: 12, bottom: height - 40 };
    const places = Network.kinks(net, here.best, index, low[index], high[index]);
    const q = (t) => Network.value(net, Network.moved(here.best, [[index, t]]));
    const values = places.map(q), upper = model.stage[2];
    const x = scale(low[index], high[index], box.left, box.right);
    const [bottom, top] = heights(values, here.value, upper), y = scale(bottom, top, box.bottom, box.top);
    const drawing = svg(width, height, `Q over ${data.names[index]}: ${places.length - 1} linear pieces, `
      + `proved maximum ${number(here.value)} at ${number(here.best[index])}`);
    drawing.append(frame(box, x, y, data.names[index]));
    const level = Math.max(box.top, y(upper)), over = y(upper) < box.top;
    drawing.append(el("rect", { class: "gap", x: box.left, width: box.right - box.left, y: level,
      height: Math.max(0, y(here.value) - level) }));
    drawing.append(el("path", { class: "bound level", d: `M${box.left} ${level}H${box.right}` }));
    if (large || over) {
      drawing.append(el("text", { class: "on-bound", x: box.right, y: level + (over ? 14 : -5), "text-anchor": "end" },
        `${over ? "▲ " : ""}upper bound ${number(upper)}`));
    }
    if (here.spans) drawing.append(admissible(here.spans[index], box, x));
    drawing.append(el("path", { class: "curve", d: polyline(places.map((t, k) => [x(t), y(values[k])])) }));
    if (look.show.pieces) {
      for (let k = 1; k + 1 < places.length; k++) {
        drawing.append(el("circle", { class: "kink", cx: x(places[k]), cy: y(values[k]), r: large ? 3.2 : 2.2 }));
      }
    }
    marks(drawing, model, look, index, (t) => [x(t), y(q(t))], large ? 1 : 0.72);
    drawing.append(el("g", { class: "probe-marks" }));
    holder.replaceChildren(drawing);
    return { x, y, q, box, svg: drawing };
  };

  const marks = (drawing, { here }, { show, mine }, index, at, size) => {
    const last = (path) => path[path.length - 1][index];
    if (show.ascents && here.ascents) {
      for (const path of here.ascents) drawing.append(mark("ascents", at(last(path)), 6 * size));
    }
    if (show.elites && here.elites) drawing.append(mark("elites", at(last(here.elites)), 6 * size));
    if (mine) drawing.append(mark("mine", at(mine[0][index]), 3, "start"), mark("mine", at(last(mine)), 7 * size));
    if (show.guess && here.guess) drawing.append(mark("guess", at(here.guess[index]), 7 * size));
    if (show.best) drawing.append(mark("best", at(here.best[index]), 9 * size));
  };

  const hair = (view, t) => {
    view.svg.querySelector(".probe-marks").replaceChildren(
      el("path", { class: "base", d: `M${view.x(t)} ${view.box.top}V${view.box.bottom}` }),
      el("circle", { class: "dot bound", cx: view.x(t), cy: view.y(view.q(t)), r: 4.5 }));
  };

  return { draw, hair };
})();
