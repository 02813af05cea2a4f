// What data sets hold in memory is read once on a node, whoever comes: seen by the bytes that each worker has
// read by the time that it waits for its place.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/training.h"
#include "tests/support/small_images.h"
#include "tests/worker/data/image_files.h"

namespace dtrun::data_test {

using namespace dtrun::test;
namespace fs = std::filesystem;

namespace {

// Far more bytes than anything else that a worker reads.
constexpr int kImages = 10000;
constexpr long kPixels = 28L * 28 * kImages;

void write_images(const fs::path& folder, unsigned seed) {
  write_idx(folder, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", kImages, seed);
}

// A job without an end.
class Job {
 public:
  Job(const fs::path& data, int workers)
      : agent_(endless_training(
            [&] {
              std::vector<std::string> options = standalone(workers);
              options.insert(options.end(), {"--max_restarts", "3"});
              return options;
            }(),
            folder_ / "out", {"data.path=" + data.string(), "train.save_steps=0"})) {}

  // Of the workers that have loaded so far, in their order: whether each has read the images.
  std::vector<bool> loaded() {
    std::istringstream lines(read_if_there(folder_ / "out/events.jsonl"));
    for (std::string line; std::getline(lines, line) && !lines.eof();) {
      const auto event = nlohmann::json::parse(line);
      if (event["event"] != "worker_ready" || read_.contains(event["pid"])) continue;
      const pid_t pid = event["pid"];
      const std::string io = read_if_there("/proc/" + std::to_string(pid) + "/io");
      REQUIRE(io.starts_with("rchar: "));
      read_[pid] = std::stol(io.substr(7)) > kPixels;
      order_.push_back(pid);
    }
    std::vector<bool> all;
    for (const pid_t pid : order_) all.push_back(read_[pid]);
    return all;
  }
  bool await(std::size_t workers) {
    return eventually([&] { return loaded().size() == workers; });
  }
  std::vector<pid_t> workers() const { return children_of(agent_.pid(), "dtrun-worker"); }
  Process& agent() { return agent_; }
  bool trains() const { return dtrun::test::trains(folder_ / "out", 1); }

 private:
  const Folder folder_;
  Process agent_;
  std::map<pid_t, bool> read_;
  std::vector<pid_t> order_;
};

// The number of the file in memory that a process has mapped; empty if there is none.
std::string data_file(pid_t pid) {
  std::istringstream lines(read_if_there("/proc/" + std::to_string(pid) + "/maps"));
  for (std::string range, rights, offset, device, inode, name;
       lines >> range >> rights >> offset >> device;) {
    std::getline(lines >> inode, name);
    if (contains(name, "/memfd:dtrun-data")) return rights == "r--p" ? inode : "it can be written to";
  }
  return "";
}

}  // namespace

TEST_CASE("of a node's workers one reads the data, none of those that replace them, and all if it changes") {
  const Folder data;
  write_images(data.path(), 1);
  write_idx(data.path(), "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 50, 2);
  Job job(data.path(), 4), other(data.path(), 1);  // each job has its own
  REQUIRE_MESSAGE(job.await(4), job.agent().err());
  REQUIRE_MESSAGE(other.await(1), other.agent().err());
  const std::vector<bool> first = job.loaded();
  CHECK(std::ranges::count(first, true) == 1);
  CHECK(other.loaded() == std::vector<bool>{true});
  REQUIRE(job.trains());
  const std::vector<pid_t> workers = job.workers();
  REQUIRE(workers.size() == 4);
  const std::string file = data_file(workers.front());
  CHECK(!file.empty());
  for (const pid_t worker : workers) CHECK(data_file(worker) == file);
  CHECK(data_file(other.workers().at(0)) != file);

  kill(workers[1], SIGKILL);
  REQUIRE_MESSAGE(job.await(5), job.agent().err());
  CHECK_FALSE(job.loaded().back());

  write_images(data.path(), 3);
  kill(workers[2], SIGKILL);
  REQUIRE_MESSAGE(job.await(6), job.agent().err());
  CHECK(job.loaded().back());

  job.agent().signal(SIGTERM);
  CHECK(job.agent().end().exit_code == 128 + SIGTERM);
}

TEST_CASE("an agent that is killed takes the data with it") {
  const Folder data;
  write_images(data.path(), 1);
  write_idx(data.path(), "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 50, 2);
  Job job(data.path(), 2);
  REQUIRE_MESSAGE(job.await(2), job.agent().err());
  const std::vector<pid_t> workers = job.workers();
  const std::string file = data_file(workers.at(0));
  REQUIRE(!file.empty());
  job.agent().signal(SIGKILL);
  CHECK(eventually([&] {
    return std::ranges::none_of(fs::directory_iterator("/proc"), [&](const fs::directory_entry& entry) {
      const int pid = std::atoi(entry.path().filename().c_str());
      return pid > 0 && data_file(pid) == file;
    });
  }));
}

// The model's bytes, by so many workers in this environment.
std::string trained_on(const fs::path& images, const fs::path& output, int workers,
                       const std::vector<std::string>& environment = {}) {
  std::vector<std::string> command = training(standalone(workers), output, {"train.max_steps=4"});
  command.insert(command.end(), {"data.type=image_folder", "data.path=" + images.string(),
                                 "data.image_size=[28,28]", "data.test_fraction=0.2"});
  const Ended ended = run(command, environment);
  CHECK_MESSAGE(ended.exit_code == 0, ended.err);
  return model(output);
}

TEST_CASE("a folder of images is the same to any number of workers, and to a processor without vectors") {
  const Folder folder;
  const fs::path images = folder / "images";
  for (int i = 0; i < 40; ++i) {
    const fs::path place = images / ("class " + std::to_string(i % 4));
    fs::create_directories(place);
    const worker::JpegForm form{.down = 1 + i % 2, .across = 1 + i / 2 % 2, .progressive = i % 3 == 0};
    const std::string content =
        i % 5 == 0
            ? worker::png_file(40, std::vector<std::string>(30, std::string(120, static_cast<char>(i))))
            : worker::jpeg_file(31 + i, 50 - i / 2, worker::waves, form);
    write_text(place / (std::to_string(i) + (i % 5 == 0 ? ".png" : ".jpg")), content);
  }
  const std::string one = trained_on(images, folder / "1", 1);
  CHECK(trained_on(images, folder / "3", 3) == one);
  CHECK(trained_on(images, folder / "plain", 1, {"JSIMD_FORCENONE=1"}) == one);
}

}  // namespace dtrun::data_test
