"""The look of the shell as one style sheet, and the few words that every explorer shares."""

from __future__ import annotations

from typing import Final

# JupyterLab's own variables where they exist, so that a dark theme stays readable. Pictures are
# drawn in light colours once and turned dark as a whole: the lightness reversed, the hue kept.
STYLE: Final = """
<style>
.course-shell{--course-around:330px;border:1px solid var(--jp-border-color2,#ccc);border-radius:6px;
  padding:6px 10px;max-width:1400px;contain:layout style}
.course-shell .course-title{font-size:1.15em;font-weight:600;line-height:1.3}
.course-shell .course-story{line-height:1.35}
.course-shell .course-story b{font-weight:600}
.course-shell .course-sentence{font-size:1.02em;line-height:1.4;max-width:100ch;
  padding:2px 6px 2px 0}
.course-shell .course-rest{display:none;padding-top:4px}
.course-shell.course-wordy .course-rest{display:block}
.course-shell .course-curtain{border-left:4px solid #0072B2;padding:2px 10px;margin:2px 0}
.course-shell .course-problem{border-left:4px solid #D55E00;padding:4px 10px}
.course-shell .course-scroll{overflow-x:auto;overflow-y:hidden;justify-content:safe center}
.course-shell .course-layers{position:relative;display:block;overflow:hidden;background:#fff;
  flex:none}
.course-shell .course-layers>*,.course-shell .course-layers>*>*{display:block;width:100%;margin:0}
.course-shell .course-layers>:last-child{position:absolute;top:0;left:0}
.course-shell .course-figure{display:block}
.course-shell .widget-html,.course-shell .widget-html-content{overflow:visible;line-height:1.35;
  min-height:0}
.course-shell .course-controls .widget-label{flex:1 0 100%;width:100%;text-align:left;
  height:auto;min-height:18px;line-height:1.25;white-space:normal;padding-top:1px}
.course-shell .course-controls .widget-dropdown select{flex:1 1 100%}
.course-shell .course-controls .widget-checkbox label{white-space:normal;line-height:1.25}
.course-shell button:focus-visible,.course-shell .noUi-handle:focus-visible,
.course-shell select:focus-visible,.course-shell input:focus-visible,
.course-shell svg:focus-visible{outline:3px solid #0072B2;outline-offset:2px}
.course-shell.course-present{max-width:none;--course-around:345px}
.course-shell.course-present .course-title{font-size:1.3rem}
.course-shell.course-present .course-story,.course-shell.course-present .course-sentence,
.course-shell.course-present .course-curtain .widget-html-content{font-size:1.1rem;max-width:none}
.course-shell.course-present .course-tale{display:none}
.course-shell.course-present .widget-label,.course-shell.course-present .widget-readout,
.course-shell.course-present .widget-label-basic,.course-shell.course-present select,
.course-shell.course-present button,.course-shell.course-present input{font-size:1.15rem}
.course-shell.course-present select,.course-shell.course-present button,
.course-shell.course-present input{height:auto;min-height:2rem}
.course-shell.course-present .course-controls{flex:0 0 190px!important;min-width:0!important}
.course-shell:fullscreen{background:var(--jp-layout-color0,#fff);overflow:auto;max-width:none;
  padding:10px 24px;--course-around:230px}
[data-jp-theme-light="false"] .course-layers,.vscode-dark .course-layers,
html[theme="dark"] .course-layers{filter:invert(0.93) hue-rotate(180deg)}
.course-shell.jupyter-widgets-disconnected{display:none}
</style>
"""

STILL_STYLE: Final = """
<style>
.course-still{max-width:860px;margin:0 0 8px;animation:course-appear 1.2s step-end both}
@keyframes course-appear{from{visibility:hidden;max-height:0}to{visibility:visible}}
.course-still .course-figure{background:#fff}
.course-still figcaption{line-height:1.4}
.course-still summary{cursor:pointer}
[data-jp-theme-light="false"] .course-still svg,.vscode-dark .course-still svg,
html[theme="dark"] .course-still svg{filter:invert(0.93) hue-rotate(180deg)}
</style>
"""

WAKE: Final = "A still picture: run this cell again to move it."
CURTAIN_CLOSED: Final = "Guess first: the curve and its sentence appear when you have."
CURTAIN_BUTTON: Final = "Show me"
CURTAIN_SKIP: Final = "Skip the guess"
CURTAIN_AGAIN: Final = "Guess again"
RESET: Final = "Reset"
PRESENT: Final = "Present"
WATCH: Final = "Watch it"
WATCH_HELP: Final = "See the server at these settings work, step by step"
FULL_SCREEN: Final = "Full screen"
MORE_WORDS: Final = "More words"
MORE_DIALS: Final = "More settings"
COMPILING: Final = (
    "Still at work. The first time on a machine the simulator is compiled: about a minute, once."
)
PLAY: Final = "plays, pauses; the square goes back to the start"
OWN_SETTINGS: Final = "(your own settings)"
