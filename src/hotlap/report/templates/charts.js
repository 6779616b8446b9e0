// Draws the plots from the page's data block. Colours come from the style sheet, so that both themes and paper fit.
"use strict";
(function () {
  const data = JSON.parse(document.getElementById("hotlap-data").textContent);
  const words = data.words;

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  }

  function axis(more) {
    return Object.assign({
      gridcolor: colour("line"), linecolor: colour("line"), zeroline: false, automargin: true, ticks: "",
      tickfont: { color: colour("muted") },
    }, more);
  }

  function titled(text) {
    return { text: text, font: { size: 12, color: colour("muted") }, standoff: 8 };
  }

  function layout(more) {
    return Object.assign({
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("text") },
      margin: { l: 56, r: 32, t: 8, b: 44 },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, traceorder: "normal" },
      modebar: { orientation: "v", bgcolor: "rgba(0,0,0,0)", color: colour("line"), activecolor: colour("accent") },
      hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("text") } },
    }, more);
  }

  // One stall would press all other steps flat, so the first view ends a little above the usual step.
  function usualTop(stages) {
    const totals = stages[0].y.map((_, i) => stages.reduce((sum, stage) => sum + stage.y[i], 0));
    const sorted = totals.slice().sort((a, b) => a - b);
    const at = (q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
    return Math.min(sorted[sorted.length - 1] * 1.05, Math.max(at(0.9) * 1.3, at(0.5) * 2));
  }

  // A logarithmic axis over at least one decade, so that noise does not look like stalls; 1, 2 and 5 are its marks.
  function logAxis(values) {
    const seen = values.filter((value) => value > 0);
    const low = Math.min(...seen) / 2, high = Math.max(Math.max(...seen) * 1.3, low * 10), ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      for (const digit of [1, 2, 5]) ticks.push(digit * 10 ** power);
    }
    const inside = ticks.filter((tick) => tick >= low && tick <= high);
    const every = Math.ceil(inside.length / 4);
    return {
      type: "log", range: [Math.log10(low), Math.log10(high)], tickformat: "~r",
      tickvals: inside.filter((_, i) => i % every === 0),
    };
  }

  function timeline(chart) {
    const traces = chart.stages.map((stage) => ({
      type: "scatter", mode: "lines", name: stage.name, x: chart.x, y: stage.y, stackgroup: "step",
      line: { width: 0.5, color: colour("stage-" + stage.id) }, fillcolor: colour("stage-" + stage.id),
      hovertemplate: "%{y:.3~f} ms",
    }));
    traces.push({
      type: "scatter", mode: "lines", name: words.longest_step, x: chart.x, y: chart.longest, customdata: chart.held_by,
      xaxis: "x", yaxis: "y2", line: { width: 1.2, color: colour("accent") }, hovertemplate: "%{y:.3~f} ms (%{customdata})",
    });
    const last = chart.x[chart.x.length - 1];
    const warm = chart.steady_from > last / 100 ? [{
      type: "rect", xref: "x", yref: "paper", x0: chart.x[0], x1: Math.min(chart.steady_from, last), y0: 0, y1: 1,
      fillcolor: colour("muted"), opacity: 0.12, line: { width: 0 },
    }] : [];
    const note = warm.map((box) => ({
      x: box.x1, y: 1, xref: "x", yref: "paper", xanchor: box.x1 === last ? "right" : "left", yanchor: "top",
      showarrow: false, text: (box.x1 === last ? "" : "&#9664; ") + words.warmup, font: { size: 11, color: colour("muted") },
    }));
    return [traces, layout({
      hovermode: "x unified", shapes: warm, annotations: note,
      xaxis: axis({ title: titled(words.axis_step), anchor: "y2", showgrid: false }),
      yaxis: axis({ title: titled(words.axis_ms), domain: [0.32, 1], range: [0, usualTop(chart.stages)] }),
      yaxis2: axis(Object.assign({ title: titled(words.axis_longest), domain: [0, 0.24] }, logAxis(chart.longest))),
    })];
  }

  function bars(chart, colours, title, more) {
    const traces = chart.parts.map((part) => ({
      type: "bar", orientation: "h", name: part.name, y: chart.names, x: part.x,
      marker: { color: colour(colours + part.id) }, hovertemplate: more.hover,
    }));
    return [traces, layout({
      barmode: "stack", bargap: 0.35, hovermode: "closest",
      xaxis: axis(Object.assign({ title: titled(title) }, more.xaxis)),
      yaxis: axis({ autorange: "reversed", showgrid: false, type: "category", tickfont: { color: colour("text") } }),
    })];
  }

  // Gains with their intervals. What is not decided is pale, and a bound is an outline: nobody can set it.
  function gains(chart) {
    const colours = { faster: colour("good"), "no-gain": colour("stage-other"), undecided: colour("warning") };
    const fill = chart.states.map((state) => colours[state] || "rgba(0,0,0,0)");
    const edge = chart.states.map((state) => colours[state] || colour("muted"));
    const shown = chart.gain.concat(chart.low, chart.high, [0]);
    const low = Math.min(...shown), high = Math.max(...shown), room = Math.max(1, high - low) * 0.05;
    return [[{
      type: "bar", orientation: "h", y: chart.names, x: chart.gain, customdata: chart.text,
      marker: { color: fill, line: { color: edge, width: 1.5 } }, hovertemplate: "%{y}: %{customdata}<extra></extra>",
      error_x: {
        type: "data", symmetric: false, array: chart.high.map((value, i) => value - chart.gain[i]),
        arrayminus: chart.low.map((value, i) => chart.gain[i] - value), color: colour("text"), thickness: 1.4, width: 4,
      },
    }], layout({
      bargap: 0.45, hovermode: "closest", showlegend: false,
      xaxis: axis({
        title: titled(words.axis_gain), range: [low < 0 ? low - room : 0, high + room], zeroline: true,
        zerolinecolor: colour("muted"),
      }),
      yaxis: axis({ autorange: "reversed", showgrid: false, type: "category", tickfont: { color: colour("text") } }),
    })];
  }

  function curves(chart, colours, title, stacked) {
    const traces = chart.lines.map((line) => ({
      type: "scatter", mode: "lines", name: line.name, x: chart.x, y: line.y, connectgaps: false,
      stackgroup: stacked ? "all" : undefined, fill: stacked ? undefined : "tozeroy",
      line: { width: stacked ? 0.5 : 2, color: colour(colours + line.id) },
      fillcolor: stacked ? colour(colours + line.id) : "rgba(0,0,0,0)", hovertemplate: "%{y:.4~g}",
    }));
    return [traces, layout({
      hovermode: "x unified", showlegend: true,
      xaxis: axis({ title: titled(words.axis_seconds), showgrid: false }),
      yaxis: axis({ title: titled(title), rangemode: "tozero" }),
    })];
  }

  const charts = {
    timeline: timeline,
    experiments: gains,
    workers: (chart) => bars(chart, "worker-", words.axis_share,
      { hover: "%{x:.1%}", xaxis: { tickformat: ".0%", range: [0, 1.002] } }),
    ranks: (chart) => bars(chart, "stage-", words.axis_ms, { hover: "%{x:.3~f} ms", xaxis: {} }),
    memory: (chart) => curves(chart, "memory-", words.axis_memory, false),
    cpu: (chart) => curves(chart, "cpu-", words.axis_cores, true),
  };

  const config = {
    responsive: true, displaylogo: false,
    // Named one by one: buttons that lead out of the page have no place in it.
    modeBarButtons: [["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"], ["toImage"]],
  };

  function draw() {
    for (const [id, make] of Object.entries(charts)) {
      const place = document.getElementById("plot-" + id);
      if (place && data[id]) {
        const [traces, form] = make(data[id]);
        Plotly.react(place, traces, form, Object.assign({ displayModeBar: id === "timeline" }, config));
      }
    }
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  window.addEventListener("beforeprint", () => { document.documentElement.dataset.paper = ""; draw(); });
  window.addEventListener("afterprint", () => { delete document.documentElement.dataset.paper; draw(); });
  draw();
  document.documentElement.dataset.drawn = "";
})();
