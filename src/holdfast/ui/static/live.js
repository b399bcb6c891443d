// One live stream for all tabs of a browser, which allows only six connections to a host: a shared worker holds it.
// A tab says what it looks at ({topic: "store"} or {topic: "run", run: id}), and is told what changed.
"use strict";

const tabs = new Map(); // port -> what it looks at
const MOST_RUNS = 100;
let source = null;
let address = "";
let state = "off";
let planned = 0;

self.onconnect = (event) => {
  const port = event.ports[0];
  port.onmessage = (message) => {
    if (message.data.topic === "bye") tabs.delete(port);
    else {
      tabs.set(port, message.data);
      port.postMessage({ state });
    }
    clearTimeout(planned);
    planned = setTimeout(connect, 60);
  };
};

function wanted() {
  const topics = [...tabs.values()];
  if (!topics.length) return "";
  const runs = [...new Set(topics.filter((one) => one.topic === "run").map((one) => one.run))].sort();
  const query = new URLSearchParams();
  if (topics.some((one) => one.topic === "store") || runs.length > MOST_RUNS) query.set("store", "true");
  if (runs.length <= MOST_RUNS) runs.forEach((run) => query.append("run", run));
  return `/api/v1/events?${query}`;
}

function connect() {
  const url = wanted();
  if (url === address && source && source.readyState !== EventSource.CLOSED) return;
  if (source) source.close();
  source = null;
  address = url;
  if (!url) return tell("off");
  source = new EventSource(url);
  source.onopen = () => tell("on");
  source.onerror = () => {
    tell("lost");
    if (source && source.readyState === EventSource.CLOSED) {
      clearTimeout(planned);
      planned = setTimeout(connect, 5000);
    }
  };
  source.addEventListener("store", (event) => spread(null, JSON.parse(event.data)));
  source.addEventListener("run", (event) => {
    const mark = JSON.parse(event.data);
    spread(mark.run, mark);
  });
}

function tell(now) {
  state = now;
  for (const port of tabs.keys()) port.postMessage({ state });
}

function spread(run, mark) {
  for (const [port, one] of tabs) {
    if (run === null || (one.topic === "run" && one.run === run)) port.postMessage({ run, mark });
  }
}
