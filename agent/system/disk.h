// A thread for calls that a file system may hold up (NFS that fails over, a frozen or failing disk): the loop
// does not wait for them, or not for long. Work is done in order. Lives on the loop's thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "agent/system/loop.h"

namespace dtrun::agent {

class Disk {
 public:
  // Far below the silence after which a node is given up, and long on a busy host.
  static constexpr std::chrono::milliseconds kPatience{3000};

  explicit Disk(Loop& loop);
  // Does not wait for work that is not done: it goes on as long as the process does.
  ~Disk();
  Disk(const Disk&) = delete;

  // Does `work` on the thread, and then `done` on the loop, unless this object is gone by then. `work` has to
  // own what it touches, or that has to outlive the process's last use of files.
  // `bytes`: what queued() counts it as.
  void post(std::function<void()> work, std::function<void()> done = nullptr, std::size_t bytes = 0);

  // The same, and waits for `work`: at most kPatience, and not at all while a wait before this one was in
  // vain. False: it is done later.
  bool run(std::function<void()> work);

  bool idle() const;           // all work is done
  std::size_t queued() const;  // bytes of work that is not done

 private:
  struct Shared;
  void deliver();

  Loop& loop_;
  const std::shared_ptr<Shared> shared_;
  std::uint64_t posted_ = 0;
  std::uint64_t awaited_ = 0;  // the number of the work for which run() waited last
};

}  // namespace dtrun::agent
