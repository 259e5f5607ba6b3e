"""Everything needed to do it again: settings, versions, and what each stage took."""

from __future__ import annotations

from caliope.auditing import Audit
from caliope.report.blocks import Section, Text, grid
from caliope.report.numbers import versions


def settings_section(audit: Audit) -> Section:
    """All settings with the seed, the features, the versions, the stages."""
    features = audit.data.feature_names
    settings = {**audit.settings, "actions": audit.data.n_actions, "features": len(features)}
    stages = [
        {
            "stage": stage.name,
            "seconds": round(stage.seconds, 2),
            "largest memory so far, GB": round(stage.peak_gb, 2),
        }
        for stage in audit.stages
    ]
    total = sum(stage.seconds for stage in audit.stages)
    blocks = (
        Text(
            f"With the same log, settings and versions the same numbers come out. The audit took {total:.1f} seconds."
        ),
        grid("Settings", [{"setting": name, "value": str(value)} for name, value in settings.items()]),
        grid(
            "Features of the state",
            [{"number": i, "feature": name} for i, name in enumerate(features)],
            folded=True,
        ),
        grid("Versions", [{"package": name, "version": text} for name, text in versions().items()]),
        grid("What each stage took", stages),
    )
    return Section("settings", "Settings", "Settings, versions, seeds and times", blocks)
