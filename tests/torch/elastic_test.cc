// --nnodes 1:2 with an unchanged PyTorch script that saves and loads its own checkpoints: the second node
// comes, goes and comes again, and the training goes on; side by side with torchrun where both can. Two
// agents on one host. Skipped where PyTorch is missing.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "tests/support/folder.h"
#include "tests/support/ports.h"
#include "tests/torch/torch_jobs.h"

namespace dtrun::elastic_test {

using namespace dtrun::test;

namespace {

std::vector<std::string> agent(const std::string& endpoint, const Folder& folder) {
  return under_dtrun({"--nnodes", "1:2", "--rdzv_endpoint", endpoint, "--rdzv_id", "elastic",
                      "--nproc_per_node", "1", "--rdzv_conf", "last_call_timeout=1", "--max_restarts", "0"},
                     {"elastic_train.py", folder.path().string()});
}

// How often `text` occurs.
int count(const std::string& out, const std::string& text) {
  int n = 0;
  for (std::size_t at = out.find(text); at != std::string::npos; at = out.find(text, at + 1)) ++n;
  return n;
}

bool trains(const Process& agent, int world_size, int starts) {
  const std::string of = " of " + std::to_string(world_size);
  return eventually([&] { return count(agent.out(), of + " starts") >= starts; }, kLong) &&
         eventually(
             [&] {
               const std::string out = agent.out();
               return out.find(of + " did step", out.rfind(of + " starts")) != std::string::npos;
             },
             kLong);
}

// Each start takes up at the last checkpoint, which is at most the step in flight behind.
void check_nothing_lost(const std::string& out) {
  static const std::regex line(R"(rank \d+ of \d+ (starts at|did) step (\d+))");
  int newest = 0;
  for (std::sregex_iterator it(out.begin(), out.end(), line), end; it != end; ++it) {
    const int step = std::stoi((*it)[2]);
    if ((*it)[1] == "did")
      newest = step;
    else
      CHECK_MESSAGE(step >= newest - 1, it->str());
  }
}

void come_and_go(int how_it_goes, int its_code) {
  const Folder folder;
  const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
  Process first(agent(endpoint, folder), environment());
  REQUIRE_MESSAGE(trains(first, 1, 1), first.err());
  {
    Process second(agent(endpoint, folder), environment());
    REQUIRE_MESSAGE(trains(first, 2, 1), first.err());
    REQUIRE_MESSAGE(trains(second, 2, 1), second.err());
    second.signal(how_it_goes);
    CHECK(second.wait(kLong) == its_code);
  }
  REQUIRE_MESSAGE(trains(first, 1, 2), first.err());
  Process third(agent(endpoint, folder), environment());
  REQUIRE_MESSAGE(trains(first, 2, 2), first.err());
  std::ofstream(folder.path() / "enough").close();
  CHECK_MESSAGE(first.wait(kLong) == 0, first.err());
  CHECK_MESSAGE(third.wait(kLong) == 0, third.err());
  CHECK(std::filesystem::exists(folder.path() / "model.pt"));
  check_nothing_lost(first.out());
}

using Launcher = decltype(&under_dtrun);

// A job of two nodes on this host, of which the second comes and goes while elastic_stages.py waits for it
// to.
class StagedJob {
 public:
  explicit StagedJob(Launcher under) : under_(under), first_(start()) {}

  bool shows(const std::string& place) const {
    return eventually([&] { return first_->out().find(place) != std::string::npos; }, kLong);
  }
  void second_comes() { second_ = start(); }
  void second_is_killed() { second_.reset(); }  // with its worker, which torchrun would leave behind
  int wait() { return first_->wait(kLong); }
  // The sequence of worlds, the steps where each went on, and the last parameters' bits.
  std::string story() const { return text_of(sorted_lines(first_->out())); }
  std::string err() const { return first_->err(); }

 private:
  std::unique_ptr<Process> start() const {
    const std::vector<std::string> options{
        "--nnodes",       "1:2",    "--rdzv_backend",   "c10d", "--rdzv_endpoint", endpoint_,
        "--rdzv_id",      "stages", "--nproc_per_node", "1",    "--rdzv_conf",     "last_call_timeout=1",
        "--max_restarts", "3"};  // torchrun spends one on the node that is lost
    return std::make_unique<Process>(under_(options, {"elastic_stages.py", folder_.path().string()}),
                                     environment());
  }

  const Launcher under_;
  const Folder folder_;
  const std::string endpoint_ = "127.0.0.1:" + std::to_string(free_port());
  std::unique_ptr<Process> first_, second_;
};

}  // namespace

TEST_CASE("worlds of one, two and one nodes end with torchrun's parameters, bit for bit") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  StagedJob torchrun(&under_torchrun), dtrun(&under_dtrun);
  for (StagedJob* job : {&dtrun, &torchrun})
    REQUIRE_MESSAGE(job->shows("a world of 1 has done step 4"), job->err());
  for (StagedJob* job : {&dtrun, &torchrun}) job->second_comes();
  for (StagedJob* job : {&dtrun, &torchrun})
    REQUIRE_MESSAGE(job->shows("a world of 2 has done step 8"), job->err());
  for (StagedJob* job : {&dtrun, &torchrun}) job->second_is_killed();
  CHECK_MESSAGE(dtrun.wait() == 0, dtrun.err());
  REQUIRE_MESSAGE(torchrun.wait() == 0, torchrun.err());
  CHECK(dtrun.story() == torchrun.story());
  CHECK(dtrun.story().find("ends with ['") != std::string::npos);
}

TEST_CASE("a second node that comes, is killed, and comes again is taken in each time") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  come_and_go(SIGKILL, 128 + SIGKILL);
}

TEST_CASE("a second node that comes, is told to stop, and comes again is taken in each time") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  come_and_go(SIGTERM, 128 + SIGTERM);
}

}  // namespace dtrun::elastic_test
