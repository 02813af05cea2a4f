// Short runs of the real trainer, and their results.
#pragma once

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/clock.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/ports.h"
#include "tests/support/process.h"

namespace dtrun::test {

inline const std::string kConfig = DTRUN_SOURCE_DIR "/configs/fashion_mnist_convnet.json";

// A folder of the build's file system with the build's dtrun, and another worker of the build beside it:
// dtrun starts the one that lies beside it.
class Programs {
 public:
  explicit Programs(const std::filesystem::path& worker);
  ~Programs();
  Programs(const Programs&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::string dtrun() const { return path_ / "dtrun"; }

 private:
  const std::filesystem::path path_;
};

// An override: the job ends when it is told to.
inline const std::string kEndless = "train.max_steps=1000000000";

// Overrides of kConfig for images that take a worker next to nothing to load and to learn.
std::vector<std::string> small_images();

// dtrun OPTIONS… CONFIG output_dir=… OVERRIDES…, with a metrics line for every step and no evaluation before
// the end; on the real data set, and on small_images().
std::vector<std::string> training_on_real_images(const std::vector<std::string>& options,
                                                 const std::filesystem::path& output,
                                                 const std::vector<std::string>& overrides);
std::vector<std::string> training(const std::vector<std::string>& options,
                                  const std::filesystem::path& output,
                                  const std::vector<std::string>& overrides);

// Makes the command's workers rest before each microbatch, so that a job that goes on until a test has seen
// what it waits for takes next to no processor's time meanwhile.
std::vector<std::string> resting(std::vector<std::string> argv,
                                 std::chrono::microseconds time = std::chrono::milliseconds(5));
// training() without an end, at rest: whenever a test acts on the job, it is still at work.
std::vector<std::string> endless_training(const std::vector<std::string>& options,
                                          const std::filesystem::path& output,
                                          const std::vector<std::string>& overrides = {});

// One node with one lane a worker, unless told otherwise.
std::vector<std::string> standalone(int workers, int lanes = 1);

// The final model's bytes; fails the test if there is none.
std::string model(const std::filesystem::path& output);

// The same of training() for so many steps by one worker, without a failure: the result that every other such
// run must equal. It is made the first time.
const std::string& quiet_model(int steps, const std::vector<std::string>& overrides = {});

// The newest line of training in metrics.jsonl, and its step; none and 0 if there is none yet.
std::string newest_line(const std::filesystem::path& output);
long steps_done(const std::filesystem::path& output);
// Waits until so many are done.
bool trains(const std::filesystem::path& output, long steps);

// Whether there is a checkpoint to go on from.
bool has_checkpoint(const std::filesystem::path& output);
// The newest one: its step, and the model's bytes; 0 and none if there is none.
std::pair<int, std::string> newest_checkpoint(const std::filesystem::path& output);

// Tells a job of endless_training() to end, by each of its agents. The newest checkpoint in any of the
// outputs must have the bytes of as many steps without a failure.
void end_as_calm(const std::vector<Process*>& agents, const std::vector<std::filesystem::path>& outputs,
                 const std::vector<std::string>& overrides = {});

// The live workers of an agent, so many.
std::vector<pid_t> workers_of(const Process& agent, std::size_t count);
pid_t only_worker(const Process& agent);

// --rdzv_conf by which a node that is silent for two seconds is lost.
std::string lost_after_two_seconds();

// A layer of a model of layers, as in front of a batch norm: without a bias.
nlohmann::json conv3x3(int channels, int stride);

}  // namespace dtrun::test
