// Eight workers that each say 1,000 lines a second on two streams: every line comes out whole, once and in
// order, on the console and in the log files.
#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace dtrun::talk_test {

using namespace dtrun::test;

namespace {

constexpr int kWorkers = 8, kLines = 5000, kPerSecond = 1000;

// Checks the lines that `parity` picks, of all workers in `text`; each starts with `prefix` and the rank.
void check_lines(std::istream& text, bool prefixed, int first_line, std::map<int, int> next) {
  static const std::regex talk(R"((\[default:(\d+)\] )?talker (\d+) line (\d+) (x*)\.)");
  int foreign = 0;
  std::smatch match;
  for (std::string line; std::getline(text, line);) {
    if (!std::regex_match(line, match, talk)) {
      // dtrun's own notices share stderr.
      if (line.find("talker") != std::string::npos) ++foreign;
      continue;
    }
    const int rank = std::stoi(match[3]), number = std::stoi(match[4]);
    if (prefixed ? match[2] != match[3] : match[1].length() != 0) ++foreign;
    if (number != next[rank] || static_cast<int>(match[5].length()) != number % 97) ++foreign;
    next[rank] = number + 2;
  }
  CHECK(foreign == 0);
  for (const auto& entry : next) CHECK_MESSAGE(entry.second == kLines + first_line, "rank ", entry.first);
}

std::map<int, int> all_ranks_from(int first_line) {
  std::map<int, int> next;
  for (int rank = 0; rank < kWorkers; ++rank) next[rank] = first_line;
  return next;
}

}  // namespace

TEST_CASE("8 workers that say 1,000 lines a second lose none, on the console and in the log files") {
  const Folder folder;
  const std::string dtrun_binary = DTRUN_BIN_DIR "/dtrun", worker = DTRUN_BIN_DIR "/../tests/chaos_worker";
  Process dtrun({dtrun_binary, "--standalone", "--nproc_per_node", std::to_string(kWorkers), "--rdzv_id",
                 "talk", "--log_dir", folder.path().string(), "--", worker, "talk", std::to_string(kLines),
                 std::to_string(kPerSecond)});
  REQUIRE_MESSAGE(dtrun.wait() == 0, dtrun.err());
  std::istringstream out(dtrun.out()), err(dtrun.err());
  check_lines(out, true, 0, all_ranks_from(0));
  check_lines(err, true, 1, all_ranks_from(1));
  for (int rank = 0; rank < kWorkers; ++rank) {
    const auto log_dir = folder.path() / "talk/attempt_1" / std::to_string(rank);
    std::ifstream out_file(log_dir / "stdout.log"), err_file(log_dir / "stderr.log");
    check_lines(out_file, false, 0, {{rank, 0}});
    check_lines(err_file, false, 1, {{rank, 1}});
  }
}

}  // namespace dtrun::talk_test
