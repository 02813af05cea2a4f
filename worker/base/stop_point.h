// Named moments in a worker's life, at which a test can kill or hold it. In the product nothing is hooked in:
// passing one costs a load and a branch that always goes the same way.
#pragma once

#include <cstdint>

namespace dtrun::worker {

enum class StopPoint : std::uint8_t {
  kHello,                  // the process runs, the agent has not heard of it
  kLoading,                // it knows the job
  kDataMade,               // it has made a part of its node's data, which others cannot take yet
  kReady,                  // it is about to say that it waits for a place
  kMeeting,                // it has a place
  kConnecting,             // its address is known to its peers, theirs not yet to it
  kChoosingStart,          // it is connected
  kSendingState,           // the state is on its way: its header was sent
  kReceivingState,         // the state is on its way, as the rank that receives it sees it
  kMicrobatch,             // before each one of training
  kNormsExchanged,         // it has the sums of a batch norm over several microbatches
  kBucketSent,             // its part of a bucket's gradients is on its way
  kExchanged,              // it has the step's gradient, and not yet changed its parameters
  kUpdated,                // it has changed its parameters, and not reported that
  kInMemoryCheckpointing,  // its copy in the host's memory has the new parameters, but not yet the rest
  kHostCopied,             // that copy is complete
  kEvaluating,             // before each microbatch of an evaluation
  kSaving,                 // a checkpoint is about to be handed to the thread that writes it
  kWriting,                // its files are written, under another name
  kPauseOrdered,           // it was told to pause after the step in hand
  kLeaving,                // all ranks have agreed to pause after the step that was done
  kFinishing,              // training is complete
  kModelWritten,           // and the model on the disk
  kLastBarrier,            // this rank's part is done
  kLeavingLast,            // and that of all ranks
};

// Called on any of the worker's threads. Set before the first of them starts, by a test's program.
inline void (*stop_point_hook)(StopPoint) = nullptr;

inline void stop_point(StopPoint point) {
  if (stop_point_hook != nullptr) [[unlikely]]
    stop_point_hook(point);
}

}  // namespace dtrun::worker
