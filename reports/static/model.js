// What if: the performance model of suite/predict for data parallelism, redrawn at once for another link or schedule.
"use strict";
stagebench.model = (() => {
  const OVERLAPPING = ["wfbp", "buckets", "merged", "priority"];
  const sum = (values) => values.reduce((total, value) => total + value, 0);

  // The mean of the slowest of so many independent ranks, over the mean of one (suite/predict/stragglers.py).
  function slowest({ values, cumulative }, ranks) {
    const largest = (draws) => sum(values.map((value, at) => value * (cumulative[at] ** draws - (at ? cumulative[at - 1] : 0) ** draws)));
    return largest(ranks) / largest(1);
  }

  // [seconds to start, seconds a byte] of an all-reduce (suite/predict/collectives.py).
  function allReduce({ between, within, ranks_per_node, algorithm, servers }, ranks) {
    if (ranks === 1) return [0, 0];
    const nodes = Math.ceil(ranks / ranks_per_node), inside = within ?? between;
    const link = nodes === 1 ? inside : between;
    const { alpha, beta, gamma } = link;
    const ring = (p, { alpha, beta, gamma }) => [2 * (p - 1) * alpha, ((p - 1) / p) * (2 * beta + gamma)];
    const steps = Math.floor(Math.log2(ranks)), share = 1 - 0.5 ** steps;
    const folded = ([start, perByte]) => (2 ** steps === ranks ? [start, perByte] : [start + 2 * alpha, perByte + 2 * beta + gamma]);
    switch (algorithm) {
      case "ring": return ring(ranks, link);
      case "tree": return [2 * Math.ceil(Math.log2(ranks)) * alpha, 2 * beta + gamma];
      case "doubling": return folded([steps * alpha, steps * (beta + gamma)]);
      case "halving": return folded([2 * steps * alpha, share * (2 * beta + gamma)]);
      case "server": return [2 * alpha, 2 * Math.max(1, ranks / servers) * beta + (ranks / servers) * gamma];
    }
    const inner = ring(Math.min(ranks, ranks_per_node), inside), outer = ring(nodes, between);
    const added = ((nodes - 1) / nodes) * between.gamma * (1 / ranks_per_node - 1);
    return [inner[0] + outer[0], inner[1] + outer[1] + added];
  }

  // Which gradients travel together: lists of indices into layers in backward order (suite/predict/schedules.py).
  function messages(schedule, layers, [start, perByte]) {
    const sent = layers.flatMap((layer, index) => (layer.bytes ? [index] : []));
    if (schedule === "fused") return sent.length ? [sent] : [];
    if (schedule === "buckets") return buckets(layers, sent);
    if (schedule === "merged") return merged(layers, sent, start, perByte);
    return sent.map((index) => [index]);
  }
  function buckets(layers, sent) {
    const found = [];
    let limit = 2 ** 20, bucket = [], held = 0;
    for (const index of sent) {
      bucket.push(index);
      held += layers[index].bytes;
      if (held >= limit) {
        found.push(bucket);
        [limit, bucket, held] = [25 * 2 ** 20, [], 0];
      }
    }
    return bucket.length ? [...found, bucket] : found;
  }
  function merged(layers, sent, start, perByte) {
    let total = 0;
    const done = layers.map((layer) => (total += layer.backward));
    const ready = sent.map((index) => done[index]);
    const size = [0];
    for (const index of sent) size.push(size.at(-1) + layers[index].bytes);
    const cost = (i, j) => start + perByte * (size[j] - size[i]);
    const end = [0];
    for (let j = 1; j <= sent.length; j++) end.push(Math.min(...end.map((before, i) => Math.max(before, ready[j - 1]) + cost(i, j))));
    const found = [];
    for (let count = sent.length, deadline = end.at(-1); count; ) {
      let begin = 0;
      while (begin < count - 1 && Math.max(end[begin], ready[count - 1]) + cost(begin, count) > deadline * (1 + 1e-12)) begin++;
      found.unshift(sent.slice(begin, count));
      deadline -= cost(begin, count);
      count = begin;
    }
    return found;
  }

  // Seconds of an iteration on the slowest of so many ranks (suite/predict/data_parallel.py).
  function iteration(scenario, ranks) {
    const slow = slowest(scenario.jitter, ranks);
    const layers = [...scenario.layers].reverse();
    const [start, perByte] = allReduce(scenario.network, ranks);
    const cost = [start, perByte / scenario.compression];
    const sent = ranks > 1 ? messages(scenario.schedule, layers, cost) : [];
    const seconds = (message) => cost[0] + cost[1] * sum(message.map((index) => layers[index].bytes));
    const lost = scenario.interference * sum(sent.map(seconds));
    const reading = scenario.read / scenario.readers;
    const first = scenario.schedule === "priority";
    let device = first ? 0 : scenario.h2d * slow + sum(scenario.layers.map((layer) => layer.forward)) * slow;
    const ready = layers.map((layer) => (device += layer.backward * slow));
    let link = 0;
    if (!first) {
      for (const message of sent)
        link = Math.max(link, OVERLAPPING.includes(scenario.schedule) ? ready[message.at(-1)] : ready.at(-1)) + seconds(message);
      return Math.max(reading, Math.max(device, link) + lost + scenario.update * slow);
    }
    const ends = new Map(), waiting = [];
    for (let next = 0; ends.size < sent.length; ) {
      if (!waiting.length) link = Math.max(link, ready[sent[next][0]]);
      while (next < sent.length && ready[sent[next][0]] <= link) waiting.push(sent[next++][0]);
      const index = waiting.splice(waiting.indexOf(Math.max(...waiting)), 1)[0];
      link = Math.max(link, ready[index]) + seconds([index]);
      ends.set(index, link);
    }
    const total = sum(layers.map((layer) => layer.bytes)) || 1;
    device += scenario.h2d * slow;
    for (let index = layers.length - 1; index >= 0; index--)
      device = Math.max(device, ends.get(index) ?? 0) + (scenario.update * (layers[index].bytes / total) + layers[index].forward) * slow;
    return Math.max(reading, device + lost, link);
  }
  // With so many times the samples, each in the same time; the update is the parameters' (suite/predict/scenario.py).
  function batched(scenario, times) {
    const layers = scenario.layers.map((layer) => ({ ...layer, forward: layer.forward * times, backward: layer.backward * times }));
    return { ...scenario, layers, batch: scenario.batch * times, h2d: scenario.h2d * times, read: scenario.read * times };
  }

  // `together`: the samples of all devices in strong scaling; null where each has the scenario's batch.
  function rate(scenario, ranks, together = null) {
    const own = together === null ? scenario : batched(scenario, together / ranks / scenario.batch);
    return (ranks * own.batch) / iteration(own, ranks);
  }
  return { rate };
})();
