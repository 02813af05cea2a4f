// The order of events, the same on every rank:
//
// 1. begin: rank 0 locks the output directory. All agree on the state of an earlier generation, the newest
//    checkpoint, or initial values. Each node with a disk of its own gets a saver. Rank 0 opens config.json
//    and metrics.jsonl.
// 2. Each step: cast the stop vote, compute the mean gradient, clip, update, report, log, read the vote.
//    Local replicas make all steps up to their next sync at once, which is a step here.
// 3. After a step, if it is time: evaluate, then hand a checkpoint to the saver. If the best model is looked
//    for and this is it, its checkpoint is on the disk before the next step.
// 4. After the last step: evaluate, save the last checkpoint. Rank 0 writes the model, that of the last step
//    or the best one, and reports it.
//
// If any rank was told to stop, all leave after the same step (or in the same evaluation) with a checkpoint.
// If any was told to pause, likewise without one: the state stays in memory. Of local replicas there is one
// too, unless every worker keeps the state of all.
#include "worker/trainer/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/base/log.h"
#include "proto/core/text.h"
#include "proto/core/training.h"
#include "worker/base/error.h"
#include "worker/base/operation_log.h"
#include "worker/base/stop_point.h"
#include "worker/checkpoint/best_model.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/config_drift.h"
#include "worker/checkpoint/durable.h"
#include "worker/checkpoint/keep_tokenizer.h"
#include "worker/config/check_together.h"
#include "worker/core/local_replicas.h"
#include "worker/core/sampler.h"
#include "worker/device/device.h"
#include "worker/device/lane_team.h"
#include "worker/device/range.h"
#include "worker/metrics/metrics.h"
#include "worker/model/program.h"
#include "worker/optim/learning_rate.h"
#include "worker/optim/optimizer.h"
#include "worker/trainer/divergence.h"
#include "worker/trainer/evaluation.h"
#include "worker/trainer/gradient_step.h"
#include "worker/trainer/local_replicas.h"
#include "worker/trainer/phase_clock.h"
#include "worker/trainer/recovery/last_sync.h"
#include "worker/trainer/run_saver.h"
#include "worker/trainer/step_clock.h"
#include "worker/trainer/steps.h"
#include "worker/trainer/stop_vote.h"
#include "worker/trainer/sync_check.h"

namespace dtrun::worker {
namespace {

using Clock = std::chrono::steady_clock;
using Phase = Progress::Phase;

BatchSampler batches_of(const TrainConfig& train, const Program& program, std::int64_t samples) {
  std::string refusal = too_few_samples(train, samples);
  if (refusal.empty()) refusal = too_few_values(program, train, samples);
  if (!refusal.empty()) throw WorkerError(kExitConfig, refusal);
  return {samples,         train.global_batch_size,   train.micro_batch_size, train.num_train_epochs,
          train.max_steps, train.dataloader_drop_last};
}

class Trainer {
 public:
  Trainer(Replica& replica, const RankInGeneration& place, ProcessGroup& group, AgentLink& agent);
  Outcome run();

 private:
  void begin();
  void begin_writing(const ResumePoint& start);
  void tell_recovery(const ResumePoint& start);
  void report_drift(const ResumePoint& start);
  Vote one_step();
  void log_step(double learning_rate, double norm);
  void tell_line(const TrainMetrics& line);
  bool evaluation_is_missing() const;
  Vote evaluate_now();
  void take_into_account(const Evaluation& evaluation);
  void save_best();
  void look_for_divergence(double loss);
  void save_now(bool on_disk = false);
  bool keeps_all() const { return config_.recovery.in_memory_checkpoint_steps > 0; }
  void keep(bool all);
  Outcome leave(Vote vote);
  void finish();
  std::optional<std::vector<float>> best_parameters();
  void complete(const std::optional<std::vector<float>>& best, double seconds);
  void report(Phase phase);

  Vote wish() const {
    return agent_.stop_requested() ? Vote::kStop : agent_.pause_requested() ? Vote::kPause : Vote::kGoOn;
  }
  double samples_of(const StepStats& stats) const { return stats.targets / replica_.program.sample.targets; }
  bool trains_on_tokens() const { return replica_.program.sample.input == SampleSpec::Input::kTokens; }
  bool is_writer() const { return place_.rank == 0; }
  // Whether what is done every so many steps is to be done after the step in hand.
  bool passed(std::int64_t steps) const {
    return passes(sync_before(state_.step, train_.steps_between_syncs()), state_.step, steps);
  }
  bool is_due(IntervalStrategy strategy, std::int64_t steps) const {
    if (strategy == IntervalStrategy::kEpoch) return passed(batches_.steps_per_epoch());
    return strategy == IntervalStrategy::kSteps && steps > 0 && passed(steps);
  }
  bool evaluation_is_due() const { return is_due(train_.eval_strategy, train_.eval_steps); }
  bool saves_while_training() const {
    return train_.save_strategy == IntervalStrategy::kEpoch || train_.load_best_model_at_end ||
           (train_.save_strategy == IntervalStrategy::kSteps && train_.save_steps > 0);
  }
  bool save_is_due() const { return is_due(train_.save_strategy, train_.save_steps); }
  const EvaluationRecord& evaluations() const { return replica_.log.evaluations; }
  bool at_end() const { return state_.step >= batches_.total_steps() || stops_early(train_, evaluations()); }
  // The model of the step in hand is the best so far, and to be kept.
  bool is_best() const { return train_.load_best_model_at_end && evaluations().best_step == state_.step; }

  Replica& replica_;
  ReplicaState& state_;  // the replica's: the same on every rank between steps
  const JobConfig& config_;
  const TrainConfig& train_;
  const RankInGeneration place_;
  ProcessGroup& group_;
  AgentLink& agent_;
  const BatchSampler batches_;
  StepClock clock_;
  PhaseClock phases_;
  StopVote stop_vote_;
  std::optional<LocalReplicas> local_;  // if the config has some
  std::optional<Steps> steps_;          // from the first one to the last
  RunSaver saver_;
  std::unique_ptr<MetricsWriter> metrics_;  // rank 0's

  StepStats since_lap_, since_report_;
  double samples_ = 0;  // trained in this generation, up to the last line of metrics
  Progress progress_;
  Clock::time_point start_ = Clock::now(), last_report_ = start_;
  std::optional<Evaluation> newest_evaluation_;  // nothing if older than state_.step
  bool resumed_ = false;
  bool diverged_ = false;  // a warning was logged that the loss is not finite
};

Trainer::Trainer(Replica& replica, const RankInGeneration& place, ProcessGroup& group, AgentLink& agent)
    : replica_(replica),
      state_(replica.state),
      config_(replica.config),
      train_(config_.train),
      place_(place),
      group_(group),
      agent_(agent),
      batches_(batches_of(train_, replica.program, replica.data.train->size())),
      stop_vote_(group),
      saver_(replica, place, group) {}

Outcome Trainer::run() {
  begin();
  start_ = last_report_ = Clock::now();
  clock_.restart();
  phases_.enter(Phase::kTraining);
  Vote vote = evaluation_is_missing() ? evaluate_now() : Vote::kGoOn;
  while (vote == Vote::kGoOn && !at_end()) {
    saver_.check();
    vote = one_step();
    if (vote == Vote::kGoOn && evaluation_is_due() && !at_end()) vote = evaluate_now();
    if (vote == Vote::kGoOn && save_is_due() && !at_end()) save_now();
  }
  if (vote == Vote::kGoOn && !newest_evaluation_) vote = evaluate_now();
  if (vote != Vote::kGoOn) return leave(vote);
  finish();
  return Outcome::kCompleted;
}

void Trainer::begin() {
  report(Phase::kLoading);
  compare_data(replica_, place_, group_);
  saver_.lock();
  if (replica_.in_memory_checkpoint) replica_.in_memory_checkpoint->wait();
  const Held held{.step = state_.has_values ? std::optional(state_.step) : std::nullopt,
                  .copied_in = state_.copied_in,
                  .snapshot = [this] { return replica_.snapshot(); }};
  std::optional<ResumePoint> last_sync;
  if (train_.has_local_replicas()) last_sync = go_back_to_sync(replica_, place_, group_, log_warn);
  ResumePoint start = last_sync ? *std::move(last_sync)
                                : choose_start(config_, place_, replica_.program, held, group_, log_warn);
  // Before the state is restored: the log belongs to it.
  MetricsLog log = start.from_memory() ? replica_.log : MetricsLog();
  if (start.from == ResumePoint::kCheckpoint) log.evaluations = start.state->evaluations;
  group_.broadcast(start.source_rank, std::as_writable_bytes(std::span(&log, 1)));
  replica_.log = log;
  progress_.accuracy = log.accuracy;
  if (start.state) replica_.restore(*start.state);
  state_.copied_in = 0;
  if (start.from == ResumePoint::kCheckpoint) {
    report_drift(start);
    for (const std::string& drift : {device_drift(start, replica_.device->fingerprint()),
                                     data_drift(start, replica_.data.identity, train_.allow_other_data)})
      if (place_.rank == start.source_rank && !drift.empty()) log_warn(drift);
  }
  // From the second generation on a difference is only logged: a new rank must not end a job that trains.
  compare_devices(replica_.device->fingerprint(), train_.allow_mixed_devices || place_.generation > 1,
                  group_);
  resumed_ = start.from != ResumePoint::kInitialValues;
  state_.config_json = to_canonical_json(config_);
  progress_.first_step = state_.step;
  progress_.from_in_memory_checkpoint = start.from == ResumePoint::kInMemoryCheckpoint;
  if (train_.has_local_replicas()) {
    local_.emplace(replica_, *start.state, group_, clock_);
    state_.has_values = false;  // the replicas' are elsewhere, too
    if (!start.from_memory()) {
      replica_.kept.clear();
      keep(false);
    }
  }
  saver_.open(std::exchange(start.state, std::nullopt),
              local_ ? [this](TrainState* copy) { local_->collect(copy); } : RunSaver::Collect());
  steps_.emplace(replica_, local_ ? &*local_ : nullptr, place_, group_, batches_, clock_, stop_vote_,
                 [this] { return wish(); });
  if (saves_while_training()) saver_.make_saves_fast();
  if (is_writer()) begin_writing(start);
  // The rank that had to save the best model may have been lost after the others had recorded its step.
  if (start.from_memory() && is_best()) save_best();
}

void Trainer::begin_writing(const ResumePoint& start) {
  const Status writable = check_output_dir(config_.output_dir);
  if (!writable.ok()) throw WorkerError(writable.exit_code(), writable.message());
  const std::string_view text = state_.config_json;
  replace_file(std::filesystem::path(config_.output_dir) / "config.json", {&text, 1});
  keep_tokenizer(config_, resumed_);
  std::unique_ptr<EventFile> events;
  if (train_.report_to == ReportTo::kTensorBoard)
    events = std::make_unique<EventFile>(config_.output_dir, state_.step, place_.generation, log_warn);
  metrics_ = std::make_unique<MetricsWriter>(config_.output_dir, state_.step, log_warn, std::move(events));
  // The rank that wrote before may have been lost between this step and its line.
  if (replica_.log.newest.step == state_.step && state_.step > 0) metrics_->write(replica_.log.newest);
  metrics_->write(StartMetrics{.step = state_.step,
                               .parameters = replica_.program.trained(),
                               .world_size = place_.world_size,
                               .lanes = replica_.lanes.size(),
                               .generation = place_.generation,
                               .from = start.name(),
                               .device = replica_.device->name(),
                               .use = replica_.device->use()});
  if (start.from_memory()) return tell_recovery(start);
  log_info(name_of(config_.model.type) + ": " + std::to_string(replica_.program.trained()) + " parameters, " +
           std::to_string(replica_.data.train->size()) + " training samples, " +
           std::to_string(batches_.total_steps()) + " steps, " + counted(place_.world_size, "worker") +
           " x " + counted(replica_.lanes.size(), "lane"));
  if (const std::string guessed = replica_.data.train->guessed(); !guessed.empty())
    log_info(config_.data.path + ": " + guessed);
  if (const std::string doubts = replica_.data.test->doubts(); !doubts.empty())
    log_warn(config_.data.path + ": " + doubts);
  if (local_ && keeps_all())
    log_info("every worker keeps the state of all local replicas, at the first sync from every " +
             std::to_string(config_.recovery.in_memory_checkpoint_steps) + " steps on");
  if (replica_.in_memory_checkpoint)
    log_info("copies in the host's memory, every " +
             counted(config_.recovery.in_memory_checkpoint_steps, "step") + ": " +
             in_gibibytes(replica_.in_memory_checkpoint->bytes()) + " for each worker");
  if (const auto gpu = replica_.device->memory())
    log_info("GPU memory of each worker before the first gradient: " + in_gibibytes(gpu->used) + " of " +
             in_gibibytes(gpu->total));
  if (!resumed_ && place_.generation > 1) log_warn("no node holds a checkpoint of this run; it begins again");
  if (!resumed_) return;
  const std::string from =
      start.source_rank == 0 ? "" : " (held by rank " + std::to_string(start.source_rank) + ")";
  const char* beyond = state_.step > batches_.total_steps() ? "; nothing is left to train" : "";
  log_info("resumed from step " + std::to_string(state_.step) + " of " +
           std::to_string(batches_.total_steps()) + from + beyond);
}

void Trainer::tell_recovery(const ResumePoint& start) {
  const bool copied = start.from == ResumePoint::kInMemoryCheckpoint;
  std::string where = copied ? ", from the host's memory" : "";
  if (!copied && start.source_rank != 0)
    where = ", from the memory of rank " + std::to_string(start.source_rank);
  log_info("going on at step " + std::to_string(state_.step) + " of " +
           std::to_string(batches_.total_steps()) + " with " + counted(place_.world_size, "worker") + where);
}

void Trainer::report_drift(const ResumePoint& start) {
  const ConfigDrift drift = config_drift(config_, start.config_json);
  const Status refusal = refuse_drift(config_, drift, state_.step);
  if (!refusal.ok()) throw WorkerError(refusal.exit_code(), refusal.message());
  if (drift.other_best) {
    replica_.log.evaluations.best_step = -1;
    replica_.log.evaluations.without_improvement = 0;
  }
  if (!is_writer()) return;
  if (!drift.harmless.empty()) {
    log_info("the config changed since the checkpoint of step " + std::to_string(state_.step) + ": " +
             drift.harmless + " (in the checkpoint)");
  }
  if (drift.reorders_samples) {
    log_warn(
        "with another seed, global_batch_size or dataloader_drop_last the epoch in hand goes on with other "
        "samples: it uses some twice and some not at all");
  }
}

// Returns what all ranks are to do after this step.
Vote Trainer::one_step() {
  const Range range(*replica_.device, Operation::Kind::kStep);
  const auto begin = Clock::now();
  const std::int64_t before = state_.step, total = batches_.total_steps();
  const std::int64_t after = steps_->next();
  const bool log = after == total || passes(before, after, std::max<std::int64_t>(1, train_.logging_steps));
  const Steps::Made made = steps_->run(log);
  stop_point(StopPoint::kUpdated);
  replica_.log.loss += made.stats.loss, replica_.log.targets += made.stats.targets;
  since_lap_ += made.stats;
  since_report_ += made.stats;
  state_.step = after;
  look_for_divergence(made.stats.loss);
  newest_evaluation_.reset();
  progress_.epoch = static_cast<double>(after) / static_cast<double>(batches_.steps_per_epoch());
  progress_.learning_rate = learning_rate_at(train_, after - 1, total);
  if (log) log_step(progress_.learning_rate, made.norm);
  report(Phase::kTraining);
  if (replica_.in_memory_checkpoint && passed(config_.recovery.in_memory_checkpoint_steps))
    replica_.in_memory_checkpoint->start(place_.generation);
  if (local_ && (!keeps_all() || passed(config_.recovery.in_memory_checkpoint_steps))) keep(keeps_all());
  const Vote vote = [this] {
    StepClock::Scope waiting(clock_, StepClock::kGradients);
    return stop_vote_.result();
  }();
  if (train_.verify_sync_steps > 0 && passed(train_.verify_sync_steps))
    verify_sync(replica_.program, replica_.parameter_hashes(), after, group_);
  if (!progress_.step_durations) progress_.step_durations.emplace();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  for (std::int64_t step = before; step < after; ++step)
    progress_.step_durations->add(seconds / static_cast<double>(after - before));
  return vote;
}

void Trainer::log_step(double learning_rate, double norm) {
  const StepClock::Shares shares = clock_.lap();
  MetricsLog& log = replica_.log;
  log.newest = {.step = state_.step,
                .epoch = progress_.epoch,
                .loss = mean(log.loss, log.targets),
                .learning_rate = learning_rate,
                .grad_norm = norm,
                .samples_per_second = samples_of(since_lap_) / shares.seconds,
                .tokens_per_second = trains_on_tokens() ? since_lap_.targets / shares.seconds : 0,
                .world_size = place_.world_size,
                .generation = place_.generation,
                .wait_gradients = shares.gradients,
                .wait_data = shares.data,
                .other = shares.other,
                .memory = replica_.device->memory()};
  log.loss = log.targets = 0;
  if (metrics_) metrics_->write(log.newest);
  tell_line(log.newest);
  samples_ += samples_of(since_lap_);
  since_lap_ = {};
}

// Of lines that come faster than reports the oldest are not told.
void Trainer::tell_line(const TrainMetrics& line) {
  MetricsLog& log = replica_.log;
  if (log.line_count == log.lines.size())
    std::move(log.lines.begin() + 1, log.lines.end(), log.lines.begin());
  else
    ++log.line_count;
  log.lines[log.line_count - 1] = {.step = line.step,
                                   .loss = line.loss,
                                   .learning_rate = line.learning_rate,
                                   .grad_norm = line.grad_norm,
                                   .samples_per_second = line.samples_per_second};
}

// Hands the newest numbers to the reporting thread. Rates are over the time since the last report that had
// one, so that a step of a few milliseconds does not make them jump.
void Trainer::report(Phase phase) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - last_report_).count();
  if (phase == progress_.phase && phase == Phase::kTraining && seconds < 0.1) return;
  progress_.phase = phase;
  progress_.step = state_.step;
  progress_.total_steps = batches_.total_steps();
  if (since_report_.targets > 0) progress_.loss = mean(since_report_.loss, since_report_.targets);
  if (since_report_.targets > 0 && seconds >= 0.1) {
    progress_.samples_per_second = samples_of(since_report_) / seconds;
    since_report_ = {};
    last_report_ = now;
  }
  const auto& lines = replica_.log.lines;
  if (is_writer())
    progress_.logged.assign(lines.begin(),
                            lines.begin() + static_cast<std::ptrdiff_t>(replica_.log.line_count));
  progress_.memory = replica_.device->memory();
  progress_.times = phases_.times();
  progress_.checkpoints = saver_.checkpoints();
  if (phase == Phase::kTraining) {
    progress_.step_times = clock_.times(state_.step - *progress_.first_step);
    steps_->complete(&*progress_.step_times);
  }
  agent_.report(progress_);
}

// For on_divergence "warn". Warns once: a person who watches may want to stop the run.
void Trainer::look_for_divergence(double loss) {
  if (diverged_ || std::isfinite(loss)) return;
  diverged_ = true;
  if (!is_writer()) return;
  log_warn("step " + std::to_string(state_.step) +
           ": the loss is not finite, so the model is lost from here on. " + kAgainstDivergence);
}

// Whether the run was stopped at a step that is to be evaluated, before it was.
bool Trainer::evaluation_is_missing() const {
  if (!resumed_ || state_.step == 0 || at_end() || !evaluation_is_due()) return false;
  return evaluations().evaluated_step != state_.step;
}

// Returns what all ranks are to do: if one of them was told to leave, the evaluation is given up.
Vote Trainer::evaluate_now() {
  const auto begin = Clock::now();
  const PhaseClock::Scope timed(phases_, Phase::kEvaluating);
  const Range range(*replica_.device, Operation::Kind::kEvaluation);
  report(Phase::kEvaluating);
  newest_evaluation_ = evaluate(*replica_.data.test, train_.micro_batch_size, replica_.parameters_for_lanes(),
                                group_, replica_.lanes, [&] { return wish() != Vote::kGoOn; });
  if (!newest_evaluation_) {
    stop_vote_.cast(wish());
    return stop_vote_.result();
  }
  progress_.accuracy = replica_.log.accuracy = newest_evaluation_->accuracy;
  if (is_writer()) {
    progress_.evaluated = {
        .step = state_.step, .loss = newest_evaluation_->loss, .accuracy = newest_evaluation_->accuracy};
    const double perplexity = std::exp(newest_evaluation_->loss);
    metrics_->write(EvalMetrics{.step = state_.step,
                                .loss = newest_evaluation_->loss,
                                .accuracy = newest_evaluation_->accuracy,
                                .perplexity = trains_on_tokens() ? std::optional(perplexity) : std::nullopt});
    log_info("step " + std::to_string(state_.step) + ": test loss " + decimals(newest_evaluation_->loss, 4) +
             (trains_on_tokens() ? ", perplexity " + decimals(perplexity, 2) : "") + ", accuracy " +
             decimals(newest_evaluation_->accuracy * 100, 2) + " %");
  }
  // Neither rates nor the shares of the next line are to contain this evaluation.
  since_report_ = {};
  last_report_ = Clock::now();
  report(Phase::kEvaluating);
  if (train_.on_divergence == DivergenceAction::kStop && !std::isfinite(newest_evaluation_->loss))
    throw WorkerError(kExitDataError, "training diverged: after step " + std::to_string(state_.step) +
                                          " the test loss is not finite. " + kAgainstDivergence);
  take_into_account(*newest_evaluation_);
  clock_.leave_out_since(begin);
  return Vote::kGoOn;
}

void Trainer::take_into_account(const Evaluation& evaluation) {
  EvaluationRecord& record = replica_.log.evaluations;
  if (!looks_for_best(train_)) {
    record = {.evaluated_step = state_.step};
    return;
  }
  add_evaluation(record, state_.step, evaluation.loss, evaluation.accuracy, better_of(train_));
  if (is_best() && !at_end()) save_best();
  if (is_writer() && stops_early(train_, record))
    log_info("stopping early: no better " + name_of(train_.metric_for_best_model) + " in " +
             counted(static_cast<int>(record.without_improvement), "evaluation"));
}

// The checkpoint is on the disk before the next step, after which no rank has its parameters any more.
void Trainer::save_best() {
  save_now(true);
  group_.barrier();
}

void Trainer::save_now(bool on_disk) {
  const PhaseClock::Scope timed(phases_, Phase::kSaving);
  const std::optional<double> waited = saver_.save(on_disk);
  if (waited && is_writer()) progress_.saved_step = state_.step;
  if (waited && metrics_) metrics_->write(SaveMetrics{.step = state_.step, .stall_milliseconds = *waited});
}

// The state of this sync, with the replicas of all ranks or of this one, in place of the oldest.
void Trainer::keep(bool all) {
  std::vector<KeptSync>& kept = replica_.kept;
  KeptSync now{.state = empty_state(train_), .log = {}};
  if (kept.size() == kKeptSyncs) {
    now = std::move(kept.front());
    kept.erase(kept.begin());
  }
  now.log = replica_.log;
  now.state.parameters.resize(replica_.program.size);
  for (std::size_t slot = 0; slot < state_.slots.size(); ++slot)
    now.state.optimizer[slot].values.resize(replica_.program.size);
  replica_.begin_snapshot(now.state);
  if (all)
    local_->collect(&now.state);
  else
    local_->copy_own(now.state);
  kept.push_back(std::move(now));
}

// All ranks are here after the same step. Nobody leaves before the state is safe: an agent may take the first
// worker's end for the whole group's.
Outcome Trainer::leave(Vote vote) {
  stop_point(StopPoint::kLeaving);
  steps_->end();
  if (vote == Vote::kPause) {
    // What the next generation begins with.
    if (local_ && keeps_all())
      keep(true);
    else if (local_)
      saver_.save_last();
    return Outcome::kPaused;
  }
  phases_.enter(Phase::kSaving);
  report(Phase::kSaving);
  const bool saved = saver_.save_last();
  if (is_writer())
    log_info("stopped after step " + std::to_string(state_.step) + " of " +
             std::to_string(batches_.total_steps()) +
             (saved ? "; checkpoint saved" : "; no checkpoint of it saved"));
  group_.barrier();
  return Outcome::kStopped;
}

// Nobody leaves before the model is safe: if rank 0 is lost while it writes, another rank does it again.
void Trainer::finish() {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  stop_point(StopPoint::kFinishing);
  phases_.enter(Phase::kSaving);
  report(Phase::kSaving);
  saver_.save_last();
  steps_->end();
  steps_.reset();  // its memory is what the best model is read into
  const std::optional<std::vector<float>> best = best_parameters();
  if (is_writer()) complete(best, seconds);
  stop_point(StopPoint::kLastBarrier);
  group_.barrier();
  stop_point(StopPoint::kLeavingLast);
}

// On rank 0: the final model's parameters, if they are not those of the last step.
std::optional<std::vector<float>> Trainer::best_parameters() {
  const std::int64_t step = evaluations().best_step;
  if (!train_.load_best_model_at_end || step < 0 || step == state_.step) return std::nullopt;
  std::optional<std::vector<float>> best = fetch_parameters(config_, place_, replica_.program, step, group_);
  if (is_writer() && !best)
    log_warn("the best model, of step " + std::to_string(step) +
             ", is on no node's disk any more; the final model is that of the last step");
  return best;
}

void Trainer::complete(const std::optional<std::vector<float>>& best, double seconds) {
  const std::vector<float>& parameters = best ? *best : saver_.last_parameters();
  const std::string model = save_model(config_.output_dir, replica_.program, parameters).string();
  stop_point(StopPoint::kModelWritten);
  const std::string sha256 = parameters_sha256(replica_.program, parameters);
  const EvaluationRecord& record = evaluations();
  metrics_->write(EndMetrics{.step = state_.step,
                             .params_sha256 = sha256,
                             .best_step = record.best_step,
                             .use = replica_.device->use()});
  if (record.best_step >= 0)
    log_info("the best model was that of step " + std::to_string(record.best_step) + ": test loss " +
             decimals(record.best_loss, 4) + ", accuracy " + decimals(record.best_accuracy * 100, 2) + " %" +
             (best || is_best() ? "; it is the final model" : ""));
  const StepClock::Shares time = clock_.whole();
  agent_.completed({.step = state_.step,
                    .loss = best ? record.best_loss : newest_evaluation_->loss,
                    .accuracy = best ? record.best_accuracy : newest_evaluation_->accuracy,
                    .model_path = model,
                    .params_sha256 = sha256,
                    .seconds = seconds,
                    .first_step = *progress_.first_step,
                    .training_seconds = time.seconds,
                    .samples_per_second = time.seconds > 0 ? samples_ / time.seconds : 0,
                    .math = time.math,
                    .wait_gradients = time.gradients,
                    .wait_data = time.data,
                    .other = time.other,
                    .memory = replica_.device->memory()});
}

}  // namespace

Outcome train(Replica& replica, const RankInGeneration& place, ProcessGroup& group, AgentLink& agent) {
  return Trainer(replica, place, group, agent).run();
}

}  // namespace dtrun::worker
