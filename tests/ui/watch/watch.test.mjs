// The player's module by itself: run by `node --test` from test_watch.py, which puts beside it films
// with what Python's `Film.at` says of them.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

const folder = process.env.WATCH_FILMS;
const w = await import(`${folder}/watch.mjs`);
const named = (name) => w.unpack(new Uint8Array(readFileSync(`${folder}/${name}.film`))).films[0];
const asked = JSON.parse(readFileSync(`${folder}/asked.json`, "utf-8"));

test("everybody is where Python says, with as many tokens and blocks", () => {
  for (const [name, moments] of Object.entries(asked)) {
    const film = named(name);
    for (const [moment, expected] of moments) {
      const seen = w.sceneAt(film, moment).map((one) => [one.body, one.place, one.seat, one.computed,
        w.SEAT === one.place ? one.emitted : 0, one.blocks, one.gone ? 1 : 0]);
      seen.sort((a, b) => a[0] - b[0]);
      assert.deepEqual(seen, expected, `${name} at ${moment}`);
    }
  }
});

test("nobody is drawn over another, outside the box, or without a place", () => {
  for (const name of Object.keys(asked)) {
    const film = named(name);
    for (const [width, height] of [[960, 340], [340, 480]]) {
      const box = w.layoutOf(film, width, height);
      for (const [moment] of asked[name]) {
        const { shapes, scene } = w.placed(film, box, moment);
        const seats = shapes.filter((one) => one.place === w.SEAT);
        assert.equal(seats.length, scene.filter((one) => one.place === w.SEAT).length);
        const corners = new Set(shapes.map((one) => `${one.x} ${one.y}`));
        assert.equal(corners.size, shapes.length, `${name} at ${moment}: two on one place`);
        for (const one of shapes) {
          assert.ok(one.x >= -1 && one.x + one.width <= width + 1 && one.y >= 0);
          assert.ok(one.y + one.height <= box.memory.y, `${name} at ${moment}: over the memory`);
          assert.ok(one.width > 0 && one.height > 0);
        }
      }
    }
  }
});

test("who arrived first stands first, and who was preempted before all", () => {
  const film = named("pressed");
  let reached = 0;
  for (const [moment] of asked.pressed) {
    const line = w.inLine(film, w.sceneAt(film, moment));
    const again = line.findIndex((one) => one.place === w.QUEUE);
    const front = again < 0 ? line : line.slice(0, again);
    assert.ok(front.every((one) => one.place === w.PREEMPTED));
    front.forEach((one, at) => assert.ok(!at || front[at - 1].since >= one.since));
    reached += front.length > 1;
    const queue = line.slice(front.length);
    queue.forEach((one, at) => assert.ok(!at || queue[at - 1].body < one.body));
  }
  assert.ok(reached > 0, "no case of several preempted");
});

test("a step forward and a step back end where they began", () => {
  const film = named("storm");
  const { start_s, end_s } = film.steps;
  const edges = new Set([...start_s, ...end_s, film.start_s, film.end_s]);
  let moment = film.start_s;
  for (let count = 0; count < 200 && moment < film.end_s; count++) {
    const [, next] = w.neighbours(film, moment);
    assert.ok(next > moment && edges.has(next));
    assert.equal(w.neighbours(film, next)[0], Math.max(moment, film.start_s));
    moment = next;
  }
});

test("the sentences tell what happened, with the film's own numbers", () => {
  const film = named("by_hand");
  assert.equal(w.storyAt(film, -1), "Nobody has come yet.");
  const told = [0, 0.25, 1, 2, 3].map((moment) => w.storyAt(film, moment));
  assert.deepEqual(told, [
    "At 0.00 s: request 0 takes a seat, 0 ms after it was sent.",
    "At 0.25 s: request 1 arrives with 30 prompt tokens and wants 1 token.",
    "At 1.00 s: request 1 takes a seat, 750 ms after it was sent.",
    "At 2.00 s: request 1 is finished, 1.75 s after it was sent.",
    "At 3.00 s: request 0 is finished, 3 s after it was sent.",
  ]);
  assert.equal(w.stepAt(film, 1.5), "step 2: 30 prompt tokens and 1 decoding, 1 s");
  assert.equal(w.stepAt(film, 3), "no step: the engine has nothing to do");
  assert.equal(w.summaryOf(film, w.sceneAt(film, 0.5), 0.5),
    "1 request waiting, 1 of 64 seats taken, 9 tokens in the KV cache, 0 finished.");
  assert.deepEqual(w.lifeOf(film, 1, 1.5), ["0.25 s: request 1 arrives with 30 prompt tokens and wants 1 token.",
    "1.00 s: request 1 takes a seat, 750 ms after it was sent."]);
  assert.deepEqual(w.lifeOf(film, 7, 1.5), []);
});

test("every kind of event has words of its own", () => {
  const film = named("storm");
  const kinds = new Map();
  film.events.kind.forEach((kind, at) => kinds.set(kind, w.tell(film, at)));
  for (const [kind, words] of [[w.REFUSED, /is refused\.$/], [w.TIMED_OUT, /gives up after/],
    [w.SENT_AGAIN, /sent again, for the second time|third time/], [w.LOST_SEAT, /loses its seat/],
    [w.SEATED_AGAIN, /seat again/], [w.FIRST_TOKEN, /first token/]]) {
    assert.match(kinds.get(kind) ?? "none", words);
  }
});

test("numbers read as people write them", () => {
  assert.deepEqual([0.0004, 0.0123, 0.75, 1.234, 12.34, 1234].map(w.duration),
    ["0.4 ms", "12.3 ms", "750 ms", "1.23 s", "12.3 s", "1,234 s"]);
});
