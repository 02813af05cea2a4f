// A real process for tests: started with arguments and environment, its output collected while it runs,
// waited for with deadlines in fair time (clock.h), ended with all its group when the test leaves. Also looks
// processes up in /proc.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace dtrun::test {

inline const std::string kDtrun = DTRUN_BIN_DIR "/dtrun";  // the launcher of this build

struct Ended {
  int exit_code = -1;  // 128+N for signal N; -1: killed at the deadline
  std::string out, err;
};

class Process {
 public:
  using Duration = std::chrono::milliseconds;

  // argv[0] is looked up in PATH; `environment` ("NAME=value") is added to this process's own, in which the
  // user's configuration, so also the key for all jobs, is one for the tests of this build.
  explicit Process(const std::vector<std::string>& argv, const std::vector<std::string>& environment = {});
  ~Process();  // SIGKILL to its group if it still runs
  Process(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;

  // Everything written so far.
  std::string out() const { return out_.text(); }
  std::string err() const { return err_.text(); }
  // Waits until standard output (or error) contains `text`; false at the deadline.
  bool wait_for_out(const std::string& text, Duration limit = Duration(20000)) const;
  bool wait_for_err(const std::string& text, Duration limit = Duration(20000)) const;

  // The exit code, 128+N for signal N, or -1 if the deadline passed (it is killed then). Returns once its
  // output has ended too.
  int wait(Duration limit = Duration(60000));
  // The same, with all that it wrote.
  Ended end(Duration limit = Duration(120000));

 private:
  class Collector {
   public:
    ~Collector() { join(); }
    void start(int fd);
    void join();
    std::string text() const;
    bool wait_for(const std::string& text, Duration limit) const;

   private:
    mutable std::mutex mutex_;
    mutable std::condition_variable more_;
    std::string text_;  // guarded by mutex_
    std::thread reader_;
  };

  bool ends_within(Duration limit) const;

  pid_t pid_ = -1;
  bool reaped_ = false;
  int code_ = -1;
  Collector out_, err_;
};

// A command with another one behind it.
std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& second);

// Runs a process to its end.
Ended run(const std::vector<std::string>& argv, const std::vector<std::string>& environment = {});

// The words as a shell's text, which it reads as the same words.
std::string shell_text(const std::vector<std::string>& words);

// Environment in which a program is started with this library before its others: LD_PRELOAD ends a name at a
// space, so it has the file's name alone.
std::vector<std::string> preloaded(const std::string& library);

// The program's output. Throws if it does not end with 0.
std::string output_of(const std::vector<std::string>& argv);

// Polls `condition` until it holds, at first after 1 ms, then ever less often, up to 20 ms; false at the
// deadline.
bool eventually(const std::function<bool()>& condition, Process::Duration limit = Process::Duration(60000));

// Exists and is not a zombie.
bool is_alive(pid_t pid);

// Direct children of `parent` whose command name is `name` (at most 15 characters).
std::vector<pid_t> children_of(pid_t parent, const std::string& name);

// Live processes whose command line contains `text`.
std::vector<pid_t> processes_with(const std::string& text);

}  // namespace dtrun::test
