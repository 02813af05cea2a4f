"""scripts/lib/mutate_forms.py: a program with many mutants asleep does what the program itself does, and with one awake what that
mutant's own build does.

  mutate_forms_test.py COMPILER [unittest options…]
"""

import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/lib"))
from mutate_forms import forms, merge  # noqa: E402

COMPILER = sys.argv.pop(1)

PROGRAM = r"""
#include <cstdio>
#include <initializer_list>

struct Limits {
  int most = 3;
  bool strict = true;
};

struct Box {
  explicit Box(int size) : size_(size + 1), name_("box") {}
  int size_;
  const char* name_;
};

bool within(int value, const Limits& limits) { return value >= 0 && value < limits.most || !limits.strict; }

int count(std::initializer_list<int> values) {
  int found = 0;
  for (unsigned i = 0; i < values.size(); ++i) {
    const int value = values.begin()[i];
    if (value < 0) continue;
    if (within(value, {.most = 4, .strict = true}))
      ++found;
    else
      found += 10;
  }
  const int extra = found > 20 ? 1 : 2;
  return found + extra;
}

const char* word(int number) {
  switch (number % 3) {
    case 0:
      return "none";
    case 1:
      number += 9;
      break;
    default:
      return "two";
  }
  return number > 9 ? "many" : "few";
}

void say(const Box& box) {
  std::printf("%d ", box.size_);
  std::printf("%s\n", box.name_);  // "a string; with 'signs' {"
}

// Says so at the end of what it guards.
struct Guard {
  explicit Guard(const char* name) : name_(name) {}
  ~Guard() { std::printf("after %s ", name_); }
  const char* name_;
};

int main() {
  const Guard guard("all");
  say(Box(4));
  std::printf("%d %d\n", count({1, 2, -7, 3, 99}), count({}));
  for (int i = 0; i < 5; ++i) std::printf("%s ", word(i));
  std::printf("\n");
}
"""

MUTANTS = [
    ("value >= 0 &&", "value > 1 &&"),
    ("value < limits.most || !limits.strict", "value < limits.most && !limits.strict"),
    ("    if (value < 0) continue;\n", ""),
    ("unsigned i = 0; i <", "unsigned i = 1; i <"),
    ("const int extra = found > 20 ? 1 : 2;", "const int extra = 7;"),
    ("      ++found;\n    else\n      found += 10;", "      found += 10;\n    else\n      ++found;"),
    ("{.most = 4, .strict = true}", "{.most = 4, .strict = false}"),
    ("size_(size + 1)", "size_(size)"),
    ("      number += 9;\n", ""),
    ('number > 9 ? "many" : "few"', 'number > 11 ? "many" : "few"'),
    ('  std::printf("%d ", box.size_);\n', ""),
    ("return found + extra;", "return extra;"),
    ("  const Guard guard(\"all\");\n", ""),
]
DECLARATIONS = [("explicit Box(int size)", "explicit Box(long size)"), ("  int most = 3;\n", "  long most = 3;\n"),
                ("    case 1:\n", "    case 4:\n")]
ASLEEP = """#include <cstdlib>
inline bool dtrun_mutant(int number) {
  const char* awake = std::getenv("DTRUN_MUTANT");
  return awake != nullptr && std::atoi(awake) == number;
}
"""


def changed(old, new):
    assert PROGRAM.count(old) == 1, old
    return PROGRAM.replace(old, new)


class FormsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def compile(self, text):
        """The program, or None where the compiler does not take it."""
        source, program = self.folder / "program.cc", self.folder / f"program{len(list(self.folder.iterdir()))}"
        source.write_text(text)
        done = subprocess.run([COMPILER, "-std=c++20", "-Wall", "-Wno-parentheses", "-Werror", source, "-o", program],
                              capture_output=True, text=True)
        return program if done.returncode == 0 else None

    def output(self, program, awake=0):
        return subprocess.run([program], env={**os.environ, "DTRUN_MUTANT": str(awake)}, capture_output=True, text=True).stdout

    def test_each_sleeps_and_wakes_alone_and_all_share_one_program(self):
        plain, first, alone = self.output(self.compile(PROGRAM)), {}, {}
        for number, (old, new) in enumerate(MUTANTS, 1):
            with self.subTest(new or f"without {old}"):
                alone[number] = self.output(self.compile(changed(old, new)))
                self.assertNotEqual(alone[number], plain, "a mutant that changes nothing")
                for form in forms(PROGRAM, changed(old, new)):
                    program = self.compile(merge(PROGRAM, {number: form}, ASLEEP).text)
                    if program:  # whichever form the compiler takes
                        first.setdefault(number, form)
                        self.assertEqual(self.output(program), plain)
                        self.assertEqual(self.output(program, number), alone[number])
        self.assertEqual(len(first), len(MUTANTS))
        merged = merge(PROGRAM, first, ASLEEP)
        self.assertEqual(merged.left_out, set())
        program = self.compile(merged.text)
        self.assertEqual(self.output(program), plain)
        for number, wanted in alone.items():
            self.assertEqual(self.output(program, number), wanted, MUTANTS[number - 1])

    def test_of_two_that_overlap_one_waits_for_another_build(self):
        both = {1: forms(PROGRAM, changed("  say(Box(4));\n  std::printf", "  std::printf"))[0],
                2: forms(PROGRAM, changed("i < 5", "i < 4"))[0]}
        both[1] = dataclasses.replace(both[1], end=both[2].end - 1)
        self.assertEqual(merge(PROGRAM, both).left_out, {2})

    def test_what_is_none_in_a_running_program_has_no_form_that_compiles(self):
        for old, new in DECLARATIONS:
            merged = (merge(PROGRAM, {1: form}, ASLEEP).text for form in forms(PROGRAM, changed(old, new)))
            self.assertFalse(any(map(self.compile, merged)), new)

    def test_the_lines_of_a_mutant_are_those_it_stands_in(self):
        old, new = MUTANTS[4]
        merged = merge(PROGRAM, {5: forms(PROGRAM, changed(old, new))[0]}, ASLEEP)
        first, last = merged.lines[5]
        lines = merged.text.split("\n")
        self.assertIn("dtrun_mutant(5)", lines[first - 1])
        self.assertIn("found > 20 ? 1 : 2", lines[last - 1])


if __name__ == "__main__":
    unittest.main()
