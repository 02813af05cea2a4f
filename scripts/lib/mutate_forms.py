"""How scripts/mutate writes a mutant into a source file so that it sleeps there until the environment names it: ways to write
it, the likeliest first, of which the compiler takes one; and a file's text with many of them. Knows nothing of files."""

import dataclasses
import functools
import re

TOKEN = re.compile(r"""
  (?P<space> \s+ | //[^\n]* | /\*.*?\*/ ) |
  (?P<word> R"(?P<mark>[^\s()\\]*)\(.*?\)(?P=mark)" | "(?:\\.|[^"\\\n])*" | [A-Za-z_]\w* | \.?\d(?:[eEpP][+-]|[\w.]|'\w)* |
            '(?:\\.|[^'\\\n])+' ) |
  (?P<sign> <=> | <<= | >>= | -> | :: | && | \|\| | == | != | <= | >= | [-+*/%&|^]= | \+\+ | -- | . )
""", re.VERBOSE | re.DOTALL)

OPEN, CLOSE = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
ASSIGN = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="}
# An operand between two of these is whole: nothing outside binds to a part of it.
BEFORE_EXPRESSION = {"(", "[", "{", ",", ";", "}", "return"} | ASSIGN
AFTER_EXPRESSION = {")", "]", "}", ",", ";"}
BEFORE_STATEMENT = {";", "{", "}"}
BEFORE_BRANCH = {")", "else", ":"}  # of an if, a loop, a case: one statement follows
NOT_IN_EXPRESSION = {",", ";", "return", "const", "auto", "for", "if", "else", "while", "case", "break", "continue", "using"}
NOT_IN_STATEMENT = {"case", "default", ","}
BEFORE_VALUES = {"(", ",", "=", "return"}  # a brace behind one of these opens a list of values, not a block
NO_TYPE = {"return", "throw", "delete", "new", "else", "goto", "do", "co_await", "co_yield", "co_return", "case", "using"}
REACH = 400  # tokens that a form may be larger than what the mutant changes
MOST_EXPRESSIONS = 3


@dataclasses.dataclass(frozen=True)
class Token:
    text: str
    begin: int  # in the file

    @property
    def end(self):
        return self.begin + len(self.text)


@dataclasses.dataclass(frozen=True)
class Form:
    """text[begin:end] of the file, and what stands there with the mutant in."""
    begin: int
    end: int
    new: str
    statement: bool

    def written(self, number, old):
        """`old`: the text of the span, which may have other mutants in it."""
        asleep = f"dtrun_mutant({number})"
        if self.statement:
            return f"{{ if ({asleep}) {{\n{self.new}\n}} else {{\n{old}\n}} }}"
        return f"({asleep}\n? ({self.new})\n: ({old}))"


@functools.lru_cache(maxsize=8)
def tokens(text):
    """Without spaces and comments."""
    return [Token(found.group(), found.start()) for found in TOKEN.finditer(text) if not found.group("space")]


def shared(one, other):
    count = 0
    for a, b in zip(one, other):
        if a.text != b.text:
            break
        count += 1
    return count


def blocks(around):
    """Places of the braces of blocks."""
    found, waiting = set(), []
    for place, token in enumerate(around):
        if token.text == "{":
            waiting.append(None if place and around[place - 1].text in BEFORE_VALUES else place)
        elif token.text == "}" and waiting and (opened := waiting.pop()) is not None:
            found |= {opened, place}
    return found


def reach(around, begin, step, takes):
    """Places from `begin` on, outwards in steps of `step`, within the block, at which `takes(place)`; none is in brackets that
    lie wholly on that side."""
    inwards, outwards = (set(OPEN), CLOSE) if step > 0 else (CLOSE, set(OPEN))
    of_blocks = blocks(around)
    depth, place = 0, begin
    for _ in range(REACH):
        if depth == 0 and takes(place):
            yield place
        passed = place if step > 0 else place - 1
        if not 0 <= passed < len(around):
            return
        word = around[passed].text
        if depth == 0 and passed in of_blocks and word in outwards:
            return
        depth += word in inwards
        depth = max(0, depth - (word in outwards))
        place += step


def balanced(part):
    waiting = []
    for token in part:
        if token.text in OPEN:
            waiting.append(OPEN[token.text])
        elif token.text in CLOSE and (not waiting or waiting.pop() != token.text):
            return False
    return not waiting


def has_at_top(part, words):
    depth = 0
    for token in part:
        depth += token.text in OPEN
        depth -= token.text in CLOSE
        if depth == 0 and token.text in words:
            return True
    return False


def is_one_statement(part):
    ends = [place for place, token in enumerate(part) if token.text in {";", "}"} and balanced(part[:place + 1])]
    return ends[:1] == [len(part) - 1] and part[0].text != ";"


def declares(part):
    """Whether a name is declared outside of all brackets: what it guards ends with the block."""
    depth = 0
    for before, token, after in zip(part, part[1:], [*part[2:], Token(";", 0)]):
        depth += before.text in OPEN
        depth -= before.text in CLOSE
        if depth or not is_name(token) or before.text in NO_TYPE:
            continue
        if is_name(before) or (before.text in {">", "&", "*", "&&"} and after.text in {"=", "(", "{", ";"}):
            return True
    return False


def is_name(token):
    return re.match(r"[A-Za-z_]", token.text) is not None


class Change:
    """A mutant's change of a file, as the tokens that differ: old[begin:end - tail] and new[begin:…]."""

    def __init__(self, text, mutated):
        self.text, self.mutated = text, mutated
        self.old, self.new = tokens(text), tokens(mutated)
        self.first = shared(self.old, self.new)
        rest = min(len(self.old), len(self.new)) - self.first
        self.last = len(self.old) - min(rest, shared(reversed(self.old), reversed(self.new)))
        self.longer = len(self.new) - len(self.old)

    def form(self, begin, end, statement):
        """Of old[begin:end]; nothing if that cannot be one."""
        old, new = self.old[begin:end], self.new[begin:end + self.longer]
        if not old or not (balanced(old) and balanced(new)):
            return None
        if not statement and (not new or has_at_top(old, NOT_IN_EXPRESSION) or has_at_top(new, NOT_IN_EXPRESSION)):
            return None
        if not statement and "{" in (old[0].text, new[0].text):
            return None  # what initialises is no expression
        if statement and (has_at_top(old, NOT_IN_STATEMENT) or has_at_top(new, NOT_IN_STATEMENT)):
            return None
        said = self.mutated[new[0].begin:new[-1].end] if new else ""
        return Form(old[0].begin, old[-1].end, said, statement)

    def is_before(self, place, words):
        return place > 0 and self.old[place - 1].text in words

    def expressions(self):
        begins = list(reach(self.old, self.first, -1, lambda place: self.is_before(place, BEFORE_EXPRESSION)))
        ends = list(reach(self.old, self.last, 1,
                          lambda place: place < len(self.old) and self.old[place].text in AFTER_EXPRESSION))
        found = [self.form(begin, end, False) for begin in begins[:8] for end in ends[:8]]
        return sorted(filter(None, found), key=lambda form: form.end - form.begin)[:MOST_EXPRESSIONS]

    def declares(self, begin, end):
        return declares(self.old[begin:end]) or declares(self.new[begin:end + self.longer])

    def statements(self):
        """The statements that change, by themselves and with all that follow them in their block: those that declare something
        only so, since the braces of the form would end what it holds."""
        begins = list(reach(self.old, self.first, -1, lambda place: self.is_before(place, BEFORE_STATEMENT | BEFORE_BRANCH)))
        ends = list(reach(self.old, self.last, 1, lambda place: self.is_before(place, {";", "}"})))
        pairs = [(begin, end) for begin in begins[:3] for end in dict.fromkeys(ends[:2] + ends[-1:])
                 if begin < end and (end == ends[-1] or not self.declares(begin, end))]
        found = [self.form(begin, end, True) for begin, end in pairs
                 if not self.is_before(begin, BEFORE_BRANCH) or is_one_statement(self.old[begin:end])]
        return sorted(filter(None, found), key=lambda form: form.end - form.begin)


def forms(text, mutated):
    change = Change(text, mutated)
    found = change.expressions() + change.statements()
    return list(dict.fromkeys(found))


@dataclasses.dataclass
class Merged:
    text: str
    lines: dict  # of each mutant, by number: its first and last line, from 1 on
    left_out: set  # numbers: they overlap with others


def nested(chosen):
    """The forms by number, as a forest: (number, form, inner ones). What overlaps without lying in another is left out."""
    forest, left_out, open_ones = [], set(), []
    for number, form in sorted(chosen.items(), key=lambda one: (one[1].begin, -one[1].end, one[0])):
        while open_ones and open_ones[-1][1].end <= form.begin:
            open_ones.pop()
        if open_ones and form.end > open_ones[-1][1].end:
            left_out.add(number)
            continue
        node = (number, form, [])
        (open_ones[-1][2] if open_ones else forest).append(node)
        open_ones.append(node)
    return forest, left_out


def merge(text, chosen, head=""):
    """`text` behind `head` with the chosen forms in it."""
    forest, left_out = nested(chosen)
    marks = {}

    def written(begin, end, nodes):
        parts, at = [], begin
        for number, form, inner in nodes:
            parts.append(text[at:form.begin])
            parts.append(f"\0{number}\1{form.written(number, written(form.begin, form.end, inner))}\0{number}\2")
            at = form.end
        return "".join([*parts, text[at:end]])

    marked, lines, out = written(0, len(text), forest), {}, [head]
    line = head.count("\n") + 1
    for part in re.split(r"(\0\d+[\1\2])", marked):
        if part.startswith("\0"):
            number = int(part[1:-1])
            if part[-1] == "\1":
                marks[number] = line
            else:
                lines[number] = (marks[number], line)
        else:
            out.append(part)
            line += part.count("\n")
    return Merged("".join(out), lines, left_out)
