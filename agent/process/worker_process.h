// One worker from its start to the last byte of its output: process, pipes, log files, control socket. It
// knows how the worker ended; other code decides what follows from that.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/job_spec.h"
#include "agent/core/stack_location.h"
#include "agent/core/vocabulary.h"
#include "agent/output/console.h"
#include "agent/process/control_channel.h"
#include "agent/process/error_file.h"
#include "agent/process/output_pipes.h"
#include "agent/process/spawn.h"
#include "agent/process/worker_signs.h"
#include "agent/system/loop.h"
#include "proto/base/descriptor.h"
#include "proto/base/operation_ring.h"
#include "proto/control.pb.h"

namespace dtrun::agent {

struct WorkerPlan {
  std::int64_t generation = 0;
  int local_rank = 0;
  int rank = 0;
  std::vector<std::string> argv;
  std::vector<std::string> environment;
  // Not the built-in trainer: its standard input is ours, and it need not use its control socket.
  bool program = false;
  int in_memory_checkpoint_fd =
      -1;                  // its file in the host's memory (HostMemory), which outlives it; -1: none
  int operations_fd = -1;  // the same for its last operations, mapped here:
  std::shared_ptr<OperationMemory> operations = {};
  int data_fd = -1;  // the file in the host's memory for the data of all workers of the node; -1: none
  StreamPlan out, err;
  std::vector<int> cpus;                 // that it may use; empty: all
  std::string tag;                       // worker_tag(): of this agent and process
  std::filesystem::path log_dir;         // empty: no files
  std::filesystem::path heartbeat_file;  // exists; touched by the worker; empty: none
  std::filesystem::path stacks_file;     // for its stacks should it hang
  std::filesystem::path error_file;      // where the worker may say why it failed; empty: nowhere
  Disk* error_disk = nullptr;            // by which that is read; outlives the worker
};

class WorkerProcess {
 public:
  // Called on the loop; none may destroy the worker.
  struct Callbacks {
    std::function<void(const control::FromWorker&)> message;
    // The worker has ended, and is still a zombie: its number is still its group's. `well`: with 0. Returns
    // whether the processes that it left behind may end by themselves; else its group is killed.
    std::function<bool(bool well)> exited;
    std::function<void(WorkerOutcome, bool never_ran)> ended;  // the last one: its output is complete
  };

  WorkerProcess(Loop& loop, Console& console, WorkerPlan plan, Callbacks callbacks);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;

  // Starts the program; a failure comes through `ended` as well.
  void start();

  pid_t pid() const { return pid_; }     // -1 before its start and after its end
  bool ended() const { return ended_; }  // also its output
  const std::string& tag() const { return plan_.tag; }
  int local_rank() const { return plan_.local_rank; }
  WorkerMemory memory() const {
    return {.in_memory_checkpoint = plan_.in_memory_checkpoint_fd >= 0,
            .operations = plan_.operations_fd >= 0,
            .data = plan_.data_fd >= 0};
  }
  // The memory of its operations, and the file that it is (WorkerPlan::operations_fd); null: none.
  std::shared_ptr<OperationMemory> trace_memory() const { return plan_.operations; }
  int memory_file() const { return plan_.operations_fd; }
  // Its last, also after its end; none of a program.
  std::vector<Operation> operations() const {
    return plan_.operations ? plan_.operations->last.read() : std::vector<Operation>();
  }
  const std::filesystem::path& log_dir() const { return plan_.log_dir; }
  // Its rank in the newest generation that it has, or had, a part in; before that its plan's.
  int rank() const { return rank_; }
  std::string name() const { return "rank " + std::to_string(rank_); }  // for people
  std::int64_t generation() const { return generation_; }
  bool leads() const { return leads_; }  // the node's workers
  void set_place(std::int64_t generation, int rank, bool leads);
  bool has_log_dir() const { return !plan_.log_dir.empty(); }
  const std::filesystem::path& stacks_file() const { return plan_.stacks_file; }
  OutputPipes& output() { return output_; }
  const OutputPipes& output() const { return output_; }
  WorkerSigns& signs() { return signs_; }
  const WorkerSigns& signs() const { return signs_; }
  // WorkerSigns::look_at_file(); people are told of a fault in it.
  std::optional<training::Progress> look_at_heartbeat_file();
  // WorkerSigns::heartbeat().
  std::optional<std::uint64_t> heartbeat() const {
    return signs_.heartbeat(control_ != nullptr && control_->open());
  }

  void signal_group(int number);
  void send(const control::FromAgent& message);
  // The worker's own message on why it fails, received before it ends.
  // The message of its error file, as soon as it has one; empty: none, or the disk does not answer.
  const std::string& raised() const;
  // `final`: no restart cures it.
  void set_error(std::string error, bool final) {
    error_ = std::move(error);
    final_ = final;
  }
  // Sets where it stood as the job hung: part of its outcome.
  void set_standing(StackLocation stack_location) { stack_location_ = std::move(stack_location); }
  // The worker's outcome once it is killed because it hangs, with `why` as its error.
  WorkerOutcome hung_outcome(const std::string& why) const;
  // Kills it because it hangs. It counts as hung unless it has ended in another way by then.
  void kill_hung(const std::string& why);
  // It broke the control protocol: it is killed and counts as ended with EX_SOFTWARE.
  void condemn(const std::string& why);
  // To be called when a child may have ended: if it is this one, kills the rest of its group, unless the
  // group is spared, and reaps it. A spared process may write to the worker's output after the worker counts
  // as ended.
  void reap();

 private:
  bool make_channels(int child_fds[4]);
  void output_late();
  void check_ended();
  void count_as_ended();
  WorkerError read_error() const;
  WorkerOutcome outcome() const;
  void start_failed(const Status& status);
  void protocol_broken(const std::string& error);

  Loop& loop_;
  Console& console_;
  WorkerPlan plan_;
  std::int64_t generation_;
  int rank_;
  bool leads_;
  Callbacks callbacks_;
  pid_t pid_ = -1;
  int last_pid_ = -1;
  Descriptor handle_;  // pidfd
  OutputPipes output_;
  WorkerSigns signs_;
  std::unique_ptr<ControlChannel> control_;
  std::string error_;
  mutable std::string raised_;
  bool condemned_ = false, final_ = false;
  bool hung_ = false;
  bool spares_group_ = false;
  StackLocation stack_location_;
  bool ended_ = false;
  int exit_code_ = 0, signal_ = 0;
  Loop::Clock::time_point started_at_, exited_at_;
  double ended_at_ = 0;  // seconds since 1970
  Timer late_timer_{loop_};
};

}  // namespace dtrun::agent
