#include "rendezvous/text/job_metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>

#include "proto/core/goodput.h"
#include "rendezvous/text/names.h"
#include "rendezvous/wire/convert.h"

namespace dtrun::rendezvous {
namespace {

using v1::MemberStatus;
using v1::RunStatus;
using v1::WorkerStatus;

constexpr MetricType kCounter = MetricType::kCounter, kGauge = MetricType::kGauge;
constexpr double kNotTold = std::numeric_limits<double>::quiet_NaN();

// A worker's counter in a message `M` of its own; `read` may find it kNotTold.
template <typename M>
struct WorkerCounter {
  const char* name;
  const char* label;  // and its value; empty: none
  const char* label_value;
  const char* help;
  double (*read)(const M&);
};

constexpr char kStepTime[] = "dtrun_worker_step_time_seconds_total",
               kStepTimeHelp[] = "Time of a worker's training steps by what it did.",
               kIo[] = "dtrun_worker_io_bytes_total",
               kIoHelp[] = "Bytes that a worker read and wrote by system calls.",
               kNetwork[] = "dtrun_worker_network_bytes_total",
               kNetworkHelp[] = "Bytes that a worker exchanged with the others in messages.";

struct FailureCause {
  const char* name;
  std::int32_t (v1::FailureCounts::*count)() const;
};
constexpr FailureCause kFailureCauses[] = {{"exit", &v1::FailureCounts::exit},
                                           {"signal", &v1::FailureCounts::signal},
                                           {"out_of_memory", &v1::FailureCounts::out_of_memory},
                                           {"hung", &v1::FailureCounts::hung},
                                           {"node_lost", &v1::FailureCounts::node_lost}};

constexpr WorkerCounter<training::StepTimes> kOfGeneration[] = {
    {"dtrun_worker_steps_total", "", "", "Training steps that a worker has done, those done again included.",
     [](const training::StepTimes& times) { return static_cast<double>(times.steps()); }},
    {kStepTime, "part", "math", kStepTimeHelp, [](const training::StepTimes& times) { return times.math(); }},
    {kStepTime, "part", "data", kStepTimeHelp, [](const training::StepTimes& times) { return times.data(); }},
    {kStepTime, "part", "wait_peers", kStepTimeHelp,
     [](const training::StepTimes& times) { return times.wait_peers(); }},
    {kStepTime, "part", "other", kStepTimeHelp,
     [](const training::StepTimes& times) { return times.other(); }},
    {kNetwork, "direction", "sent", kNetworkHelp,
     [](const training::StepTimes& times) {
       return times.has_sent() ? static_cast<double>(times.sent()) : kNotTold;
     }},
    {kNetwork, "direction", "received", kNetworkHelp, [](const training::StepTimes& times) {
       return times.has_received() ? static_cast<double>(times.received()) : kNotTold;
     }}};

constexpr WorkerCounter<v1::WorkerUsage> kOfProcess[] = {
    {"dtrun_worker_cpu_seconds_total", "", "", "Processor time of a worker and its descendants.",
     [](const v1::WorkerUsage& usage) { return usage.cpu(); }},
    {"dtrun_worker_cpu_wait_seconds_total", "", "",
     "Time that its threads were ready to run and had no processor.",
     [](const v1::WorkerUsage& usage) { return usage.cpu_wait(); }},
    {"dtrun_worker_major_faults_total", "", "", "Pages that had to be read from a disk for a worker.",
     [](const v1::WorkerUsage& usage) { return static_cast<double>(usage.major_faults()); }},
    {kIo, "direction", "read", kIoHelp,
     [](const v1::WorkerUsage& usage) { return static_cast<double>(usage.read_bytes()); }},
    {kIo, "direction", "written", kIoHelp,
     [](const v1::WorkerUsage& usage) { return static_cast<double>(usage.written_bytes()); }}};

}  // namespace

double Rising::rise(double value) {
  newest_ = std::max(newest_, value);
  return base_ + newest_;
}

void Rising::begin_again() {
  base_ += newest_;
  newest_ = 0;
}

// Writes one run.
class JobMetrics::RunWriter {
 public:
  RunWriter(const RunStatus& status, Run& run, double now, Exposition& out)
      : status_(status),
        run_(run),
        now_(now),
        out_(out),
        labels_(label_text({{"run_id", status.run_id()}})) {}

  void write() {
    write_job();
    write_goodput();
    write_nodes();
    if (status_.has_progress()) write_training(status_.progress());
    write_of_rank_0();
    write_verdict();
    write_workers();
  }

 private:
  static_assert(std::size(kOfGeneration) == std::tuple_size_v<decltype(Worker::of_generation)>);
  static_assert(std::size(kOfProcess) == std::tuple_size_v<decltype(Worker::of_process)>);
  static_assert(std::size(kGoodputKinds) == std::tuple_size_v<decltype(Run::seconds)>);

  void add(const char* name, MetricType type, const char* help, double value, const LabelText& more = "",
           const char* part = "") {
    out_.add(name, type, help, more.empty() ? labels_ : labels_ + "," + more, value, part);
  }

  void write_job() {
    const bool over = status_.phase() == RunStatus::OVER;
    for (std::size_t phase = 0; phase < std::size(kPhaseNames); ++phase)
      add("dtrun_job_phase", kGauge, "1 for the phase that the job is in.",
          static_cast<std::size_t>(status_.phase()) == phase ? 1 : 0,
          label_text({{"phase", kPhaseNames[phase]}}));
    add("dtrun_job_generation", kGauge, "The newest generation, 0 before the first.",
        static_cast<double>(status_.generation()));
    if (over) add("dtrun_job_exit_code", kGauge, "Exit code of a job that is over.", status_.exit_code());
    add("dtrun_job_restarts_total", kCounter, "Restarts after failures of workers.", status_.restart_count());
    add("dtrun_job_max_restarts", kGauge, "Restarts that the job may have.", status_.max_restarts());
    add("dtrun_job_membership_changes_total", kCounter, "Nodes that were lost or taken in.",
        status_.membership_changes());
    for (const FailureCause& cause : kFailureCauses)
      add("dtrun_job_failures_total", kCounter, "Failures by their cause.",
          (status_.failures().*cause.count)(), label_text({{"cause", cause.name}}));
    add("dtrun_world_size", kGauge, "Workers of the newest generation.", status_.world_size());
  }

  void write_goodput() {
    if (!status_.has_goodput()) return;
    const Goodput spent = from_wire(status_.goodput());
    if (run_.start_time == 0) {
      const double ended = status_.phase() == RunStatus::OVER ? status_.ended_age_s() : 0;
      run_.start_time = now_ - ended - spent.total();
    }
    add("dtrun_job_start_time_seconds", kGauge, "When the first node joined, in seconds since 1970.",
        run_.start_time);
    for (std::size_t i = 0; i < std::size(kGoodputKinds); ++i)
      add("dtrun_job_time_seconds_total", kCounter, "Wall time of the job by what it was spent on.",
          run_.seconds[i].rise(spent.*kGoodputKinds[i].seconds),
          label_text({{"spent", kGoodputKinds[i].name}}));
    add("dtrun_job_goodput_ratio", kGauge, "Share of the job's time that trained its model.", spent.ratio());
    add("dtrun_train_steps_redone_total", kCounter, "Training steps that an earlier generation had done.",
        static_cast<double>(spent.steps_redone));
    if (spent.best_step > 0) write_steps(static_cast<double>(spent.best_step + spent.steps_redone));
  }

  void write_steps(double steps) {
    if (steps > run_.steps) run_.last_step_time = now_;
    run_.steps = std::max(run_.steps, steps);
    add("dtrun_train_steps_total", kCounter, "Training steps that were done, those done again included.",
        run_.steps);
    add("dtrun_last_step_time_seconds", kGauge, "When a step was last seen to end, in seconds since 1970.",
        run_.last_step_time);
  }

  void write_training(const training::Progress& progress) {
    add("dtrun_train_step", kGauge, "Steps that the model has been trained.",
        static_cast<double>(progress.step()));
    add("dtrun_train_total_steps", kGauge, "Steps of the whole training.",
        static_cast<double>(progress.total_steps()));
    add("dtrun_train_epoch", kGauge, "Epochs that the model has been trained, with a fraction.",
        progress.epoch());
    if (progress.has_loss())
      add("dtrun_train_loss", kGauge, "Mean loss since the report before.", progress.loss());
    if (progress.has_accuracy())
      add("dtrun_eval_accuracy_ratio", kGauge, "Accuracy of the newest evaluation.", progress.accuracy());
    add("dtrun_train_learning_rate", kGauge, "Learning rate of the newest step.", progress.learning_rate());
    add("dtrun_train_samples_per_second", kGauge, "Samples per second of the whole job.",
        progress.samples_per_second());
  }

  void write_of_rank_0() {
    take_of_rank_0();
    if (run_.durations.seconds() > 0) write_durations();
    if (run_.rank_0_generation > 0 && status_.has_checkpoints()) write_checkpoints();
  }

  // Counters begin again with a generation. Until rank 0 speaks in it, the status has its last words.
  void take_of_rank_0() {
    const training::StepDurations& durations = status_.step_durations();
    const training::Checkpoints& checkpoints = status_.checkpoints();
    const auto counted = [](const training::Checkpoints& all) { return all.written() + all.failed(); };
    const bool speaks = status_.has_step_durations() || status_.has_checkpoints();
    const bool news = durations.seconds() != run_.durations.seconds() ||
                      counted(checkpoints) != counted(run_.checkpoints) ||
                      checkpoints.step() != run_.checkpoints.step();
    if (!speaks || (!news && run_.rank_0_generation > 0)) return;
    if (run_.rank_0_generation != status_.generation() || durations.seconds() < run_.durations.seconds() ||
        counted(checkpoints) < counted(run_.checkpoints)) {
      for (Rising& counter : run_.steps_up_to) counter.begin_again();
      for (Rising* const counter : {&run_.step_seconds, &run_.written, &run_.failed}) counter->begin_again();
    }
    run_.rank_0_generation = status_.generation();
    run_.durations = durations;
    run_.checkpoints = checkpoints;
    if (checkpoints.step() > 0 && checkpoints.step() != run_.newest.step()) {
      run_.newest = checkpoints;
      run_.newest_seen_at = now_;
    }
  }

  void write_durations() {
    constexpr char kName[] = "dtrun_step_duration_seconds";
    const auto write = [&](const char* part, double value, const LabelText& more = "") {
      add(kName, MetricType::kHistogram, "How long steps took, evaluations and saves left out.", value, more,
          part);
    };
    double steps = 0, all = 0;
    for (std::size_t i = 0; i < run_.steps_up_to.size(); ++i) {
      const int index = static_cast<int>(i);
      if (index < run_.durations.counts_size()) steps += static_cast<double>(run_.durations.counts(index));
      all = run_.steps_up_to[i].rise(steps);
      const bool has_bound = i < std::size(kStepDurationBounds);
      const std::string bound = has_bound ? bound_text(kStepDurationBounds[i]) : "+Inf";
      write("_bucket", all, label_text({{"le", bound}}));
    }
    write("_sum", run_.step_seconds.rise(run_.durations.seconds()));
    write("_count", all);
  }

  static std::string bound_text(double bound) {
    std::array<char, 32> digits{};
    return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), bound).ptr};
  }

  void write_checkpoints() {
    add("dtrun_checkpoints_total", kCounter, "Checkpoints that were written.",
        run_.written.rise(static_cast<double>(run_.checkpoints.written())));
    add("dtrun_checkpoint_failures_total", kCounter, "Checkpoints that found no room, or no way.",
        run_.failed.rise(static_cast<double>(run_.checkpoints.failed())));
    if (run_.newest.step() == 0) return;
    add("dtrun_checkpoint_step", kGauge, "Step of the newest checkpoint that is on the disk.",
        static_cast<double>(run_.newest.step()));
    add("dtrun_checkpoint_duration_seconds", kGauge, "Time that it took to be written, beside the training.",
        run_.newest.seconds());
    add("dtrun_checkpoint_bytes", kGauge, "Its size.", static_cast<double>(run_.newest.bytes()));
    add("dtrun_checkpoint_time_seconds", kGauge, "When it was first seen, in seconds since 1970.",
        run_.newest_seen_at);
  }

  void write_nodes() {
    std::array<int, std::size(kStateNames)> count{};
    int waiting = 0;
    for (const MemberStatus& member : status_.members()) {
      const auto state = static_cast<std::size_t>(member.state());
      if (state < count.size()) ++count[state];
      const std::string node = member.group_rank() >= 0 ? std::to_string(member.group_rank())
                                                        : "waiting-" + std::to_string(waiting++);
      const LabelText labels = label_text({{"host", member.host()}, {"node", node}});
      if (member.heartbeat_age_s() >= 0)
        add("dtrun_node_heartbeat_age_seconds", kGauge, "Time since the coordinator last heard from a node.",
            member.heartbeat_age_s(), labels);
      if (member.has_progress() && member.progress().has_memory())
        write_memory(member.progress().memory(), labels);
    }
    for (std::size_t state = 0; state < count.size(); ++state)
      add("dtrun_nodes", kGauge, "Nodes by their state.", count[state],
          label_text({{"state", kStateNames[state]}}));
  }

  void write_memory(const training::DeviceMemory& memory, const LabelText& labels) {
    add("dtrun_gpu_memory_used_bytes", kGauge, "Memory in use on the GPU of a node's first worker.",
        static_cast<double>(memory.used()), labels);
    add("dtrun_gpu_memory_peak_bytes", kGauge,
        "The most memory that was in use there since the worker began.", static_cast<double>(memory.peak()),
        labels);
    add("dtrun_gpu_memory_total_bytes", kGauge, "Memory of that GPU.", static_cast<double>(memory.total()),
        labels);
  }

  void write_verdict() {
    const bool slow = status_.has_verdict() && !status_.verdict().text().empty();
    add("dtrun_straggler_loss_ratio", kGauge, "Share of a step that one slow worker costs all.",
        slow ? status_.verdict().loss() : 0);
    if (slow)
      add("dtrun_worker_straggler", kGauge, "1 for the worker that slows the job down.", 1,
          label_text(
              {{"rank", std::to_string(status_.verdict().rank())}, {"cause", status_.verdict().cause()}}));
  }

  void write_workers() {
    int workers = 0;
    for (const MemberStatus& member : status_.members()) workers += member.workers_size();
    const bool each = workers <= kMostWorkerSeries;
    for (const MemberStatus& member : status_.members()) {
      Sums sums;
      for (const WorkerStatus& worker : member.workers()) {
        Sums own;
        count(worker, run_.workers[{member.host(), worker.rank()}], &own);
        sums.add(own);
        const LabelText labels =
            label_text({{"rank", std::to_string(worker.rank())}, {"host", member.host()}});
        if (each) write(own, labels);
        if (each && worker.has_gpu() && worker.pid() > 0) write(worker.gpu(), labels);
      }
      if (!each)
        write(sums, label_text({{"host", member.host()}, {"node", std::to_string(member.group_rank())}}));
    }
  }

  // Of one worker, or of all of a node.
  struct Sums {
    bool has_times = false, has_usage = false;
    std::array<double, std::size(kOfGeneration)> of_generation{};
    std::array<double, std::size(kOfProcess)> of_process{};
    double resident = 0, output_age = 0;

    void add(const Sums& more) {
      for (std::size_t i = 0; i < of_generation.size(); ++i) of_generation[i] += more.of_generation[i];
      for (std::size_t i = 0; i < of_process.size(); ++i) of_process[i] += more.of_process[i];
      resident += more.resident;
      if (more.has_usage) output_age = has_usage ? std::min(output_age, more.output_age) : more.output_age;
      has_times = has_times || more.has_times;
      has_usage = has_usage || more.has_usage;
    }
  };

  static void count(const WorkerStatus& worker, Worker& memory, Sums* sums) {
    if (worker.has_times()) {
      if (worker.times().steps() < memory.steps)
        for (Rising& counter : memory.of_generation) counter.begin_again();
      memory.steps = worker.times().steps();
      sums->has_times = true;
      for (std::size_t i = 0; i < std::size(kOfGeneration); ++i)
        sums->of_generation[i] = rise(memory.of_generation[i], kOfGeneration[i].read(worker.times()));
    }
    if (!worker.has_usage() || worker.pid() <= 0) return;
    if (memory.pid != 0 && memory.pid != worker.pid())
      for (Rising& counter : memory.of_process) counter.begin_again();
    memory.pid = worker.pid();
    sums->has_usage = true;
    for (std::size_t i = 0; i < std::size(kOfProcess); ++i)
      sums->of_process[i] = rise(memory.of_process[i], kOfProcess[i].read(worker.usage()));
    sums->resident = static_cast<double>(worker.usage().resident_bytes());
    sums->output_age = worker.usage().output_age();
  }

  static double rise(Rising& counter, double value) {
    return std::isnan(value) ? value : counter.rise(value);
  }

  void write(const v1::GpuUse& gpu, const LabelText& labels) {
    const LabelText all = labels + "," + label_text({{"gpu", std::to_string(gpu.number())}});
    if (gpu.has_utilization())
      add("dtrun_worker_gpu_utilization_ratio", kGauge,
          "Share of the time in which any kernel ran on a worker's GPU.", gpu.utilization(), all);
    if (gpu.has_memory_used())
      add("dtrun_worker_gpu_memory_used_bytes", kGauge, "Memory in use on it, by all processes.",
          static_cast<double>(gpu.memory_used()), all);
    if (gpu.has_memory_total())
      add("dtrun_worker_gpu_memory_total_bytes", kGauge, "Its memory.",
          static_cast<double>(gpu.memory_total()), all);
    if (gpu.has_temperature())
      add("dtrun_worker_gpu_temperature_celsius", kGauge, "Its temperature.", gpu.temperature(), all);
    if (gpu.has_power()) add("dtrun_worker_gpu_power_watts", kGauge, "Its power.", gpu.power(), all);
    for (const std::string& reason : gpu.throttled())
      add("dtrun_worker_gpu_throttled", kGauge, "1 for what slows it down.", 1,
          all + "," + label_text({{"reason", reason}}));
  }

  void write(const Sums& sums, const LabelText& labels) {
    if (sums.has_times) write(kOfGeneration, sums.of_generation, labels);
    if (!sums.has_usage) return;
    write(kOfProcess, sums.of_process, labels);
    add("dtrun_worker_resident_memory_bytes", kGauge, "Memory of a worker and its descendants.",
        sums.resident, labels);
    add("dtrun_worker_last_output_age_seconds", kGauge, "Time since a worker last wrote a line, or began.",
        sums.output_age, labels);
  }

  template <typename M, std::size_t N>
  void write(const WorkerCounter<M> (&counters)[N], const std::array<double, N>& values,
             const LabelText& labels) {
    for (std::size_t i = 0; i < N; ++i) {
      if (std::isnan(values[i])) continue;
      const bool has_label = *counters[i].label != '\0';
      add(counters[i].name, kCounter, counters[i].help, values[i],
          has_label ? labels + "," + label_text({{counters[i].label, counters[i].label_value}}) : labels);
    }
  }

  const RunStatus& status_;
  Run& run_;
  const double now_;
  Exposition& out_;
  const LabelText labels_;
};

namespace {

void write_process(const ProcessFacts& process, Exposition* out) {
  out->add("process_cpu_seconds_total", kCounter, "Processor time of the process.", "", process.cpu_seconds);
  out->add("process_start_time_seconds", kGauge, "When it began, in seconds since 1970.", "",
           process.start_time);
  out->add("process_resident_memory_bytes", kGauge, "Its resident memory.", "", process.resident_bytes);
  out->add("process_virtual_memory_bytes", kGauge, "Its virtual memory.", "", process.virtual_bytes);
  out->add("process_open_fds", kGauge, "Its open file descriptors.", "", process.open_files);
  out->add("process_max_fds", kGauge, "File descriptors that it may have.", "", process.most_files);
  out->add("process_threads", kGauge, "Its threads.", "", process.threads);
}

}  // namespace

std::string JobMetrics::text(std::span<const RunStatus> runs, const ProcessFacts& process, double now,
                             const std::string& version) {
  Exposition out;
  out.add("dtrun_build_info", kGauge, "The dtrun that answers.", label_text({{"version", version}}), 1);
  for (const RunStatus& status : runs) {
    const bool over = status.phase() == RunStatus::OVER;
    Run& run = runs_[status.run_id()];
    if (status.generation() < run.generation || (run.over && !over)) run = Run();
    run.generation = status.generation();
    run.over = over;
    run.seen_at = now;
    RunWriter(status, run, now, out).write();
  }
  std::erase_if(runs_, [&](const auto& known) { return now - known.second.seen_at > kForgetRunAfter; });
  write_process(process, &out);
  return out.text();
}

}  // namespace dtrun::rendezvous
