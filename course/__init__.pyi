from . import explore as explore
from .exercises import TODO as TODO
from .exercises import check as check
from .exercises import hint as hint
from .exercises import progress as progress
from .glossary import glossary as glossary
from .serving import catalog as catalog
from .serving import queueing as queueing
from .serving.engine import Admission as Admission
from .serving.engine import EngineConfig as EngineConfig
from .serving.engine import Patience as Patience
from .serving.engine import Retry as Retry
from .serving.engine import simulate as simulate
from .serving.engine import simulate_closed as simulate_closed
from .serving.engine import simulate_service as simulate_service
from .serving.pricing import LinearStepCost as LinearStepCost
from .serving.pricing import RooflineStepCost as RooflineStepCost
from .serving.requests import SLO as SLO
from .serving.requests import RequestTimeline as RequestTimeline
from .serving.requests import as_reported_by as as_reported_by
from .serving.requests import metrics as metrics
from .serving.results import load_result as load_result
from .serving.traces import load_trace as load_trace
from .serving.workload import Workload as Workload
from .ui.still import still as still
from .ui.watch import watch as watch

__version__: str
