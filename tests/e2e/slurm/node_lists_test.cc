// A million random lists of nodes, as Slurm writes them and as people do, against `scontrol show hostnames`,
// which needs no running Slurm.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "cmd/cluster/node_list.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"
#include "tests/support/skip.h"

namespace dtrun::node_lists_test {

using namespace dtrun::test;

namespace {

constexpr int kLists = 1'000'000;
// Between lists: a call takes as many as an argument may have bytes (128 KiB), and starting one takes longer
// than all of them.
constexpr char kBetween[] = "between-lists";
constexpr std::size_t kMostBytes = 120'000;

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int to(int most) { return static_cast<int>(engine_() % static_cast<unsigned>(most + 1)); }
  bool one_in(int count) { return to(count - 1) == 0; }

 private:
  std::mt19937 engine_;
};

std::string number(Random& random, long value) {
  std::string digits = std::to_string(value);
  if (random.one_in(2)) digits.insert(0, static_cast<std::size_t>(random.to(3)), '0');
  return digits;
}

std::string group(Random& random) {
  std::string text = "[";
  for (int ranges = random.to(2); ranges >= 0; --ranges) {
    long first = random.one_in(4) ? random.to(2'000'000) : random.to(110);
    if (random.one_in(20)) first += 20'261'123'000'000;  // a date
    text += number(random, first);
    // The width of the last number counts for nothing, and may not be less than its own.
    if (random.one_in(2)) text += "-" + number(random, first + random.to(random.one_in(8) ? 12 : 3));
    text += ranges > 0 ? "," : "]";
  }
  return text;
}

std::string letters(Random& random) {
  static const std::string kFirst = "abnrxz", kRest = "abnrxz0123456789-";
  std::string text(1, kFirst[static_cast<std::size_t>(random.to(5))]);
  for (int more = random.to(4); more > 0; --more) text += kRest[static_cast<std::size_t>(random.to(16))];
  return text;
}

// Slurm takes no letters behind the last group.
std::string node(Random& random) {
  std::string text = letters(random);
  for (int groups = random.one_in(5) ? 2 : random.to(1); groups > 0; --groups) {
    if (!text.ends_with(']') || random.one_in(2)) text += letters(random);
    text += group(random);
  }
  return text;
}

std::string list(Random& random) {
  std::string text = node(random);
  for (int more = random.to(3); more > 0; --more) text += "," + node(random);
  return text;
}

const std::string& configuration() {
  static const Folder folder;
  static const std::string file = [] {
    write_text(folder / "slurm.conf", "ClusterName=test\nSlurmctldHost=localhost\n");
    return "SLURM_CONF=" + (folder / "slurm.conf").string();
  }();
  return file;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// How many of these lists are not read as scontrol reads them.
int differences(const std::vector<std::string>& lists) {
  std::string all;
  for (const auto& one : lists) all += one + "," + kBetween + ",";
  all.pop_back();
  const Ended ended = run({"scontrol", "show", "hostnames", all}, {configuration()});
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  const auto theirs = lines_of(ended.out);
  std::size_t at = 0;
  int different = 0;
  for (const auto& one : lists) {
    const auto ours = cmd::parse_node_list(one);
    const auto end = static_cast<std::size_t>(
        std::find(theirs.begin() + static_cast<std::ptrdiff_t>(at), theirs.end(), kBetween) - theirs.begin());
    const std::vector<std::string> expected(theirs.begin() + static_cast<std::ptrdiff_t>(at),
                                            theirs.begin() + static_cast<std::ptrdiff_t>(end));
    at = end + 1;
    if (ours.ok() && ours.value() == expected) continue;
    if (++different == 1) MESSAGE(one << (ours.ok() ? "" : ": " + ours.status().message()));
  }
  return different;
}

}  // namespace

TEST_CASE("a million random lists are what scontrol makes of them") {
  if (run({"scontrol", "--version"}, {configuration()}).exit_code != 0)
    return skip("needs Slurm's scontrol (scripts/setup --tests)");
  Random random(20261123);
  std::vector<std::string> lists;
  std::size_t bytes = 0;
  int different = 0;
  for (int i = 0; i < kLists; ++i) {
    lists.push_back(list(random));
    bytes += lists.back().size() + sizeof kBetween + 1;
    if (bytes < kMostBytes && i + 1 < kLists) continue;
    different += differences(lists);
    lists.clear();
    bytes = 0;
  }
  CHECK(different == 0);
}

}  // namespace dtrun::node_lists_test
