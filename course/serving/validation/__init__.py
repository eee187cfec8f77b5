"""Predicted against measured: constants fitted, points and logs compared; nothing is drawn."""

from course.serving.validation.closed_loop import predict_closed_loop
from course.serving.validation.error_tables import band_coverage, error_band, fit_statement
from course.serving.validation.knees import knees_frame, predicted_knees
from course.serving.validation.log_replay import (
    COMMITTED,
    LOGS,
    RULES,
    fit_first_half,
    halves_text,
    replay,
    replay_all,
    replay_text,
)
from course.serving.validation.points import (
    PointRow,
    StepRow,
    Validation,
    validate,
    validation_stages,
    validation_text,
)
from course.serving.validation.predicted import prediction_text

__all__ = [
    "COMMITTED",
    "LOGS",
    "RULES",
    "PointRow",
    "StepRow",
    "Validation",
    "band_coverage",
    "error_band",
    "fit_first_half",
    "fit_statement",
    "halves_text",
    "knees_frame",
    "predict_closed_loop",
    "predicted_knees",
    "prediction_text",
    "replay",
    "replay_all",
    "replay_text",
    "validate",
    "validation_stages",
    "validation_text",
]
