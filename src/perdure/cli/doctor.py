"""`perdure doctor`."""

from __future__ import annotations

from dataclasses import asdict

import typer

from perdure.cli.flags import PLACE, settings_flags
from perdure.cli.output import AsJson, Exit, hint, print_json, say
from perdure.cli.serve import adopt_environment
from perdure.config import Settings
from perdure.deferred import deferred


@settings_flags((*PLACE, "host", "port"))
async def doctor(settings: Settings, as_json: AsJson = False) -> None:
    """Names what is wrong and the command that mends it; changes nothing. Exit code 1 when something is wrong."""
    adopt_environment(settings)
    findings = await deferred("perdure.runtime.diagnosis").diagnose(settings)
    well = all(finding.well for finding in findings)
    if as_json:
        print_json({"well": well, "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            say(f"{'✓' if finding.well else '✗'} {finding.subject}: {finding.message}", "" if finding.well else "red")
            if finding.mend:
                say(f"    {finding.mend}", "yellow")
        for notice in settings.notices:
            hint(notice, "yellow")
    if not well:
        raise typer.Exit(Exit.FAILED)
