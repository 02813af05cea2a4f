#include "worker/prepare/encoding_team.h"

#include <exception>
#include <new>
#include <utility>

#include "worker/base/error.h"

namespace dtrun::worker {
namespace {

Result<UnitTokens> encoded(const Unit& unit, const InputSource& source, const EncodingRules& rules,
                           Encoder& encoder) {
  try {
    return encode_unit(unit, source, rules, encoder);
  } catch (const WorkerError& error) {
    return Status(error.exit_code(), source.path.string() + ": " + error.what());
  } catch (const std::bad_alloc&) {
    return Status(kExitSoftware, "out of memory; fewer --threads need less");
  }
}

}  // namespace

EncodingTeam::EncodingTeam(const Inputs& inputs, const EncodingRules& rules, const Tokenizer& tokenizer,
                           int threads)
    : inputs_(inputs),
      rules_(rules),
      tokenizer_(tokenizer),
      most_(2 * static_cast<std::size_t>(threads) + 2) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

EncodingTeam::~EncodingTeam() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    waiting_.clear();
  }
  waits_for_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void EncodingTeam::hand_in(Unit unit) {
  auto job = std::make_shared<EncodingJob>(EncodingJob{.unit = std::move(unit), .result = std::nullopt});
  jobs_.push_back(job);
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(job));
  }
  waits_for_work_.notify_one();
}

std::optional<Result<UnitTokens>> EncodingTeam::take_out(std::chrono::milliseconds patience) {
  const std::shared_ptr<EncodingJob> oldest = jobs_.front();
  std::unique_lock lock(mutex_);
  if (!waits_for_result_.wait_for(lock, patience, [&] { return oldest->result.has_value(); }))
    return std::nullopt;
  jobs_.pop_front();
  return std::move(oldest->result);
}

void EncodingTeam::run() {
  Encoder encoder(tokenizer_);
  for (;;) {
    std::unique_lock lock(mutex_);
    waits_for_work_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::shared_ptr<EncodingJob> job = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    auto result = encoded(job->unit, inputs_.sources[job->unit.source], rules_, encoder);
    lock.lock();
    job->result.emplace(std::move(result));
    lock.unlock();
    waits_for_result_.notify_one();
  }
}

}  // namespace dtrun::worker
