/* The page: what is chosen, what follows from it, and the controls that change it. */
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const { number, icon } = Drawing;
  const layers = Network.decode(data.layers), size = data.names.length, single = size === 1;
  const METHODS = {
    best: "proved maximum", guess: "action function", ascents: "gradient ascent", elites: "cross-entropy",
    pieces: "linear pieces", contours: "levels of Q",
  };
  /* The two actions that Q bends along most, at the state that is shown first. */
  const bending = () => {
    const { best, x } = data.states[data.first], net = Network.fold(layers, x);
    const count = (k) => Network.kinks(net, best, k, data.low[k], data.high[k]).length;
    const order = data.names.map((_, k) => [count(k), k]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
    return order.slice(0, 2).map(([, k]) => k).sort((a, b) => a - b);
  };
  const look = { pair: single ? [0, 0] : bending(), show: {}, mine: null, probe: null };
  const chosen = { state: 0, stage: 0 };
  let model, view, nearest, timer = null;

  const at = (index) => {
    const here = data.states[index];
    return { here, net: Network.fold(layers, here.x), range: { low: here.low || data.low, high: here.high || data.high } };
  };

  const drawMap = () => {
    view = single ? Slices.draw($("map"), data, model, look, { index: 0, height: 400, large: true })
      : Landscape.draw($("map"), data, model, look);
    if (look.probe) showProbe();
  };

  const drawSlices = () => {
    if (single) return;
    const figures = [...$("slices").children];
    figures.forEach((figure, index) =>
      Slices.draw(figure.querySelector("div"), data, model, look, { index, height: 176, large: false }));
  };

  const drawStage = () => {
    model.stage = model.here.stages[chosen.stage];
    $("stage").max = model.here.stages.length - 1;
    $("stage").value = chosen.stage;
    $("stage").setAttribute("aria-valuetext", model.stage[0]);
    $("less").disabled = chosen.stage === 0;
    $("more").disabled = chosen.stage === model.here.stages.length - 1;
    Proof.draw($("proof"), model, chosen.stage);
    $("said").innerHTML = Proof.sentence(model, chosen.stage);
    drawSlices();
    if (single) drawMap();
  };

  const where = ({ here }) => {
    const parts = [here.label];
    if (here.total !== undefined) parts.push(`return so far ${number(here.total, 1)}`);
    parts.push(`max Q = ${number(here.value)}`);
    return parts.join(" · ");
  };

  const drawState = () => {
    const here = data.states[chosen.state];
    $("state").value = chosen.state;
    $("state").setAttribute("aria-valuetext", here.label);
    $("where").textContent = where(model);
    $("back").disabled = chosen.state === 0;
    $("forth").disabled = chosen.state === data.states.length - 1;
    $("frame").hidden = !here.frame;
    if (here.frame) {
      $("frame").firstElementChild.src = here.frame;
      $("frame").firstElementChild.alt = `${data.title} at ${here.label}`;
    }
    $("numbers").hidden = !here.x.length;
    $("numbers").lastElementChild.textContent = here.x.map((v) => number(v, 3)).join(", ");
    nearest = Proof.timeline($("timeline"), data, chosen.state);
    Proof.table($("found").tBodies[0], $("found-note"), data, model);
  };

  const choose = (state) => {
    chosen.state = Math.min(data.states.length - 1, Math.max(0, state));
    model = at(chosen.state);
    look.mine = look.probe = null;
    chosen.stage = model.here.stages.length - 1;
    model.stage = model.here.stages[chosen.stage];
    drawState();
    drawMap();
    drawStage();
    say();
  };

  const chooseStage = (stage) => {
    chosen.stage = Math.min(model.here.stages.length - 1, Math.max(0, stage));
    drawStage();
  };

  /* The probe is an action in the plane that is drawn. */
  const action = () => Network.moved(model.here.best, single ? [[0, look.probe[0]]] : look.pair.map((k, n) => [k, look.probe[n]]));

  const say = () => {
    $("probe").textContent = look.probe ? "" : "Point at the landscape to read Q; click to start a gradient ascent there.";
    if (!data.box && !look.probe) $("probe").textContent = "Point at the landscape to read Q. The paler part is not admissible.";
    if (!look.probe) return;
    const q = Network.value(model.net, action());
    const shown = (single ? [0] : look.pair).map((k, n) => `${data.names[k]} ${number(look.probe[n])}`).join(", ");
    let text = `Q(${shown}) = ${number(q, 3)}, ${number(Math.max(0, model.here.value - q), 3)} below the maximum.`;
    if (look.mine) {
      const end = Network.value(model.net, look.mine[look.mine.length - 1]);
      const short = model.here.value - end, reached = short <= 1e-3 * Math.max(1, Math.abs(model.here.value));
      text += ` Your ascent ends at Q = ${number(end, 3)}: ${reached ? "the maximum" : `${number(short, 3)} short of it`}.`;
    }
    $("probe").textContent = text;
  };

  const showProbe = () => {
    if (single) Slices.hair(view, look.probe[0]);
    else Landscape.hair(view, look.probe);
    say();
  };

  const limits = (n) => { const k = single ? 0 : look.pair[n]; return [model.range.low[k], model.range.high[k]]; };
  const setProbe = (place) => {
    look.probe = place.map((v, n) => Math.min(limits(n)[1], Math.max(limits(n)[0], v)));
    showProbe();
  };

  const pointed = (event) => {
    const frame = (single ? view.svg : view.plane).getBoundingClientRect();
    const x = event.clientX - frame.left, y = event.clientY - frame.top;
    if (single) return [view.x.back(x * (view.svg.viewBox.baseVal.width / frame.width))];
    return [view.view.x.back(x * (view.view.size / frame.width)), view.view.y.back(y * (view.view.size / frame.height))];
  };

  const launch = () => {
    if (!look.probe || !data.box || data.integer.length) return;
    look.mine = Network.ascend(model.net, action(), model.range.low, model.range.high, data);
    drawMap();
    drawSlices();
  };

  const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] };
  const onMapKey = (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (!look.probe) setProbe(single ? [model.here.best[0]] : look.pair.map((k) => model.here.best[k]));
      launch();
      return;
    }
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const from = look.probe || (single ? [model.here.best[0]] : look.pair.map((k) => model.here.best[k]));
    setProbe(from.map((v, n) => v + (step[n] * (limits(n)[1] - limits(n)[0])) / (event.shiftKey ? 10 : 50)));
  };

  const stop = () => {
    clearInterval(timer);
    timer = null;
    $("play").textContent = "Play";
    $("play").setAttribute("aria-pressed", "false");
  };

  const play = () => {
    if (timer) return stop();
    if (chosen.state === data.states.length - 1) choose(0);
    $("play").textContent = "Pause";
    $("play").setAttribute("aria-pressed", "true");
    timer = setInterval(() => (chosen.state === data.states.length - 1 ? stop() : choose(chosen.state + 1)), 450);
    return undefined;
  };

  const replay = () => {
    stop();
    chooseStage(0);
    timer = setInterval(() => (chosen.stage === model.here.stages.length - 1 ? stop() : chooseStage(chosen.stage + 1)), 700);
  };

  const legend = () => {
    const possible = data.states[0], absent = (kind) => (kind in possible && possible[kind] === null) || (single && kind === "contours");
    for (const [kind, name] of Object.entries(METHODS)) {
      if (absent(kind)) continue;
      look.show[kind] = true;
      const label = document.createElement("label"), box = document.createElement("input");
      box.type = "checkbox";
      box.checked = true;
      box.id = `show-${kind}`;
      box.addEventListener("change", () => {
        look.show[kind] = box.checked;
        drawMap();
        drawSlices();
      });
      label.append(box, icon(kind), name);
      $("legend").append(label);
    }
  };

  const axes = () => {
    $("axes").hidden = $("slices-card").hidden = single;
    if (single) return;
    [$("across"), $("up")].forEach((list, n) => {
      data.names.forEach((name, k) => list.append(new Option(name, k)));
      list.value = look.pair[n];
      list.addEventListener("change", () => {
        const other = 1 - n, wanted = Number(list.value);
        if (look.pair[other] === wanted) look.pair[other] = look.pair[n];
        look.pair[n] = wanted;
        [$("across").value, $("up").value] = look.pair;
        look.probe = null;
        drawMap();
        say();
      });
    });
    $("slices").append(...data.names.map((name) => {
      const figure = document.createElement("figure");
      figure.append(document.createElement("div"));
      return figure;
    }));
  };

  const notes = () => {
    const parts = [];
    if (!single) parts.push("The other actions are held at the proved maximum.".repeat(size > 2));
    if (!single && size > 2) parts.push("A hollow mark ends away from this plane, so its Q is not the colour below it.");
    if (!single) parts.push("Along a white line a neuron switches on or off: between the lines Q is linear.");
    if (!data.box) parts.push("The outlined part is the set of admissible actions of this state.");
    if (data.integer.length) parts.push("Dotted lines are the whole numbers.");
    $("map-note").textContent = parts.filter(Boolean).join(" ");
  };

  const listen = () => {
    $("state").max = data.states.length - 1;
    $("state").addEventListener("input", () => { stop(); choose(Number($("state").value)); });
    $("back").addEventListener("click", () => { stop(); choose(chosen.state - 1); });
    $("forth").addEventListener("click", () => { stop(); choose(chosen.state + 1); });
    $("play").addEventListener("click", play);
    $("stage").addEventListener("input", () => { stop(); chooseStage(Number($("stage").value)); });
    $("less").addEventListener("click", () => { stop(); chooseStage(chosen.stage - 1); });
    $("more").addEventListener("click", () => { stop(); chooseStage(chosen.stage + 1); });
    $("replay").addEventListener("click", replay);
    const drag = (event) => { stop(); choose(nearest(event.clientX - $("timeline").getBoundingClientRect().left)); };
    $("timeline").addEventListener("pointerdown", drag);
    $("timeline").addEventListener("pointermove", (event) => event.buttons && drag(event));
    $("map").addEventListener("pointermove", (event) => setProbe(pointed(event)));
    $("map").addEventListener("click", (event) => { setProbe(pointed(event)); launch(); });
    $("map").addEventListener("keydown", onMapKey);
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
      if (window.innerWidth === width) return;
      width = window.innerWidth;
      drawState(); drawMap(); drawStage();
    });
  };

  legend();
  axes();
  notes();
  listen();
  choose(data.first);
})();
