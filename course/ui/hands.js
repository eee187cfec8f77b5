// What ipywidgets' own controls lack, done from inside their explorer: sliders that have a name and
// say their number as it is written, and a button for the full screen. No library, no network.

/** Give each slider of `shell` the words that stand beside it. */
export function name(shell) {
  for (const row of shell.querySelectorAll(".widget-slider, .widget-inline-hbox")) {
    const label = row.querySelector(".widget-label");
    const readout = row.querySelector(".widget-readout");
    for (const handle of row.querySelectorAll(".noUi-handle")) {
      if (label) put(handle, "aria-label", label.textContent.trim());
      if (readout) put(handle, "aria-valuetext", readout.textContent.trim());
    }
  }
}

function put(element, attribute, words) {
  if (words && element.getAttribute(attribute) !== words) element.setAttribute(attribute, words);
}

/** Fill the screen with `shell`, or give the screen back. */
function turn(shell) {
  if (document.fullscreenElement) document.exitFullscreen();
  else shell.requestFullscreen();
}

function render({ model, el }) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "jupyter-button widget-button";
  button.textContent = model.get("words");
  button.title = model.get("help");
  button.hidden = !document.fullscreenEnabled;
  el.append(button);
  let watcher;
  // the widget is made before it stands in its explorer
  const begin = (tries) => {
    const shell = el.closest(".course-shell");
    if (!shell) {
      if (tries) setTimeout(begin, 100, tries - 1);
      return;
    }
    button.onclick = () => turn(shell);
    name(shell);
    watcher = new MutationObserver(() => name(shell));
    for (const panel of shell.querySelectorAll(".course-controls")) {
      watcher.observe(panel, {
        childList: true, subtree: true, characterData: true,
        attributes: true, attributeFilter: ["aria-valuenow", "aria-valuetext"],
      });
    }
  };
  begin(50);
  return () => watcher?.disconnect();
}

export default { render };
