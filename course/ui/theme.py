"""The look of the shell as one style sheet, and the few words that every explorer shares."""

from __future__ import annotations

from typing import Final

# JupyterLab's own variables where they exist, so that a dark theme stays readable; the figure
# keeps its white ground in every theme.
STYLE: Final = """
<style>
.course-shell{border:1px solid var(--jp-border-color2,#ccc);border-radius:6px;padding:10px 12px;
  max-width:1120px;contain:layout style}
.course-shell .course-title{font-size:1.15em;font-weight:600;line-height:1.3}
.course-shell .course-story{line-height:1.4;max-width:110ch}
.course-shell .course-story b{font-weight:600}
.course-shell .course-sentence{font-size:1.02em;line-height:1.45;max-width:88ch;
  padding:2px 6px 2px 0}
.course-shell .course-curtain{border-left:4px solid #0072B2;padding:4px 10px;margin:4px 0}
.course-shell .course-problem{border-left:4px solid #D55E00;padding:4px 10px}
.course-shell .course-layers{position:relative;display:block;overflow:hidden;background:#fff}
.course-shell .course-layers>*,.course-shell .course-layers>*>*{display:block;width:100%;margin:0}
.course-shell .course-layers>:last-child{position:absolute;top:0;left:0}
.course-shell .course-figure{display:block}
.course-shell .widget-html,.course-shell .widget-html-content{overflow:visible;line-height:1.4}
.course-shell .course-controls .widget-label{flex:1 0 100%;width:100%;text-align:left;
  height:auto;min-height:20px;line-height:1.3;white-space:normal;padding-top:2px}
.course-shell .course-controls .widget-dropdown select{flex:1 1 100%}
.course-shell button:focus-visible,.course-shell .noUi-handle:focus-visible,
.course-shell select:focus-visible,.course-shell input:focus-visible{outline:3px solid #0072B2;
  outline-offset:2px}
.course-shell.course-present{max-width:none}
.course-shell.course-present .course-title{font-size:1.9rem}
.course-shell.course-present .course-story,.course-shell.course-present .course-sentence,
.course-shell.course-present .course-curtain .widget-html-content{font-size:1.4rem;max-width:none}
.course-shell.course-present .widget-label,.course-shell.course-present .widget-readout,
.course-shell.course-present select,.course-shell.course-present button,
.course-shell.course-present input{font-size:1.15rem;height:auto;min-height:2rem}
</style>
"""

CURTAIN_CLOSED: Final = "Guess first: the curve and its sentence appear when you have."
CURTAIN_BUTTON: Final = "Show me"
CURTAIN_SKIP: Final = "Skip the guess"
CURTAIN_AGAIN: Final = "Guess again"
RESET: Final = "Reset"
PRESENT: Final = "Present"
WATCH: Final = "Watch it"
WATCH_HELP: Final = "See the server at these settings work, step by step"
PLAY: Final = "plays, pauses; the square goes back to the start"
OWN_SETTINGS: Final = "(your own settings)"
