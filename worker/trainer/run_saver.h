// The checkpoints of a run while it trains: which ranks keep them, what a save costs the loop, and what a
// disk that fails means for the run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "worker/base/buffer.h"
#include "worker/checkpoint/background_saver.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/output_lock.h"
#include "worker/collective/process_group.h"
#include "worker/trainer/recovery/replica.h"
#include "worker/trainer/recovery/resume.h"

namespace dtrun::worker {

// A rank's saver of one generation; it saves on rank 0, and on one rank of each node with a disk of its own.
// Training needs no disk: a checkpoint that finds no room, or no way, is logged and tried again at the next.
// Checkpoints of other nodes than rank 0's are a reserve. Only the trainer's thread calls it.
class RunSaver {
 public:
  RunSaver(Replica& replica, const RankInGeneration& place, ProcessGroup& group);

  // On rank 0: locks the output directory. Throws WorkerError (EX_CANTCREAT) if another run holds it.
  void lock();
  // Called by all ranks, once the replica has the state that the generation begins with. Finds out whether
  // this rank saves. `state`: a copy of the replica's state that can be reused.
  // `collect`: puts what other ranks alone hold of a state that is saved into the copy, or, where that is
  // null, only sends what they need; called by all ranks.
  using Collect = std::function<void(TrainState*)>;
  void open(std::optional<TrainState> state, Collect collect = {});
  // Makes room for snapshots. To be called when all that training needs of the device's memory is there.
  void make_saves_fast();

  // The functions below are called by all ranks, after the same step.
  void check();  // reports a full disk before the next save
  // Costs the loop a copy, unless the disk is slower than the saves come. `on_disk`: returns when the
  // checkpoint is written. Returns the milliseconds that the loop waited; nothing where no save began, since
  // the rank keeps none or this step's was handed over already.
  std::optional<double> save(bool on_disk);
  // The run's last state is saved whatever it is, but a diverged one removes no older checkpoint. Returns
  // whether it is on the disk, or this rank keeps none.
  bool save_last();
  // Nothing where this rank keeps none. Any time.
  std::optional<Checkpoints> checkpoints() const {
    return saver_ ? std::optional(saver_->checkpoints()) : std::nullopt;
  }
  const std::vector<float>& last_parameters() const { return copy_.parameters; }  // REQUIRES: save_last()

 private:
  bool is_writer() const { return place_.rank == 0; }
  bool has_own_disk();
  template <typename Action>
  bool with_saver(Action action);

  Replica& replica_;
  const JobConfig& config_;
  const RankInGeneration place_;
  ProcessGroup& group_;
  std::optional<OutputLock> output_lock_;
  Collect collect_;           // or none
  TrainState copy_;           // the state that is being written
  std::vector<Buffer> pins_;  // of its vectors, for the device
  std::optional<BackgroundSaver> saver_;
  std::int64_t saved_step_ = -1;  // of the newest checkpoint that was handed to the saver
};

}  // namespace dtrun::worker
