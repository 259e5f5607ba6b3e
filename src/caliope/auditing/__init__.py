"""The audit: the whole chain in one call, from a log and a policy to a verdict."""

from caliope.auditing.candidates import candidate_models
from caliope.auditing.chain import audit, audit_policy
from caliope.auditing.groundwork import Groundwork, lay_groundwork
from caliope.auditing.influence import Influence, most_influential
from caliope.auditing.log_checks import check_log
from caliope.auditing.multiverse import Universe, multiverse
from caliope.auditing.placebo import Placebo, run_placebo
from caliope.auditing.result import Audit

__all__ = [
    "Audit",
    "Groundwork",
    "Influence",
    "Placebo",
    "Universe",
    "audit",
    "audit_policy",
    "candidate_models",
    "check_log",
    "lay_groundwork",
    "most_influential",
    "multiverse",
    "run_placebo",
]
