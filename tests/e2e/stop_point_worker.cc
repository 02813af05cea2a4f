// dtrun-worker that stops where a test says. DTRUN_TEST_STOP holds stops separated by ';', each a point and
// what is to happen there:
//
//   exchanged:rank=1:count=8:given=/dir/a:once=/dir/b:after=/dir/c:signal=9
//
// The worker that was started as rank 1 comes to that point for the 8th time, counted while the file a is
// there. It creates b, waits until c is there (or all of several, separated by ','), and sends itself the
// signal. If b was there already, nothing happens: so a replacement is not killed in turn. All but rank may
// be left out.
//
// With DTRUN_TEST_REST it rests for so many microseconds before each microbatch of training: a job without an
// end takes no processor's time to speak of while a test waits for something else.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cmd/worker_main.h"
#include "tests/support/clock.h"
#include "worker/base/stop_point.h"
#include "worker/device/cuda_device.h"

namespace {

using dtrun::worker::StopPoint;

struct Name {
  StopPoint point;
  std::string_view text;
};

constexpr std::array kNames{
    Name{StopPoint::kHello, "hello"},
    Name{StopPoint::kLoading, "loading"},
    Name{StopPoint::kDataMade, "data_made"},
    Name{StopPoint::kReady, "ready"},
    Name{StopPoint::kMeeting, "meeting"},
    Name{StopPoint::kConnecting, "connecting"},
    Name{StopPoint::kChoosingStart, "choosing_start"},
    Name{StopPoint::kSendingState, "sending_state"},
    Name{StopPoint::kReceivingState, "receiving_state"},
    Name{StopPoint::kMicrobatch, "microbatch"},
    Name{StopPoint::kNormsExchanged, "norms_exchanged"},
    Name{StopPoint::kBucketSent, "bucket_sent"},
    Name{StopPoint::kExchanged, "exchanged"},
    Name{StopPoint::kUpdated, "updated"},
    Name{StopPoint::kInMemoryCheckpointing, "in_memory_checkpointing"},
    Name{StopPoint::kHostCopied, "host_copied"},
    Name{StopPoint::kEvaluating, "evaluating"},
    Name{StopPoint::kSaving, "saving"},
    Name{StopPoint::kWriting, "writing"},
    Name{StopPoint::kPauseOrdered, "pause_ordered"},
    Name{StopPoint::kLeaving, "leaving"},
    Name{StopPoint::kFinishing, "finishing"},
    Name{StopPoint::kModelWritten, "model_written"},
    Name{StopPoint::kLastBarrier, "last_barrier"},
    Name{StopPoint::kLeavingLast, "leaving_last"},
};

struct Stop {
  StopPoint point{};
  int count = 1;
  int signal = 0;  // 0: it goes on
  std::string given, once;
  std::vector<std::string> after;
  std::atomic<int> passed{0};
};

std::deque<Stop>& stops() {
  static std::deque<Stop> all;
  return all;
}

[[noreturn]] void refuse(const std::string& what) {
  std::fprintf(stderr, "stop_point_worker: %s\n", what.c_str());
  _exit(70);
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

bool create(const std::string& path) {
  const int fd = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

void wait_for(const std::string& path) {
  const dtrun::test::Patience patience(std::chrono::seconds(60));
  while (!exists(path)) {
    if (patience.is_over()) refuse("waited in vain for " + path);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::chrono::microseconds rest{0};

void pass(StopPoint point) {
  if (point == StopPoint::kMicrobatch) std::this_thread::sleep_for(rest);
  for (Stop& stop : stops()) {
    if (stop.point != point || (!stop.given.empty() && !exists(stop.given))) continue;
    if (stop.passed.fetch_add(1) + 1 != stop.count) continue;
    if (!stop.once.empty() && !create(stop.once)) continue;
    for (const std::string& mark : stop.after) wait_for(mark);
    if (stop.signal != 0) kill(getpid(), stop.signal);
    while (stop.signal == SIGKILL) pause();
  }
}

StopPoint point_of(const std::string& text) {
  for (const Name& name : kNames)
    if (name.text == text) return name.point;
  refuse("no point is called " + text);
}

std::vector<std::string> separated(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::istringstream all(text);
  for (std::string part; std::getline(all, part, by);) parts.push_back(part);
  return parts;
}

// Takes in the stops of this worker.
void take(const std::string& text, int own_rank) {
  std::vector<std::string> fields = separated(text, ':');
  Stop& stop = stops().emplace_back();
  stop.point = point_of(fields.front());
  fields.erase(fields.begin());
  int rank = -1;
  for (const std::string& field : fields) {
    const std::size_t equals = field.find('=');
    if (equals == std::string::npos) refuse("no value in " + text);
    const std::string key = field.substr(0, equals), value = field.substr(equals + 1);
    if (key == "rank")
      rank = std::atoi(value.c_str());
    else if (key == "count")
      stop.count = std::atoi(value.c_str());
    else if (key == "signal")
      stop.signal = std::atoi(value.c_str());
    else if (key == "given")
      stop.given = value;
    else if (key == "once")
      stop.once = value;
    else if (key == "after")
      stop.after = separated(value, ',');
    else
      refuse("unknown key " + key);
  }
  if (rank != own_rank) stops().pop_back();
}

// With DTRUN_TEST_CUDA_GRAPHS=0 microbatches are launched kernel by kernel.
dtrun::worker::CudaLaunches launches() {
  const char* const graphs = std::getenv("DTRUN_TEST_CUDA_GRAPHS");
  return {.graphs = graphs == nullptr || std::atoi(graphs) != 0};
}

}  // namespace

int main(int argc, char** argv) {
  if (const char* rank = std::getenv("RANK"); rank != nullptr) {
    if (const char* text = std::getenv("DTRUN_TEST_STOP"); text != nullptr)
      for (const std::string& one : separated(text, ';')) take(one, std::atoi(rank));
    if (const char* text = std::getenv("DTRUN_TEST_REST"); text != nullptr)
      rest = std::chrono::microseconds(std::atoi(text));
    dtrun::worker::stop_point_hook = pass;
  }
  return dtrun::worker::worker_main(argc, argv, launches());
}
