"""What scripts/bench_gpu decides without a GPU and without a build: which parts come when.

  gpu_rules_test.py [unittest options…]
"""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from bench_gpu_parts import CALLS, LIMIT_S, LIMITS_S, PARTS

IN_NO_CALL = {"gpus", "models", "cpu", "sanitizer"}


class OrderTest(unittest.TestCase):
    def test_gpt2_has_all_its_time_even_if_each_part_before_it_takes_all_of_its_own(self):
        parts = list(PARTS)
        until_its_end = parts[:parts.index("gpt2") + 1]
        self.assertLessEqual(sum(LIMITS_S[part] for part in until_its_end), LIMIT_S)

    def test_each_part_of_a_call_has_all_its_time(self):
        for number, (parts, _) in CALLS.items():
            self.assertLessEqual(sum(LIMITS_S[part] for part in parts), LIMIT_S, f"call {number}")

    def test_each_part_is_in_one_call_or_needs_none(self):
        of_calls = [part for parts, _ in CALLS.values() for part in parts]
        self.assertEqual(sorted(of_calls), sorted(set(PARTS) - IN_NO_CALL))


if __name__ == "__main__":
    unittest.main()
