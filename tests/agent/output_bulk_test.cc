// Output in bulk: nothing is lost, and the agent's memory stays bounded.
#include "tests/agent/agent_process.h"

namespace dtrun::agent::test::output_bulk_test {

namespace {

struct Passed {
  std::string counts;      // output of wc
  long agent_peak_kb = 0;  // most memory that the agent ever held
};

// Runs an agent whose standard output goes through wc.
Passed pass(const std::vector<std::string>& argv, const std::string& wc) {
  const std::string command = "{ " + dtrun::test::shell_text(argv);
  Process job({"/bin/sh", "-c", command + "; } | wc " + wc});
  Passed passed;
  CHECK(eventually(
      [&] {
        for (pid_t pid : dtrun::test::processes_with("agent_under_test")) {
          const std::string status = read_if_there("/proc/" + std::to_string(pid) + "/status");
          const std::size_t at = status.find("VmHWM:");
          if (at != std::string::npos) {
            passed.agent_peak_kb = std::max(passed.agent_peak_kb, std::atol(status.c_str() + at + 6));
          }
        }
        return !is_alive(job.pid());
      },
      std::chrono::milliseconds(250000)));
  CHECK(job.wait() == 0);
  passed.counts = job.out();
  return passed;
}

}  // namespace

TEST_CASE("1 GB of lines passes whole in bounded memory") {
  const Passed passed = pass(agent_with({}, {"bulk", "1024"}), "-l");
  CHECK(passed.counts == "1048576\n");
  CHECK(passed.agent_peak_kb > 0);
  CHECK(passed.agent_peak_kb < 64 * 1024);
}

TEST_CASE("a stream without newlines passes in pieces, in bounded memory") {
  const Passed passed = pass(agent({"--", "/bin/sh", "-c", "head -c 104857600 /dev/zero"}), "-lc");
  // 1,600 pieces of 64 KiB, each with its prefix and a newline.
  std::istringstream counts(passed.counts);
  long lines = 0, bytes = 0;
  counts >> lines >> bytes;
  CHECK(lines == 1600);
  CHECK(bytes == 104857600 + 1600 * static_cast<long>(sizeof "[default:0] "));
  CHECK(passed.agent_peak_kb > 0);
  CHECK(passed.agent_peak_kb < 64 * 1024);
}

}  // namespace dtrun::agent::test::output_bulk_test
