#!/usr/bin/env bash
# Everything that only a GPU can show, in under 6 minutes: the tests that need a card, then a full
# run of the benches. Leaves DIR/card.json (the recording), DIR/card.txt (its report) and
# DIR/tests.txt.
#
#   tests/device/run.sh [DIR]                    DIR: where the results go, ./device-results if left out
#   PYTHON=/some/python tests/device/run.sh      a Python that has torch with CUDA, numpy, scipy, psutil,
#                                                tqdm and typer (pytest for the tests)
#
# Exit status 0 only if there was a card, the tests that could run passed, and a recording was made.
set -uo pipefail
cd "$(dirname "$0")/../.."
python="${PYTHON:-python3}"
out="${1:-device-results}"
mkdir -p "$out" || exit 2
export PYTHONPATH="$PWD" PYTHONUNBUFFERED=1 COURSE_PROGRESS=off
failed=0

echo "== the machine"
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used,utilization.gpu,clocks.sm,clocks.max.sm \
  --format=csv || echo "no nvidia-smi: clocks and driver will be missing from the recording"
missing=$("$python" - <<'PYTHON'
import importlib.util
names = ("torch", "numpy", "scipy", "psutil", "tqdm", "typer")
print(*(name for name in names if importlib.util.find_spec(name) is None))
PYTHON
) || { echo "error: $python does not run; set PYTHON"; exit 2; }
if [ -n "$missing" ]; then
  echo "error: $python lacks: $missing; install them, or set PYTHON to one that has them"
  exit 2
fi

# Fails with a sentence where there is no usable card, before any time is spent.
"$python" -c "
import sys
from course.measure.machine import find_device, need_torch
try:
    found = find_device(need_torch(), 'cuda')
except ValueError as error:
    sys.exit(f'error: {error}')
print(found.device.name, '| torch', found.device.torch, '| CUDA', found.device.cuda)
print(*(f'mind: {words}' for words in found.warnings), sep='\n')
" || exit 2

echo "== tests on the card (90 s at most)"
if "$python" -c "import pytest" 2>/dev/null; then
  # -c /dev/null: the project's settings ask for warnings as errors, which is right for the pinned
  # versions and not for whatever this machine has; --noconftest: the browser's fixtures
  timeout 90 "$python" -m pytest -q -c /dev/null --rootdir="$PWD" --noconftest -p no:cacheprovider \
    tests/measure/test_on_a_card.py tests/measure/test_transformer.py 2>&1 | tee "$out/tests.txt" || failed=1
else
  echo "pytest is not there: tests left out" | tee "$out/tests.txt"
fi

echo "== benches (180 s of their own, 220 s at most)"
# The recording is written after every bench, so a run that is stopped leaves its parts.
timeout --signal=INT --kill-after=10 220 "$python" -m course bench --device cuda --budget-s 180 \
  --out "$out/card.json" 2>"$out/progress.txt" || { echo "error: the run ended early"; tail -c 2000 "$out/progress.txt"; failed=1; }
rm -f "$out/progress.txt"

if [ ! -s "$out/card.json" ]; then
  echo "error: no recording"
  exit 1
fi
echo "== what the recording says"
"$python" -m course bench --read "$out/card.json" | tee "$out/card.txt" || failed=1
echo "== done: $out/card.json; to keep it, copy it to data/recorded/cuda-NAME.json, named by the card"
exit "$failed"
