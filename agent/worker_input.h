// Standard input of a job that was launched from another host, on its way from the launcher to the workers
// here, which share it as they share the agent's own on one host.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "agent/system/loop.h"
#include "proto/base/descriptor.h"

namespace dtrun::agent {

// Bytes of input under way from a launcher.
inline constexpr std::size_t kInputWindow = 256u << 10;

class WorkerInput {
 public:
  // `pipe`: its other end is the workers' standard input. `taken(bytes)`: so many bytes have gone into it;
  // the launcher sends at most kInputWindow more than that.
  WorkerInput(Loop& loop, int pipe, std::function<void(std::size_t)> taken);
  ~WorkerInput() { close(); }
  WorkerInput(const WorkerInput&) = delete;

  void add(std::string_view text);
  // Workers find the end of file behind the added text.
  void end();

 private:
  void write_some();
  void close();

  Loop& loop_;
  Descriptor pipe_;
  std::function<void(std::size_t)> taken_;
  std::string queue_;
  bool ends_ = false, watched_ = false;
};

}  // namespace dtrun::agent
