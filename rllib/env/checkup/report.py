"""Report of a checked environment: findings with their remedies, and measurements."""

import os
import re
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]
# (severity, observed behaviour, rule, remedy)
Found = tuple[str, str, str, str]


class EnvironmentCheckError(ValueError):
    """An environment breaks rules without which it cannot be learned in. `report` has all findings."""

    def __init__(self, report: "EnvReport"):
        super().__init__(str(report))
        self.report = report

    def __reduce__(self):
        return type(self), (self.report,)


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        severity: error: training fails or learns something wrong; warning: costs speed or repeatability, or is likely
            a mistake; note: good to know.
        check: short name of the check that found it.
        seen: the observed behaviour.
        rule: the expected behaviour.
        remedy: advice.
    """

    severity: Severity
    check: str
    seen: str
    rule: str
    remedy: str


@dataclass(frozen=True)
class EnvReport:
    """Findings and measurements of a checked environment.

    Attributes:
        name: name of the environment.
        findings: errors first.
        checks: names of the checks that were made.
        measured: measurements: name with its unit -> number, or text.
    """

    name: str
    findings: tuple[Finding, ...]
    checks: tuple[str, ...] = ()
    measured: Mapping[str, Any] = field(default_factory=dict)

    def of(self, severity: Severity) -> list[Finding]:
        """The findings of one severity."""
        return [finding for finding in self.findings if finding.severity == severity]

    def find(self, check: str) -> list[Finding]:
        """The findings of one check."""
        return [finding for finding in self.findings if finding.check == check]

    def passes(self, strict: bool = False) -> bool:
        """Whether there is no error; with `strict`, no warning either."""
        return not self.of("error") and not (strict and self.of("warning"))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, for JSON."""
        return {
            "environment": self.name,
            "passes": self.passes(),
            "checks": list(self.checks),
            "findings": [asdict(finding) for finding in self.findings],
            "measured": dict(self.measured),
        }

    def _repr_pretty_(self, printer, cycle: bool) -> None:
        """As the last line of a notebook's cell it is shown as `print` shows it."""
        printer.text(str(self))

    def __str__(self):
        counts = ", ".join(
            f"{count} {severity}{'s' * (count != 1)}"
            for severity in ("error", "warning", "note")
            if (count := len(self.of(severity)))
        )
        lines = [f"{self.name}: {counts or 'no findings'}"]
        for finding in self.findings:
            lines += [f"{finding.severity} ({finding.check}): {finding.seen}", f"    rule: {finding.rule}"]
            lines.append(f"    do:   {finding.remedy}")
        return "\n".join(lines)


def error_line(error: BaseException) -> str:
    """An exception in a line, with the place that raised it."""
    text = one_line(str(error))
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    return f"{type(error).__name__}: {text}{place}"


def one_line(text: str) -> str:
    """Without line breaks and the colours of a terminal, which gymnasium's warnings have."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())[:300]
