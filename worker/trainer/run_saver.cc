#include "worker/trainer/run_saver.h"

#include <array>
#include <chrono>
#include <span>
#include <string>
#include <utility>

#include "proto/base/log.h"
#include "worker/base/error.h"
#include "worker/base/stop_point.h"
#include "worker/checkpoint/best_model.h"
#include "worker/device/range.h"

namespace dtrun::worker {
namespace {

// A writer of an earlier generation or run may be about to end. After a restart it may sit on a node that was
// lost, with the same files, and needs as long as its agent takes to give up.
constexpr std::chrono::seconds kLockPatienceAfterRestart{30};

}  // namespace

RunSaver::RunSaver(Replica& replica, const RankInGeneration& place, ProcessGroup& group)
    : replica_(replica), config_(replica.config), place_(place), group_(group) {}

void RunSaver::lock() {
  if (!is_writer()) return;
  output_lock_.emplace(config_.output_dir,
                       place_.generation <= 1 ? kLockPatience : kLockPatienceAfterRestart);
}

void RunSaver::open(std::optional<TrainState> state, Collect collect) {
  collect_ = std::move(collect);
  if (!has_own_disk()) return;
  saver_.emplace(config_.output_dir, replica_.program, config_.train.save_total_limit);
  copy_ = state ? *std::move(state) : replica_.snapshot();
  // A state of local replicas may have none of others' vectors, and a snapshot of theirs no parameters.
  copy_.parameters.resize(replica_.program.size);
  for (OptimizerSlot& slot : copy_.optimizer) slot.values.resize(replica_.program.size);
}

// Whether this rank is rank 0 or speaks for a node that does not share its file system. Such a node keeps
// checkpoints too: rank 0's may be the one that is lost, and its disk with it.
bool RunSaver::has_own_disk() {
  std::array<char, kMaxLockSignature> writer{};
  if (is_writer()) output_lock_->signature().copy(writer.data(), writer.size() - 1);
  group_.broadcast(0, std::as_writable_bytes(std::span(writer)));
  if (is_writer() || place_.local_rank != 0) return is_writer();
  if (lock_signature(config_.output_dir) == writer.data()) return false;
  try {
    output_lock_.emplace(config_.output_dir, std::chrono::milliseconds(0));
    return output_lock_->held();
  } catch (const WorkerError& error) {
    log_debug(std::string("this rank keeps no checkpoints: ") + error.what());
    return false;
  }
}

void RunSaver::make_saves_fast() {
  if (!saver_) return;
  replica_.make_room_for_snapshots();
  pins_.push_back(replica_.device->arithmetic().pin(copy_.parameters));
  for (OptimizerSlot& slot : copy_.optimizer) pins_.push_back(replica_.device->arithmetic().pin(slot.values));
}

// Returns whether it worked.
template <typename Action>
bool RunSaver::with_saver(Action action) {
  if (!saver_) return true;
  try {
    action();
    return true;
  } catch (const WorkerError& error) {
    if (is_writer()) {
      if (error.exit_code() != kExitIo && error.exit_code() != kExitCannotCreate) throw;
      log_warn(std::string("a checkpoint was not saved: ") + error.what());
      return false;
    }
    log_warn(std::string("this node keeps no more checkpoints: ") + error.what());
    saver_.reset();
    return false;
  }
}

void RunSaver::check() {
  with_saver([&] { saver_->check(); });
}

std::optional<double> RunSaver::save(bool on_disk) {
  const auto begin = std::chrono::steady_clock::now();
  if (!saver_ && !collect_) return std::nullopt;
  const Range range(*replica_.device, Operation::Kind::kSave);
  const bool is_new = std::exchange(saved_step_, replica_.state.step) != replica_.state.step;
  if (is_new) with_saver([&] { saver_->wait(); });
  if (is_new && collect_) collect_(saver_ ? &copy_ : nullptr);
  if (is_new && saver_) {
    replica_.begin_snapshot(copy_);
    stop_point(StopPoint::kSaving);
    saver_->save(copy_, [this] { replica_.finish_snapshot(copy_); });
  }
  if (on_disk) with_saver([&] { saver_->wait(); });
  if (!is_new || !saver_) return std::nullopt;
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

bool RunSaver::save_last() {
  with_saver([&] { saver_->wait(); });
  if (collect_) collect_(saver_ ? &copy_ : nullptr);
  if (!saver_) return true;
  replica_.begin_snapshot(copy_);
  replica_.finish_snapshot(copy_);
  return with_saver(
      [&] { saver_->save_here(copy_, parameters_are_finite(copy_) ? config_.train.save_total_limit : 0); });
}

}  // namespace dtrun::worker
