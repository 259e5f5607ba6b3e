"""The audit: from a log and a target policy to a value, its confidence interval, a verdict and the reasons."""

from caliope._audit._audit import audit
from caliope._audit._compare import BehaviourModels
from caliope._audit._inputs import AuditInputs
from caliope._audit._opened import compare_behaviour
from caliope._audit._placebo import Placebo, run_placebo
from caliope._audit._prepare import PreparedAudit, prepare_audit
from caliope._audit._result import GAIN, HEADLINE, LOGGED, PRACTICE, Audit
from caliope._audit._settings import AuditSettings, Stage, Stages

__all__ = [
    "GAIN",
    "HEADLINE",
    "LOGGED",
    "PRACTICE",
    "Audit",
    "AuditInputs",
    "AuditSettings",
    "BehaviourModels",
    "Placebo",
    "PreparedAudit",
    "Stage",
    "Stages",
    "audit",
    "compare_behaviour",
    "prepare_audit",
    "run_placebo",
]
