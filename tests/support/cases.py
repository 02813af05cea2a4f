"""How a test in Python is run: the cases of one tier or all, each by name, and a skip that is no pass."""

import sys
import unittest

EXIT_SKIPPED = 77
TIERS = ("default", "long")


def long(case):
    """Of a class or a method: `--tier default` leaves it out, `--tier long` runs what others leave out."""
    case.tier = "long"
    return case


class _OfTier(unittest.TestLoader):
    def __init__(self, tier):
        super().__init__()
        self.tier = tier

    def getTestCaseNames(self, testCaseClass):
        names = super().getTestCaseNames(testCaseClass)
        return [name for name in names if self.tier in (None, self.tier_of(testCaseClass, name))]

    @staticmethod
    def tier_of(case, name):
        return getattr(case, "tier", getattr(getattr(case, name), "tier", "default"))


def skip_all(reason):
    """Instead of run()."""
    print("skipped:", reason, file=sys.stderr)
    sys.exit(EXIT_SKIPPED)


def run():
    """Ends the program. Of the command line it takes `--tier default` or `--tier long`; the rest is unittest's."""
    arguments, tier = sys.argv[1:], None
    if "--tier" in arguments:
        at = arguments.index("--tier")
        tier = arguments[at + 1]
        if tier not in TIERS:
            sys.exit(f"--tier {tier}: expected {' or '.join(TIERS)}")
        del arguments[at:at + 2]
    result = unittest.main(module="__main__", argv=[sys.argv[0], *arguments], testLoader=_OfTier(tier), verbosity=2, exit=False).result
    for case, reason in result.skipped:
        print(f"skipped: {case}: {reason}", file=sys.stderr)
    if not result.testsRun and not result.skipped:
        sys.exit("there is no such case")
    sys.exit(1 if not result.wasSuccessful() else EXIT_SKIPPED if result.skipped else 0)
