// The trainer's interface to the agent that started it. ControlClient speaks the real protocol; tests use
// smaller implementations.
#pragma once

#include "proto/core/training.h"

namespace dtrun::worker {

class AgentLink {
 public:
  virtual ~AgentLink() = default;
  // True once this worker was told to end after the current step. Cheap; any thread.
  virtual bool stop_requested() const = 0;
  // True once the generation is to end after the current step, and this worker to go on in the next one.
  // Cheap; any thread.
  virtual bool pause_requested() const { return false; }
  virtual void report(const Progress& progress) = 0;
  virtual void completed(const Completion& completion) = 0;
};

}  // namespace dtrun::worker
