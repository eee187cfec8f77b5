// Plays a film of a server: who waits, who sits where, with how many tokens, step by step.
//
// Films come from `film.py` as one run of bytes and are never computed here: `sceneAt` only looks
// up where everybody is at a moment, `Film.at` being the same in Python, and the rest draws that.
// No library, no network, no state outside `mount`. In order: reading, looking up, words, layout,
// drawing, the player, and the ways in (a widget, a page without a kernel).

export const OUTSIDE = 0, QUEUE = 1, SEAT = 2, PREEMPTED = 3, AWAY = 4;
export const FIRST_TOKEN = 0, FINISHED = 1, SERVED_THE_VOID = 2, TIMED_OUT = 3, ARRIVED = 4,
  SENT_AGAIN = 5, LEFT_OUTSIDE = 6, REFUSED = 7, CAME_IN = 8, LOST_SEAT = 9, SEATED = 10,
  SEATED_AGAIN = 11;
const STATUS_FINISHED = 0, STATUS_TIMED_OUT = 2;
const SPEEDS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100];
const MOST_LEAVING = 40; // signs of those who left a moment ago that are drawn at once
const GLIDE_S = 0.35; // how long somebody is on the way from one place to the next, on the wall clock
const CALM_MS = 500;
const STRIP_STEPS = 70; // steps of usual length that the strip below has room for
const LEAST_FONT = 11;
const FONT = "system-ui, sans-serif";

// ------------------------------------------------------------------------------------- reading

/** Return the films in these bytes: a JSON text with its length before it, then the columns. */
export function unpack(bytes) {
  const view = bytes instanceof DataView
    ? bytes : new DataView(bytes.buffer ?? bytes, bytes.byteOffset ?? 0, bytes.byteLength);
  const length = view.getUint32(0, true);
  // a copy begins on a multiple of eight, as the columns must
  const copy = view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
  const { films, ...head } = JSON.parse(new TextDecoder().decode(new Uint8Array(copy, 4, length)));
  for (const film of films) {
    for (const [table, columns] of Object.entries(film.tables)) {
      film[table] = {};
      for (const [name, [kind, offset, size]] of Object.entries(columns)) {
        const Kind = kind === "f8" ? Float64Array : Int32Array;
        film[table][name] = new Kind(copy, 4 + length + offset, size);
      }
    }
    prepared(film);
  }
  // what is compared has one clock
  const start_s = Math.min(...films.map((film) => film.start_s));
  const end_s = Math.max(...films.map((film) => film.end_s));
  for (const film of films) Object.assign(film, { start_s, end_s });
  return { ...head, films };
}

/** Add what looking up and drawing need over and over. */
function prepared(film) {
  const { places, chunks, sittings, bodies, steps, missed } = film;
  film.firstChunk = firstOf(chunks.sitting, sittings.body.length);
  film.firstMissed = firstOf(missed.sitting, sittings.body.length);
  film.chunkSum = new Float64Array(chunks.tokens.length);
  for (let sitting = 0; sitting < sittings.body.length; sitting++) {
    let sum = sittings.cached[sitting];
    for (let at = film.firstChunk[sitting]; at < film.firstChunk[sitting + 1]; at++) {
      film.chunkSum[at] = sum += chunks.tokens[at];
    }
  }
  // the latest end in each block of places: blocks that are all over need no look
  film.blockEnd = new Float64Array(Math.ceil(places.start_s.length / BLOCK)).fill(-Infinity);
  places.end_s.forEach((end, at) => {
    film.blockEnd[at >> BLOCK_BITS] = Math.max(film.blockEnd[at >> BLOCK_BITS], end);
  });
  film.firstSending = new Map();
  bodies.request.forEach((request, body) => {
    if (!film.firstSending.has(request)) film.firstSending.set(request, []);
    film.firstSending.get(request).push(body);
  });
  film.longest = 1;
  for (let body = 0; body < bodies.prompt_tokens.length; body++) {
    film.longest = Math.max(film.longest, bodies.prompt_tokens[body] + bodies.output_tokens[body]);
  }
  film.mostPrefill = steps.prefill_tokens.reduce((a, b) => Math.max(a, b), 1);
  film.mostDecode = steps.decode_seqs.reduce((a, b) => Math.max(a, b), 1);
  film.usualStep = median(Array.from(steps.end_s, (end, k) => end - steps.start_s[k])) || 1;
  film.most = { [OUTSIDE]: crowd(film, OUTSIDE), [QUEUE]: crowd(film, QUEUE), [AWAY]: crowd(film, AWAY) };
  film.mostTokens = mostTokens(film);
  film.counted = countedEvents(film);
  return film;
}

const BLOCK_BITS = 8, BLOCK = 1 << BLOCK_BITS;

function firstOf(sorted, count) {
  const first = new Int32Array(count + 1);
  let at = 0;
  for (let value = 0; value <= count; value++) {
    while (at < sorted.length && sorted[at] < value) at++;
    first[value] = at;
  }
  return first;
}

function median(values) {
  return values.sort((a, b) => a - b)[values.length >> 1];
}

/** Return the most who are in a place at once; who waits again counts as being in the queue. */
function crowd(film, place) {
  const { places } = film;
  const starts = [], ends = [];
  places.place.forEach((here, at) => {
    if (here === place || (place === QUEUE && here === PREEMPTED)) {
      starts.push(places.start_s[at]);
      ends.push(places.end_s[at]);
    }
  });
  ends.sort((a, b) => a - b);
  let most = 0, left = 0;
  starts.forEach((start, at) => {
    while (ends[left] <= start) left++;
    most = Math.max(most, at + 1 - left);
  });
  return most;
}

/** Return the most tokens in the cache at the start of any of some two hundred steps. */
function mostTokens(film) {
  const { steps } = film;
  let most = 1;
  const stride = Math.max(1, Math.floor(steps.start_s.length / 200));
  for (let step = 0; step < steps.start_s.length; step += stride) {
    const held = sceneAt(film, steps.start_s[step]).reduce((sum, seen) => sum + seen.held, 0);
    most = Math.max(most, held);
  }
  return most;
}

/** Return, for each kind of event, the times at which it happened. */
function countedEvents(film) {
  const times = Array.from({ length: 12 }, () => []);
  film.events.kind.forEach((kind, at) => times[kind].push(film.events.at_s[at]));
  return times;
}

/** Return how many values of a sorted list are at most `value`. */
export function upTo(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1; else high = middle;
  }
  return low;
}

// ---------------------------------------------------------------------------------- looking up

/** Return the tokens in the cache, and those emitted, when a step has ended. */
export function tokensAfter(film, sitting, step) {
  const { sittings, bodies, steps, chunks, missed } = film;
  step = Math.min(step, sittings.to_step[sitting] - 1);
  const begun = sittings.decodes_from[sitting], body = sittings.body[sitting];
  if (begun < 0 || step < begun - 1) {
    let last = film.firstChunk[sitting] - 1;
    while (last + 1 < film.firstChunk[sitting + 1] && chunks.step[last + 1] <= step) last++;
    const some = last >= film.firstChunk[sitting];
    return [some ? film.chunkSum[last] : sittings.cached[sitting], sittings.emitted[sitting]];
  }
  let emitted = sittings.tokens[sitting];
  if (step >= begun) {
    emitted += steps.ticks[step] - (begun ? steps.ticks[begun - 1] : 0);
    for (let at = film.firstMissed[sitting]; at < film.firstMissed[sitting + 1]; at++) {
      if (missed.step[at] <= step) emitted -= missed.tokens[at];
    }
  }
  emitted = Math.min(emitted, bodies.output_tokens[body]);
  return [bodies.prompt_tokens[body] + emitted - 1, emitted];
}

/** Return where everybody is at a moment, as `Film.at` does; `held`: tokens that blocks are for. */
export function sceneAt(film, moment) {
  const { places, bodies, steps } = film;
  const done = upTo(steps.end_s, moment) - 1;
  const begun = upTo(places.start_s, moment);
  const seen = [];
  for (let block = 0; block * BLOCK < begun; block++) {
    if (film.blockEnd[block] <= moment) continue;
    const stop = Math.min(begun, (block + 1) * BLOCK);
    for (let at = block * BLOCK; at < stop; at++) {
      if (places.end_s[at] <= moment) continue;
      const body = places.body[at], place = places.place[at], sitting = places.sitting[at];
      const one = { body, place, seat: -1, computed: 0, emitted: 0, blocks: 0, held: 0, sitting,
        since: places.start_s[at], gone: place !== AWAY && bodies.end_s[body] <= moment };
      if (sitting >= 0) {
        [one.computed, one.emitted] = tokensAfter(film, sitting, done);
        one.held = tokensAfter(film, sitting, done + 1)[0];
        one.seat = film.sittings.seat[sitting];
        one.blocks = film.block_limit === null ? one.held : Math.ceil(one.held / film.block_size);
      }
      seen.push(one);
    }
  }
  return seen;
}

/** Return the waiting line, its head first: who was preempted, the last one first; then by rank. */
export function inLine(film, scene) {
  const again = scene.filter((one) => one.place === PREEMPTED);
  const queue = scene.filter((one) => one.place === QUEUE);
  again.sort((a, b) => b.since - a.since || b.body - a.body);
  const { rank } = film.bodies;
  const sorted = queue.every((one, at) => !at || rank[queue[at - 1].body] <= rank[one.body]);
  if (!sorted) queue.sort((a, b) => rank[a.body] - rank[b.body] || a.body - b.body);
  return again.concat(queue);
}

/** Return the moments between which nothing changes but the passing of time, around a moment. */
export function neighbours(film, moment) {
  const { start_s, end_s } = film.steps;
  const known = (list, at) => (at >= 0 && at < list.length ? list[at] : undefined);
  const after = [known(start_s, upTo(start_s, moment)), known(end_s, upTo(end_s, moment))];
  const before = (list) => {
    let at = upTo(list, moment) - 1;
    while (at >= 0 && list[at] >= moment) at--;
    return known(list, at);
  };
  const next = Math.min(...after.filter((value) => value !== undefined), film.end_s);
  const previous = [before(start_s), before(end_s)].filter((value) => value !== undefined);
  return [Math.max(film.start_s, ...previous), next];
}

// --------------------------------------------------------------------------------------- words

const ordinal = (number) => ["", "first", "second", "third"][number] ?? `${number}th`;
const many = (count, one, more) => `${whole(count)} ${count === 1 ? one : more ?? one + "s"}`;
export const whole = (number) => Math.round(number).toLocaleString("en-US");

/** Return a time in three figures, with the unit in which it reads best. */
export function duration(seconds) {
  const [value, unit] = Math.abs(seconds) < 1 ? [seconds * 1000, "ms"] : [seconds, "s"];
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return `${Number(value.toFixed(digits)).toLocaleString("en-US")} ${unit}`;
}

/** Return the time on the run's clock, so exact that neighbouring steps differ. */
export function clock(film, seconds) {
  return `${seconds.toFixed(film.usualStep < 0.02 ? 4 : film.usualStep < 0.2 ? 3 : 2)} s`;
}

/** Return what happened last at or before a moment, as one sentence. */
export function storyAt(film, moment) {
  const last = upTo(film.events.at_s, moment) - 1;
  if (last < 0) return "Nobody has come yet.";
  return `At ${clock(film, film.events.at_s[last])}: ${tell(film, last)}`;
}

/** Return one event in words. */
export function tell(film, event) {
  const { bodies, events } = film;
  const body = events.body[event], at = events.at_s[event];
  const who = `request ${bodies.request[body]}`;
  const Who = `Request ${bodies.request[body]}`;
  const since = duration(at - bodies.sent_s[body]);
  const prompt = many(bodies.prompt_tokens[body], "prompt token");
  switch (events.kind[event]) {
    case ARRIVED:
      return `${who} arrives with ${prompt} and wants ${many(bodies.output_tokens[body], "token")}.`;
    case SENT_AGAIN:
      return `${who} is sent again, for the ${ordinal(bodies.attempt[body])} time.`;
    case LEFT_OUTSIDE: return `${who} has to wait outside the door.`;
    case CAME_IN: return `${who} comes in through the door.`;
    case REFUSED: return `${who} is refused.`;
    case SEATED: return `${who} takes a seat, ${since} after it was sent.`;
    case SEATED_AGAIN: return `${who} has a seat again; its tokens are computed anew.`;
    case FIRST_TOKEN: return `${who} has its first token, ${since} after it was sent.`;
    case FINISHED: return `${who} is finished, ${since} after it was sent.`;
    case TIMED_OUT: return `the client of ${who} gives up after ${since}.`;
    case SERVED_THE_VOID:
      return `${who} is finished, but its client has gone: the work is wasted.`;
    case LOST_SEAT:
      return `memory is short: ${who} loses its seat and its cache, and waits again in front.`;
    default: return `${Who}.`;
  }
}

/** Return in one sentence how the server stands, for who cannot see it. */
export function summaryOf(film, scene, moment) {
  const count = (...kinds) => scene.filter((one) => kinds.includes(one.place)).length;
  const taken = count(SEAT);
  const parts = [`${many(count(QUEUE, PREEMPTED), "request")} waiting`];
  if (film.most[OUTSIDE]) parts.push(`${whole(count(OUTSIDE))} outside the door`);
  parts.push(`${whole(taken)} of ${many(film.seat_limit, "seat")} taken`);
  const blocks = scene.reduce((sum, one) => sum + one.blocks, 0);
  if (film.block_limit !== null) parts.push(`${whole(blocks)} of ${whole(film.block_limit)} KV blocks held`);
  else parts.push(`${whole(blocks)} tokens in the KV cache`);
  if (film.most[AWAY]) parts.push(`${whole(count(AWAY))} will be sent again`);
  parts.push(`${whole(upTo(film.counted[FINISHED], moment))} finished`);
  for (const [kind, word] of [[REFUSED, "refused"], [TIMED_OUT, "timed out"]]) {
    if (film.counted[kind].length) parts.push(`${whole(upTo(film.counted[kind], moment))} ${word}`);
  }
  return `${parts.join(", ")}.`;
}

/** Return the step in hand in words; an empty engine says so. */
export function stepAt(film, moment, brief = false) {
  const { steps } = film;
  const step = upTo(steps.start_s, moment) - 1;
  if (step < 0 || steps.end_s[step] <= moment) return "no step: the engine has nothing to do";
  const parts = [];
  const prompts = steps.prefill_tokens[step];
  if (prompts) parts.push(brief ? `${whole(prompts)} prompt` : many(prompts, "prompt token"));
  if (steps.decode_seqs[step]) parts.push(`${whole(steps.decode_seqs[step])} decoding`);
  return `step ${whole(step + 1)}: ${parts.join(brief ? " + " : " and ")}, ${duration(steps.end_s[step] - steps.start_s[step])}`;
}

/** Return the life of a request up to a moment: what happened when, one line an event. */
export function lifeOf(film, request, moment) {
  const sendings = film.firstSending.get(request);
  if (!sendings) return [];
  const mine = new Set(sendings);
  const lines = [];
  for (let event = 0; event < film.events.at_s.length; event++) {
    if (film.events.at_s[event] > moment) break;
    if (mine.has(film.events.body[event])) {
      lines.push(`${clock(film, film.events.at_s[event])}: ${tell(film, event)}`);
    }
  }
  return lines;
}

// -------------------------------------------------------------------------------------- layout

/** Return where everything stands in a box of this size: on a narrow one, one above the other. */
export function layoutOf(film, width, height) {
  const narrow = width < 620;
  const head = 18, gap = 10;
  const lanes = 72, memory = 18;
  const below = lanes + head + gap + memory + head + gap;
  const stage = height - below;
  const box = { width, height, narrow, head };
  const left = narrow ? width : Math.round(width * 0.22);
  const door = film.most[OUTSIDE] ? 1 : 0, away = film.most[AWAY] ? 1 : 0;
  // the crowds share the left column by how many are in them at most
  const shares = [door && 0.3, 1 - 0.3 * door - 0.3 * away, away && 0.3];
  let y = 0;
  const room = narrow ? 96 : stage;
  [box.door, box.queue, box.away] = shares.map((share) => {
    const cell = narrow
      ? { x: Math.round(y * width / room), y: head, width: Math.round(share * width) - gap, height: room - head }
      : { x: 0, y: y + head, width: left - gap, height: Math.round(share * stage) - head - 4 };
    y += share * room;
    return cell;
  });
  const right = narrow ? width : Math.round(width * 0.87);
  box.seats = narrow
    ? { x: 0, y: room + head + gap, width, height: stage - room - head - gap - 40 }
    : { x: left, y: head, width: right - left - gap, height: stage - head };
  box.out = narrow
    ? { x: 0, y: stage - 36, width, height: 36 }
    : { x: right, y: head, width: width - right, height: stage - head };
  box.memory = { x: 0, y: stage + head + gap, width, height: memory };
  box.steps = { x: 0, y: height - lanes, width, height: lanes };
  box.grid = seatGrid(film.seats, box.seats);
  box.cells = [[box.door, film.most[OUTSIDE]], [box.queue, film.most[QUEUE]],
    [box.away, film.most[AWAY]]].map(([where, most]) => crowdGrid(where, most));
  return box;
}

/** Return columns, width and height of the seats: as few columns as leave rows that can be seen. */
function seatGrid(seats, where) {
  let columns = 1;
  const rows = () => Math.ceil(seats / columns);
  while (columns < seats && where.height / rows() < 11 && where.width / (columns + 1) >= 26) columns++;
  const height = Math.min(where.height / rows(), 40);
  return { columns, rows: rows(), width: where.width / columns, height };
}

/** Return side and columns of the squares for a crowd: so large that the most there are have room. */
function crowdGrid(where, most) {
  let side = 15;
  const fits = () => Math.floor(where.width / side) * Math.floor(where.height / side) >= most;
  while (side > 3 && !fits()) side -= 1;
  return { side, columns: Math.max(1, Math.floor(where.width / side)),
    rows: Math.max(1, Math.floor(where.height / side)) };
}

/** Return the square of a crowd's n-th: the first stands nearest to where it is called next. */
function squareOf(where, grid, n) {
  const row = Math.floor(n / grid.columns), column = n % grid.columns;
  return { x: where.x + where.width - (column + 1) * grid.side, y: where.y + row * grid.side,
    width: grid.side - 1, height: grid.side - 1 };
}

/** Return the cell of a seat. */
function seatCell(box, seat) {
  const { columns, rows, width, height } = box.grid;
  const column = Math.floor(seat / rows), row = seat % rows;
  const thin = Math.min(2, height * 0.2);
  return { x: box.seats.x + column * width, y: box.seats.y + row * height,
    width: width - (columns > 1 ? 3 : 0), height: height - thin };
}

/** Return everybody who is drawn at a moment, with the rectangle for each; nobody is on the way. */
export function placed(film, box, moment) {
  const scene = sceneAt(film, moment);
  const shapes = [];
  const line = inLine(film, scene);
  const crowds = [
    [scene.filter((one) => one.place === OUTSIDE), box.door, box.cells[0]],
    [line, box.queue, box.cells[1]],
    [scene.filter((one) => one.place === AWAY), box.away, box.cells[2]],
  ];
  for (const [crowded, where, grid] of crowds) {
    const room = grid.columns * grid.rows;
    crowded.forEach((one, n) => {
      if (n < room) shapes.push(Object.assign(one, squareOf(where, grid, n)));
    });
  }
  const { prompt_tokens, output_tokens } = film.bodies;
  for (const one of scene) {
    if (one.place !== SEAT) continue;
    const cell = seatCell(box, one.seat);
    const share = (prompt_tokens[one.body] + output_tokens[one.body]) / film.longest;
    cell.width *= 0.3 + 0.7 * Math.sqrt(share);
    shapes.push(Object.assign(one, cell));
  }
  return { shapes, scene, waiting: line.length,
    outside: crowds[0][0].length, away: crowds[2][0].length };
}

// ------------------------------------------------------------------------------------- drawing

const LIGHT = { ground: "#ffffff", ink: "#1f1f1f", soft: "#5b5b5b", line: "#c4c4c4", pale: "#ededed",
  prompt: "#0072B2", now: "#7fb8d8", token: "#E69F00", stripe: "#8a5a00", bad: "#C04A00",
  late: "#8E3F6F", good: "#00704f", free: "#f6f6f6" };
const DARK = { ground: "#181818", ink: "#ececec", soft: "#b3b3b3", line: "#575757", pale: "#303030",
  prompt: "#56B4E9", now: "#2f6b8f", token: "#E69F00", stripe: "#5a3a00", bad: "#FF8A4C",
  late: "#E5A0C8", good: "#3ecf9f", free: "#222222" };

function stripes(context, ink) {
  const tile = new OffscreenCanvas(4, 4);
  const on = tile.getContext("2d");
  on.fillStyle = ink.token;
  on.fillRect(0, 0, 4, 4);
  on.fillStyle = ink.stripe;
  on.fillRect(0, 0, 1.3, 4);
  return context.createPattern(tile, "repeat");
}

/** Draw one server into its box at a moment; `glide`: seconds of the run that a way takes. */
export function drawServer(context, film, box, view) {
  const { ink, moment, glide, followed } = view;
  const found = placed(film, box, moment);
  context.fillStyle = ink.ground;
  context.fillRect(0, 0, box.width, box.height);
  context.textBaseline = "alphabetic";
  context.lineWidth = 1;
  drawHeads(context, film, box, view, found);
  context.fillStyle = ink.free;
  for (let seat = 0; seat < film.seats; seat++) {
    const cell = seatCell(box, seat);
    context.fillRect(cell.x, cell.y, cell.width, cell.height);
  }
  const fraction = stepFraction(film, moment);
  for (const one of found.shapes) {
    const way = glide > 0 ? (moment - one.since) / glide : 1;
    if (way < 1) comeFrom(one, box, way);
    if (one.place === SEAT) drawSeated(context, film, box, one, view, fraction);
    else drawWaiting(context, film, one, ink);
  }
  if (glide > 0) drawLeaving(context, film, box, view);
  drawMemory(context, film, box, view, found.scene);
  drawSteps(context, film, box, view);
  for (const one of found.shapes) {
    if (film.bodies.request[one.body] !== followed) continue;
    context.lineWidth = 2.5;
    context.strokeStyle = ink.ink;
    context.strokeRect(one.x - 2, one.y - 2, one.width + 4, one.height + 4);
  }
  return found.shapes;
}

/** Move somebody back on the way to its place: from the left, or from the line to its seat. */
function comeFrom(one, box, way) {
  const eased = way * way * (3 - 2 * way);
  const from = one.place === SEAT
    ? { x: box.queue.x + box.queue.width, y: box.narrow ? box.queue.y : box.queue.y + 4 }
    : { x: -20, y: one.y };
  one.x = from.x + (one.x - from.x) * eased;
  one.y = from.y + (one.y - from.y) * eased;
}

function stepFraction(film, moment) {
  const { steps } = film;
  const step = upTo(steps.start_s, moment) - 1;
  if (step < 0 || steps.end_s[step] <= moment) return 0;
  return (moment - steps.start_s[step]) / (steps.end_s[step] - steps.start_s[step]);
}

function label(context, words, x, y, colour, size = 12, weight = "") {
  context.font = `${weight} ${Math.max(size, LEAST_FONT)}px ${FONT}`;
  context.fillStyle = colour;
  context.fillText(words, x, y);
}

function drawHeads(context, film, box, { ink, moment }, found) {
  const wide = !box.narrow;
  if (film.most[OUTSIDE]) {
    label(context, `outside ${whole(found.outside)}`, box.door.x, box.door.y - 5, ink.ink);
  }
  label(context, `${wide ? "waiting" : "wait"} ${whole(found.waiting)}`, box.queue.x, box.queue.y - 5, ink.ink, 12, "600");
  if (film.most[AWAY]) {
    label(context, `${wide ? "will send again" : "again"} ${whole(found.away)}`, box.away.x, box.away.y - 5, ink.ink);
  }
  const hidden = found.waiting - box.cells[1].columns * box.cells[1].rows;
  if (hidden > 0) label(context, `+${whole(hidden)}`, box.queue.x + 80, box.queue.y - 5, ink.soft);
  const taken = found.scene.filter((one) => one.place === SEAT).length;
  label(context, `seats: ${whole(taken)} of ${whole(film.seat_limit)} taken`, box.seats.x, box.seats.y - 5, ink.ink, 12, "600");
  const ends = [["✓", FINISHED, "finished", ink.good]];
  if (film.counted[REFUSED].length) ends.push(["✕", REFUSED, "refused", ink.ink]);
  if (film.counted[TIMED_OUT].length) ends.push(["◔", TIMED_OUT, "timed out", ink.late]);
  if (film.counted[LOST_SEAT].length) ends.push(["▲", LOST_SEAT, "preempted", ink.bad]);
  ends.forEach(([sign, kind, word, colour], n) => {
    const count = whole(upTo(film.counted[kind], moment));
    if (wide) {
      label(context, `${sign} ${count}`, box.out.x, box.out.y + 8 + n * 44, colour, 18, "600");
      label(context, word, box.out.x, box.out.y + 24 + n * 44, ink.soft);
    } else {
      const x = box.out.x + (n % 2) * box.width / 2;
      label(context, `${sign} ${count} ${word}`, x, box.out.y + 12 + (n >> 1) * 18, colour);
    }
  });
}

function drawWaiting(context, film, one, ink) {
  const again = one.place === PREEMPTED;
  const share = Math.sqrt(film.bodies.prompt_tokens[one.body] / film.longest);
  const full = Math.max(1, one.height * (0.25 + 0.75 * share));
  context.fillStyle = one.place === AWAY ? ink.late : again ? ink.bad : one.gone ? ink.line : ink.soft;
  context.fillRect(one.x, one.y + one.height - full, one.width, full);
  if (one.height < 8) return;
  context.strokeStyle = again ? ink.bad : ink.line;
  context.strokeRect(one.x + 0.5, one.y + 0.5, one.width - 1, one.height - 1);
  const sign = again ? "▲" : one.place === AWAY ? "↻" : one.gone ? "◔" : "";
  if (sign && one.height >= 12) label(context, sign, one.x + 1.5, one.y + one.height - 2, ink.ground, 11);
}

function drawSeated(context, film, box, one, { ink, token }, fraction) {
  const prompt = film.bodies.prompt_tokens[one.body], output = film.bodies.output_tokens[one.body];
  const all = prompt + output;
  const { x, y, width, height } = one;
  const begun = film.sittings.decodes_from[one.sitting];
  const decoding = one.computed >= prompt && one.emitted > 0 && begun >= 0
    && one.computed >= prompt + one.emitted - 1;
  const over = film.bodies.status[one.body] === STATUS_FINISHED && one.gone;
  context.globalAlpha = one.gone ? 0.45 : 1;
  context.fillStyle = ink.pale;
  context.fillRect(x, y, width, height);
  const soon = one.computed + (one.held - one.computed) * fraction;
  if (decoding) {
    context.fillStyle = ink.prompt;
    context.fillRect(x, y, width * prompt / all, height);
    context.fillStyle = token;
    context.fillRect(x + width * prompt / all, y, width * one.emitted / all, height);
  } else {
    context.fillStyle = ink.now;
    context.fillRect(x, y, width * soon / all, height);
    context.fillStyle = ink.prompt;
    context.fillRect(x, y, width * one.computed / all, height);
    if (one.emitted) { // kept from before it was preempted
      context.strokeStyle = ink.token;
      context.strokeRect(x + width * prompt / all, y + 1, width * one.emitted / all, height - 2);
    }
  }
  context.strokeStyle = one.gone ? ink.late : ink.line;
  if (one.gone) context.setLineDash([3, 2]);
  context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  if (one.gone) context.setLineDash([]);
  context.globalAlpha = 1;
  if (height < 14) return;
  const number = `${film.bodies.request[one.body]}`;
  const state = over ? "over, keeps its slot" : one.gone ? "client gone" : decoding
    ? `${whole(one.emitted)} of ${whole(output)} tokens`
    : `prompt ${whole(one.computed)} of ${whole(prompt + one.emitted)}`;
  context.font = `12px ${FONT}`;
  const wide = context.measureText(`${number}: ${state}`).width;
  if (wide < box.grid.width - width - 12) {
    label(context, `${number}: ${state}`, x + width + 6, y + height / 2 + 4, ink.ink);
  } else if (width > 44) {
    context.font = `600 11px ${FONT}`;
    const chip = context.measureText(number).width + 6;
    context.fillStyle = ink.ground;
    context.fillRect(x + 3, y + height / 2 - 6.5, chip, 13);
    label(context, number, x + 6, y + height / 2 + 4, ink.ink, 11, "600");
  }
}

/** Draw those who left a moment ago on their way out: to the right, back to the left, or down. */
function drawLeaving(context, film, box, { ink, moment, glide }) {
  const { events } = film;
  const last = upTo(events.at_s, moment);
  const first = Math.max(upTo(events.at_s, moment - glide), last - MOST_LEAVING);
  for (let event = first; event < last; event++) {
    const kind = events.kind[event];
    const way = (moment - events.at_s[event]) / glide;
    const aside = (events.body[event] * 0.618) % 1; // spread, so that they do not hide one another
    context.globalAlpha = 1 - way * way;
    if (kind === FINISHED) {
      const y = box.seats.y + (events.body[event] % box.grid.rows + 0.5) * box.grid.height;
      label(context, "✓", box.seats.x + box.seats.width * (0.8 + 0.2 * way) + 8 * way, y + 4, ink.good, 15);
    } else if (kind === REFUSED) {
      const there = way < 0.5 ? way * 2 : 2 - way * 2;
      label(context, "✕", box.queue.x + there * box.queue.width * (0.3 + 0.4 * aside), box.queue.y + box.queue.height - 6, ink.ink, 16);
    } else if (kind === TIMED_OUT) {
      label(context, "◔", box.queue.x + box.queue.width * (0.1 + 0.8 * aside), box.queue.y + box.queue.height * (0.5 + 0.45 * way), ink.late, 16);
    } else if (kind === LOST_SEAT) {
      const from = box.seats.x + 30, to = box.queue.x + box.queue.width - 12;
      label(context, "▲", from + (to - from) * way, box.queue.y + 12, ink.bad, 15);
    }
  }
  context.globalAlpha = 1;
}

function drawMemory(context, film, box, { ink, token, followed }, scene) {
  const where = box.memory;
  const limit = film.block_limit ?? film.mostTokens;
  const seated = scene.filter((one) => one.place === SEAT).sort((a, b) => a.seat - b.seat);
  const held = seated.reduce((sum, one) => sum + one.blocks, 0);
  const unit = film.block_limit === null ? "tokens, no limit" : `of ${whole(limit)} blocks`;
  label(context, `KV memory: ${whole(held)} ${unit}`, where.x, where.y - 5, ink.ink, 12, "600");
  context.fillStyle = ink.free;
  context.fillRect(where.x, where.y, where.width, where.height);
  let x = where.x;
  for (const one of seated) {
    const width = where.width * one.blocks / limit;
    const begun = film.sittings.decodes_from[one.sitting];
    const decoding = begun >= 0 && one.emitted > 0;
    context.globalAlpha = one.gone ? 0.45 : one.seat % 2 ? 0.8 : 1;
    context.fillStyle = !decoding ? ink.prompt : width < 6 ? ink.token : token;
    context.fillRect(x, where.y, Math.max(width - (width > 3 ? 1 : 0), 0.5), where.height);
    context.globalAlpha = 1;
    if (film.bodies.request[one.body] === followed) {
      context.strokeStyle = ink.ink;
      context.lineWidth = 2.5;
      context.strokeRect(x, where.y - 1, Math.max(width, 2), where.height + 2);
      context.lineWidth = 1;
    }
    x += width;
  }
  context.strokeStyle = ink.line;
  context.strokeRect(where.x + 0.5, where.y + 0.5, where.width - 1, where.height - 1);
}

/** Draw the steps around the moment: above the line prompt tokens, below it who decodes. */
function drawSteps(context, film, box, { ink, moment }) {
  const where = box.steps, { steps } = film;
  const span = film.usualStep * STRIP_STEPS;
  const from = Math.max(moment - span * 0.8, film.start_s);
  const at = (time) => where.x + (time - from) / span * where.width;
  const middle = where.y + where.height * 0.6;
  const up = where.height * 0.6 - 2, down = where.height * 0.4 - 2;
  label(context, stepAt(film, moment, box.narrow), where.x, where.y - 5, ink.ink, 12, "600");
  context.strokeStyle = ink.line;
  context.strokeRect(where.x + 0.5, where.y + 0.5, where.width - 1, where.height - 1);
  let step = upTo(steps.end_s, from);
  for (; step < steps.start_s.length && steps.start_s[step] < from + span; step++) {
    const x = Math.max(at(steps.start_s[step]), where.x);
    const width = Math.min(at(steps.end_s[step]), where.x + where.width) - x;
    const future = steps.start_s[step] > moment;
    context.globalAlpha = future ? 0.3 : 1;
    const high = up * steps.prefill_tokens[step] / film.mostPrefill;
    const low = down * steps.decode_seqs[step] / film.mostDecode;
    const inner = Math.max(width - (width > 3 ? 1 : 0), 0.5);
    context.fillStyle = ink.prompt;
    context.fillRect(x, middle - high, inner, high);
    context.fillStyle = ink.token;
    context.fillRect(x, middle + 1, inner, low);
    context.globalAlpha = 1;
  }
  for (const [words, y] of [["prompt tokens ↑", middle - up + 11], ["decoding ↓", middle + down - 1]]) {
    context.font = `${LEAST_FONT}px ${FONT}`;
    context.globalAlpha = 0.8;
    context.fillStyle = ink.ground;
    context.fillRect(where.x + 2, y - 10, context.measureText(words).width + 6, 13);
    context.globalAlpha = 1;
    label(context, words, where.x + 5, y, ink.ink, LEAST_FONT);
  }
  context.beginPath();
  context.moveTo(where.x, middle + 0.5);
  context.lineTo(where.x + where.width, middle + 0.5);
  context.stroke();
  context.strokeStyle = ink.ink;
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(at(moment), where.y);
  context.lineTo(at(moment), where.y + where.height);
  context.stroke();
  context.lineWidth = 1;
}

// ---------------------------------------------------------------------------------- the player

const STYLE = `
.course-watch{container-type:inline-size;border:1px solid var(--cw-line);border-radius:6px;padding:8px 12px;
 max-width:1120px;background:var(--cw-ground);color:var(--cw-ink);font:14px/1.4 system-ui,sans-serif;box-sizing:border-box}
.course-watch h3{font-size:16px;margin:0 0 4px;font-weight:600;color:inherit}
.course-watch canvas{display:block;width:100%}
.course-watch .cw-bar{display:flex;flex-wrap:wrap;gap:6px;align-items:center;margin:6px 0 2px}
.course-watch button,.course-watch select,.course-watch .cw-bar input[type=number]{font:14px system-ui,sans-serif;
 min-height:30px;padding:2px 10px;color:var(--cw-ink);background:var(--cw-pale);border:1px solid var(--cw-soft);border-radius:4px}
.course-watch button:hover{border-color:var(--cw-ink)}
.course-watch .cw-bar input[type=number]{width:80px;padding:2px 6px;box-sizing:border-box}
.course-watch :focus-visible{outline:3px solid var(--cw-prompt);outline-offset:2px}
.course-watch ::placeholder{color:var(--cw-soft);opacity:1}
.course-watch .cw-play{min-width:84px;font-weight:600}
.course-watch .cw-clock{font-variant-numeric:tabular-nums;min-width:150px}
.course-watch input[type=range]{width:100%;margin:0;accent-color:var(--cw-prompt);min-width:0}
.course-watch p{margin:4px 0;max-width:100ch}
.course-watch .cw-story{min-height:1.4em;font-weight:500}
.course-watch .cw-key{display:flex;flex-wrap:wrap;gap:4px 14px;font-size:12px;color:var(--cw-soft);margin:2px 0}
.course-watch .cw-key i{display:inline-block;width:14px;height:10px;margin-right:4px;vertical-align:-1px}
.course-watch .cw-life{font-size:13px;margin:2px 0;padding:2px 0 2px 18px;max-height:7.5em;overflow:auto}
.course-watch .cw-life:empty{display:none}
.course-watch .cw-hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
@container (max-width:420px){.course-watch button{padding:2px 6px}.course-watch .cw-bar{gap:4px}
 .course-watch .cw-play{min-width:58px}.course-watch .cw-clock{min-width:0}}
@media print{.course-watch .cw-bar,.course-watch input{display:none}}
`;

let opened = 0;

/** Put a player of some films into `element`; return what moves it and tells how it stands. */
export function mount(element, { films, title, from_s, speed: wanted }, options = {}) {
  let film = films[options.shown ?? 0];
  const id = `cw${++opened}`;
  const calm = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)");
  element.innerHTML = `<style>${STYLE}</style><section class="course-watch" aria-labelledby="${id}-title">
<h3 id="${id}-title"></h3>
<canvas role="img" aria-labelledby="${id}-title" aria-describedby="${id}-now"></canvas>
<canvas class="cw-marks" aria-hidden="true"></canvas>
<input type="range" class="cw-scrub" aria-label="Moment of the run">
<div class="cw-bar" role="group" aria-label="Player">
<button type="button" class="cw-play" aria-keyshortcuts="Space">Play</button>
<button type="button" class="cw-back" aria-label="One step back" title="One step back (left arrow)">◂ step</button>
<button type="button" class="cw-on" aria-label="One step forward" title="One step forward (right arrow)">step ▸</button>
<button type="button" class="cw-event-back" aria-label="Event before" title="Event before (shift + left arrow)">◂ event</button>
<button type="button" class="cw-event" aria-label="Next event" title="Next event (shift + right arrow)">event ▸</button>
<label>Speed <select class="cw-speed"></select></label>
<label class="cw-choose">Show <select class="cw-films"></select></label>
<label>Follow request <input type="number" class="cw-follow" min="0" placeholder="none"></label>
<span class="cw-clock"></span></div>
<p class="cw-story" role="status"></p>
<ol class="cw-life" aria-label="Life of the request followed" tabindex="0"></ol>
<div class="cw-key"></div>
<p class="cw-hidden" id="${id}-now"></p></section>`;
  const root = element.querySelector(".course-watch");
  const part = (name) => root.querySelector(name);
  const canvas = part("canvas"), marks = part(".cw-marks");
  const [scrub, play, speed, follow] = [".cw-scrub", ".cw-play", ".cw-speed", ".cw-follow"].map(part);
  const [story, life, now, time] = [".cw-story", ".cw-life", `#${id}-now`, ".cw-clock"].map(part);
  const choose = part(".cw-films");
  part(".cw-choose").hidden = films.length < 2;
  choose.replaceChildren(...films.map(({ label: name }, n) => new Option(name, n)));
  speed.innerHTML = SPEEDS.map((value) => `<option value="${value}">×${value}</option>`).join("");
  Object.assign(scrub, { min: film.start_s, max: film.end_s });
  scrub.step = "any";

  const me = {
    film, films, moment: clamp(options.moment ?? from_s ?? film.start_s), playing: false,
    speed: nearest(options.speed ?? wanted ?? (film.end_s - film.start_s) / 40),
    followed: undefined, shapes: [], onMoved: options.onMoved ?? (() => {}),
    seek, toggle, step, event: toEvent, setSpeed, follow: followRequest, show, state, redraw, close,
  };
  speed.value = String(me.speed);
  let box, ink, context, token, ticking, drawnAt, stilled, last;
  headline();
  theme();
  const sizes = new ResizeObserver(() => size());
  sizes.observe(canvas.parentElement);
  const themes = new MutationObserver(() => {
    theme();
    setTimeout(theme, 600); // once the new theme's own sheet has come
  });
  for (const one of [document.documentElement, document.body]) {
    themes.observe(one, { attributes: true, attributeFilter: ["class", "style", "theme", "data-jp-theme-light", "data-jp-theme-name"] });
  }
  play.onclick = toggle;
  part(".cw-back").onclick = () => step(-1);
  part(".cw-on").onclick = () => step(1);
  part(".cw-event-back").onclick = () => toEvent(-1);
  part(".cw-event").onclick = () => toEvent(1);
  choose.onchange = () => show(Number(choose.value));
  speed.onchange = () => setSpeed(Number(speed.value));
  scrub.oninput = () => seek(Number(scrub.value));
  follow.oninput = () => followRequest(follow.value === "" ? undefined : Number(follow.value));
  root.onkeydown = onKey;
  canvas.onpointermove = canvas.onclick = (event) => followRequest(whoIsAt(event) ?? me.followed);
  size();
  return me;

  function headline() {
    part("h3").textContent = films.length > 1 ? `${title}: ${film.label}` : title;
    follow.max = film.bodies.request.reduce((a, b) => Math.max(a, b), 0);
    choose.value = String(films.indexOf(film));
  }
  function show(which) {
    if (!films[which] || films[which] === film) return;
    me.film = film = films[which];
    headline();
    box = layoutOf(film, box.width, box.height);
    key();
    drawMarks();
    redraw();
    tellAll();
    me.onMoved(me);
  }
  function clamp(moment) {
    return Math.min(Math.max(moment, film.start_s), film.end_s);
  }
  function nearest(wanted) {
    return SPEEDS.reduce((a, b) =>
      Math.abs(Math.log(b / wanted)) < Math.abs(Math.log(a / wanted)) ? b : a);
  }
  function theme() {
    const dark = isDark(element);
    ink = dark ? DARK : LIGHT;
    for (const [name, value] of Object.entries(ink)) root.style.setProperty(`--cw-${name}`, value);
    root.style.colorScheme = dark ? "dark" : "light";
    key();
    if (context) {
      token = stripes(context, ink);
      drawMarks();
      redraw();
    }
  }
  function size() {
    const width = Math.max(Math.floor(root.clientWidth - 24), 280);
    // before it stood on the page it had no ground to go by
    if (isDark(element) !== (ink === DARK)) theme();
    if (box && box.width === width) return;
    // a server of few seats needs no more room than they take
    const seats = Math.max(...films.map((one) => one.seats));
    const most = Math.min(400, 230 + 44 * seats);
    const height = width < 620 ? 480 : Math.round(Math.min(Math.max(width * 0.36, 274), most));
    const sharp = globalThis.devicePixelRatio || 1;
    Object.assign(canvas, { width: width * sharp, height: height * sharp });
    canvas.style.height = `${height}px`;
    context = canvas.getContext("2d");
    context.setTransform(sharp, 0, 0, sharp, 0, 0);
    token = stripes(context, ink);
    box = layoutOf(film, width, height);
    drawMarks();
    redraw();
  }
  function drawMarks() {
    const kinds = markedKinds(film, ink);
    const lane = 7, sharp = globalThis.devicePixelRatio || 1;
    const height = Math.max(kinds.length * lane, 1);
    Object.assign(marks, { width: box.width * sharp, height: height * sharp });
    marks.style.height = `${height}px`;
    const on = marks.getContext("2d");
    on.setTransform(sharp, 0, 0, sharp, 0, 0);
    kinds.forEach(({ times, colour }, n) => {
      on.fillStyle = colour;
      const drawn = new Set();
      for (const at of times) {
        const x = Math.round(8 + (box.width - 16) * (at - film.start_s) / (film.end_s - film.start_s || 1));
        if (!drawn.has(x)) on.fillRect(x, n * lane, 2, lane - 2);
        drawn.add(x);
      }
    });
  }
  function key() {
    const swatch = (colour, words, pattern = "") => `<span><i style="background:${pattern || colour}"></i>${words}</span>`;
    const striped = `repeating-linear-gradient(90deg,${ink.stripe} 0 1.3px,${ink.token} 1.3px 4px)`;
    const marked = markedKinds(film, ink);
    part(".cw-key").innerHTML = swatch(ink.soft, "waiting, higher: longer prompt")
      + swatch(ink.prompt, "prompt computed") + swatch(ink.token, "tokens made, striped", striped)
      + marked.map(({ colour, sign, word, times }) =>
        `<span><b style="color:${colour}">${sign}</b> ${word}: ${whole(times.length)} in all</span>`).join("");
  }
  function redraw() {
    const playing = me.playing && !calm?.matches;
    const view = { ink, token, moment: me.moment, followed: me.followed,
      glide: playing ? GLIDE_S * me.speed : 0 };
    me.shapes = drawServer(context, film, box, view);
    scrub.value = me.moment;
    time.textContent = `${clock(film, me.moment)} of ${clock(film, film.end_s)}`;
    if (me.playing && performance.now() - (drawnAt ?? 0) < 250) return;
    drawnAt = performance.now();
    tellAll();
  }
  function tellAll() {
    // who listens is told when it stands still, not sixty times a second
    story.setAttribute("aria-live", me.playing ? "off" : "polite");
    story.textContent = storyAt(film, me.moment);
    const words = `${stepAt(film, me.moment)}. ${summaryOf(film, sceneAt(film, me.moment), me.moment)}`;
    now.textContent = words;
    scrub.setAttribute("aria-valuetext", `${clock(film, me.moment)} of ${clock(film, film.end_s)}`);
    const lines = me.followed === undefined ? [] : lifeOf(film, me.followed, me.moment);
    life.replaceChildren(...lines.slice(-40).map((line) =>
      Object.assign(document.createElement("li"), { textContent: line })));
    if (!me.playing) life.scrollTop = life.scrollHeight;
  }
  function tick(wall) {
    if (!me.playing) return;
    const passed = Math.min((wall - (last ?? wall)) / 1000, 0.1); // a tab out of sight stands still
    last = wall;
    me.moment = clamp(me.moment + passed * me.speed);
    // who asked for little motion sees two still pictures a second
    if (!calm?.matches || !(wall - (stilled ?? 0) < CALM_MS)) {
      stilled = wall;
      redraw();
    }
    if (me.moment >= film.end_s) return pause();
    ticking = requestAnimationFrame(tick);
  }
  function toggle() {
    if (me.playing) return pause();
    if (me.moment >= film.end_s) me.moment = film.start_s;
    me.playing = true;
    last = undefined;
    play.textContent = "Pause";
    ticking = requestAnimationFrame(tick);
    me.onMoved(me);
  }
  function pause() {
    cancelAnimationFrame(ticking);
    me.playing = false;
    play.textContent = "Play";
    redraw();
    me.onMoved(me);
  }
  function seek(moment) {
    me.moment = clamp(moment);
    if (!me.playing) redraw();
    me.onMoved(me);
  }
  function stop() {
    if (me.playing) pause();
  }
  function step(way) {
    stop();
    seek(neighbours(film, me.moment)[way < 0 ? 0 : 1]);
  }
  function toEvent(way) {
    stop();
    const { at_s } = film.events;
    let at = upTo(at_s, me.moment);
    if (way < 0) {
      at -= 1;
      while (at >= 0 && at_s[at] >= me.moment) at--;
    }
    seek(at_s[at] ?? (way < 0 ? film.start_s : film.end_s));
  }
  function setSpeed(value) {
    me.speed = nearest(value);
    speed.value = String(me.speed);
    me.onMoved(me);
  }
  function followRequest(request) {
    if (request === me.followed) return;
    me.followed = request;
    if (document.activeElement !== follow) follow.value = request ?? "";
    if (!me.playing) redraw();
    tellAll();
  }
  function whoIsAt(event) {
    const shown = canvas.getBoundingClientRect();
    const x = (event.clientX - shown.left) * box.width / shown.width;
    const y = (event.clientY - shown.top) * box.height / shown.height;
    const one = me.shapes.find((shape) => x >= shape.x && x <= shape.x + shape.width
      && y >= shape.y && y <= shape.y + shape.height);
    return one && film.bodies.request[one.body];
  }
  function onKey(event) {
    if ([follow, speed, choose].includes(event.target) || event.altKey || event.ctrlKey || event.metaKey) return;
    const onButton = event.target.tagName === "BUTTON", onScrub = event.target === scrub;
    const keys = { ArrowRight: () => (event.shiftKey ? toEvent(1) : step(1)),
      ArrowLeft: () => (event.shiftKey ? toEvent(-1) : step(-1)) };
    if (!onButton) keys[" "] = toggle;
    if (!onScrub) Object.assign(keys, { Home: () => seek(film.start_s), End: () => seek(film.end_s) });
    const act = keys[event.key];
    // a notebook has keys of its own, and shall not take ours
    event.stopPropagation();
    if (!act) return;
    event.preventDefault();
    act();
  }
  function state() {
    const { shapes } = placed(film, box, me.moment);
    return { moment_s: me.moment, shown: films.indexOf(film), playing: me.playing,
      speed: me.speed, width: box.width,
      height: box.height, bodies: shapes.map((one) => [one.body, one.place, one.seat, one.computed,
        one.emitted, one.blocks, one.gone ? 1 : 0, one.x, one.y, one.width, one.height]) };
  }
  function close() {
    cancelAnimationFrame(ticking);
    me.playing = false;
    sizes.disconnect();
    themes.disconnect();
    element.replaceChildren();
  }
}

function markedKinds(film, ink) {
  const kinds = [[LOST_SEAT, "▲", "preempted", ink.bad], [REFUSED, "✕", "refused", ink.ink],
    [TIMED_OUT, "◔", "timed out", ink.late], [SENT_AGAIN, "↻", "sent again", ink.soft]];
  return kinds.map(([kind, sign, word, colour]) => ({ kind, sign, word, colour, times: film.counted[kind] }))
    .filter(({ times }) => times.length);
}

/** Return whether the ground on which an element stands is dark. */
function isDark(element) {
  const said = document.body.dataset.jpThemeLight;
  if (said) return said === "false";
  for (let one = element; one; one = one.parentElement) {
    const parts = getComputedStyle(one).backgroundColor.match(/[\d.]+/g)?.map(Number);
    if (!parts || (parts.length > 3 && parts[3] < 0.5)) continue;
    return 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] < 128;
  }
  return false;
}

// --------------------------------------------------------------------------------- the ways in

/** As a widget: the films come as a trait of bytes; what is shown and how goes both ways. */
function render({ model, el }) {
  const player = mount(el, unpack(model.get("reel")), {
    moment: model.get("moment_s"), shown: model.get("shown"), speed: model.get("speed") || undefined,
    onMoved: tellModel,
  });
  const show = () => player.show(model.get("shown"));
  const seek = () => player.moment === model.get("moment_s") || player.seek(model.get("moment_s"));
  const run = () => player.playing === model.get("playing") || player.toggle();
  const answer = () => {
    model.set("drawn", player.state());
    model.save_changes();
  };
  model.on("change:moment_s", seek);
  model.on("change:playing", run);
  model.on("change:shown", show);
  model.on("change:asked", answer);
  announce(model.get("name"));
  return () => {
    model.off("change:moment_s", seek);
    model.off("change:playing", run);
    model.off("change:shown", show);
    model.off("change:asked", answer);
    player.close();
  };

  function tellModel(me) {
    model.set({ moment_s: me.moment, playing: me.playing, speed: me.speed,
      shown: me.films.indexOf(me.film) });
    model.save_changes();
  }
}

const LIVE = "course-watch-live";

function announce(name) {
  (globalThis.courseWatchLive ??= new Set()).add(name);
  document.dispatchEvent(new CustomEvent(LIVE, { detail: name }));
}

/** On a page: play the film that stands in it as text, unless a widget of the same name is alive. */
export async function play(place, name, text, patience = 1200) {
  const live = () => globalThis.courseWatchLive?.has(name);
  let player;
  document.addEventListener(LIVE, ({ detail }) => {
    if (detail !== name) return;
    player?.close();
    place.hidden = true;
  });
  await new Promise((resume) => setTimeout(resume, patience));
  if (live()) {
    place.hidden = true;
    return undefined;
  }
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const reel = unpack(new Uint8Array(await new Response(plain).arrayBuffer()));
  if (live()) return undefined;
  player = mount(place, reel);
  place.player = player;
  return player;
}

export default { render };
