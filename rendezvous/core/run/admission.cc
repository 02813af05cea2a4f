#include "rendezvous/core/run/admission.h"

#include <algorithm>

#include "proto/core/contract.h"
#include "proto/core/processor.h"
#include "proto/core/text.h"

namespace dtrun::rendezvous {
namespace {

// Thirty years: keeps deadlines far from the limits of their type.
constexpr Millis kMaxTimeout = 1'000'000'000'000;

std::string nnodes(int min, int max) { return std::to_string(min) + ":" + std::to_string(max); }

// A Join that is invalid by itself is explained to all nodes in the same words.
Refusal refusal(Rejected::Reason reason, const std::string& message) {
  return {{.reason = reason, .message = message, .job = ""}, message};
}

// The word at `at` with the one before it, which may be its option; "… --lr 0.1".
std::string words_at(const std::vector<std::string>& words, std::size_t at) {
  constexpr std::size_t kLongest = 80;
  const std::size_t begin = at > 0 ? at - 1 : 0;
  std::string text = begin > 0 ? "…" : "";
  for (std::size_t i = begin; i < std::min(at + 1, words.size()); ++i)
    text += (text.empty() ? "" : " ") + shortened(words[i], kLongest);
  return "\"" + text + (at + 1 < words.size() ? " …" : "") + "\"";
}

std::string name_in(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

Refusal other_protocol(int theirs) {
  const std::string ours = std::to_string(kRendezvousProtocol), other = std::to_string(theirs);
  return {{.reason = Rejected::kOtherProtocol,
           .message = "this agent is of another version of dtrun than the coordinator (rendezvous protocol " +
                      other + ", and " + ours +
                      " there): install both from one build, and start a `dtrun store` of an older one again",
           .job = ""},
          "it is of another version of dtrun (rendezvous protocol " + other + ", and " + ours + " here)"};
}

// Two jobs that do not know of each other, most likely: both may have left the run id at its default.
// `ours` and `theirs` are predicates: "starts a.py".
Refusal other_program(const Settings& run, const std::string& ours, const std::string& theirs) {
  return {{.reason = Rejected::kOtherSettings,
           .message = "this node " + theirs + ", but run \"" + run.run_id + "\", which " + run.host +
                      " joined first, " + ours + ": another program is another job. Give it a " +
                      "--rdzv_id of its own, and another port unless a `dtrun store` serves both",
           .job = ""},
          "it " + theirs + ", and this run " + ours + "; another job needs a --rdzv_id of its own"};
}

Refusal other_settings(const std::string& option, const std::string& theirs, const std::string& ours) {
  return {{.reason = Rejected::kOtherSettings,
           .message = option + " is " + theirs + " here but " + ours +
                      " for the agent that joined first; start every agent of a run with the same value",
           .job = ""},
          option + " is " + theirs + " there but " + ours + " here"};
}

// "cuda (NVIDIA H200)", "cpu"
std::string device_text(const std::string& device, const std::string& gpu) {
  return device + (gpu.empty() ? "" : " (" + gpu + ")");
}

// A node that does not say which instructions its processor computes with sends "cpu"; other nodes send "cpu,
// AVX2 loops, …".
std::string kind_of(const std::string& device) { return device.substr(0, device.find(',')); }

bool is_other(const std::string& device, const std::string& than) {
  return device != than && device != kind_of(than) && than != kind_of(device);
}

Refusal other_device(const Settings& run, const Join& join) {
  const std::string theirs = device_text(join.device, join.gpu), ours = device_text(run.device, run.gpu);
  std::string way_out = "other devices give other bits; set the config's device, or leave one of them out";
  if (join.device == kCpuWithoutFma || run.device == kCpuWithoutFma)
    way_out = "no worker computes without it; leave " +
              (join.device == kCpuWithoutFma ? join.host : run.host) + " out";
  else if (kind_of(join.device) == kind_of(run.device) && join.gpu == run.gpu)
    way_out =
        "together they give the bits of neither; leave one of them out, or set train.allow_mixed_devices";
  return {{.reason = Rejected::kOtherDevice,
           .message = join.host + " would compute on " + theirs + ", but " + run.host +
                      ", which joined run \"" + run.run_id + "\" first, computes on " + ours + ": " + way_out,
           .job = ""},
          "it would compute on " + theirs + ", and this run computes on " + ours};
}

}  // namespace

Settings settings_of(const Join& join) {
  return {.run_id = join.run_id,
          .job = join.job,
          .min_nodes = join.min_nodes,
          .max_nodes = join.max_nodes,
          .restarts = {.max_restarts = join.max_restarts, .crash_loop_limit = join.crash_loop_limit},
          .last_call = std::min(join.last_call, kMaxTimeout),
          .join_timeout = std::min(join.join_timeout, kMaxTimeout),
          .heartbeat_timeout = std::min(join.heartbeat_timeout, kMaxTimeout),
          .in_memory_recovery = join.in_memory_recovery,
          .device = join.device,
          .gpu = join.gpu,
          .host = join.host,
          .command = join.command};
}

std::optional<Refusal> refuse_malformed(const Join& join) {
  const auto refuse = [](const std::string& what) { return refusal(Rejected::kOtherSettings, what); };
  if (join.protocol != kRendezvousProtocol) return other_protocol(join.protocol);
  if (join.member_id.empty()) return refuse("the agent sent no member id");
  if (join.min_nodes < 1 || join.max_nodes < join.min_nodes || join.max_nodes > kMaxNodes)
    return refuse("--nnodes " + nnodes(join.min_nodes, join.max_nodes) +
                  " is not 1 <= MIN <= MAX <= " + std::to_string(kMaxNodes));
  if (join.nproc < 1 || join.nproc > kMaxWorkersPerNode)
    return refuse("--nproc_per_node " + std::to_string(join.nproc) + " is not within 1 and " +
                  std::to_string(kMaxWorkersPerNode));
  if (join.last_call < 0 || join.join_timeout <= 0 || join.heartbeat_timeout <= 0)
    return refuse("a timeout of the rendezvous is not positive");
  return std::nullopt;
}

std::optional<Refusal> refuse_other(const Settings& run, const Join& join) {
  if (join.run_id != run.run_id)
    return Refusal{{.reason = Rejected::kOtherRun,
                    .message = "this coordinator serves run \"" + run.run_id + "\", not \"" + join.run_id +
                               "\"; give all agents the same --rdzv_id, or this run an endpoint of its own",
                    .job = ""},
                   "it asked for run \"" + join.run_id + "\", and this is run \"" + run.run_id + "\""};
  const std::string theirs = program_of(join.command), ours = program_of(run.command);
  if (!theirs.empty() && !ours.empty() && theirs != ours)
    return other_program(run, "starts " + ours, "starts " + theirs);
  if (join.job.empty() != run.job.empty()) {
    const std::string program = "starts a program", trainer = "trains a config";
    return run.job.empty() ? other_program(run, program, trainer) : other_program(run, trainer, program);
  }
  if (join.min_nodes != run.min_nodes || join.max_nodes != run.max_nodes)
    return other_settings("--nnodes", nnodes(join.min_nodes, join.max_nodes),
                          nnodes(run.min_nodes, run.max_nodes));
  if (join.max_restarts != run.restarts.max_restarts)
    return other_settings("--max_restarts", std::to_string(join.max_restarts),
                          std::to_string(run.restarts.max_restarts));
  if (join.crash_loop_limit != run.restarts.crash_loop_limit)
    return other_settings("--crash_loop_limit", std::to_string(join.crash_loop_limit),
                          std::to_string(run.restarts.crash_loop_limit));
  if (join.in_memory_recovery != run.in_memory_recovery) {
    const auto name = [](bool in_memory_recovery) { return in_memory_recovery ? "memory" : "checkpoint"; };
    return other_settings("--recovery", name(join.in_memory_recovery), name(run.in_memory_recovery));
  }
  if (join.job != run.job)
    return Refusal{{.reason = Rejected::kOtherJob,
                    .message = "the job differs from the one of the agent that joined run \"" + run.run_id +
                               "\" first; start every agent of a run with the same config, or give another " +
                               "job a --rdzv_id of its own",
                    .job = run.job},
                   "its config is another one (its own terminal names the difference); another job needs a "
                   "--rdzv_id of its own"};
  if (is_other(join.device, run.device) || join.gpu != run.gpu) return other_device(run, join);
  if (join.node_rank >= run.max_nodes)
    return refusal(Rejected::kNodeRankTaken, "--node_rank " + std::to_string(join.node_rank) +
                                                 " is not below the " + std::to_string(run.max_nodes) +
                                                 " nodes of --nnodes");
  return std::nullopt;
}

std::string program_of(const std::vector<std::string>& command) {
  if (command.empty()) return "";
  std::string name = name_in(command.front());
  const bool python = name.starts_with("python") || name.starts_with("pypy");
  const bool shell = is_one_of(name, {"sh", "bash", "dash", "ksh", "zsh"});
  if (!python && !shell) return name;
  for (std::size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (python && word == "-m") return i + 1 < command.size() ? command[i + 1] : name;
    if (!word.starts_with('-')) return name_in(word);
    if (word.ends_with('c') && !word.starts_with("--")) return name;  // its text may be of one node
    if (is_one_of(word, {"-W", "-X", "-o"})) ++i;
  }
  return name;
}

std::string other_command(const Settings& run, const Join& join) {
  if (join.command == run.command) return "";
  const auto [theirs, ours] = std::ranges::mismatch(join.command, run.command);
  const auto at = static_cast<std::size_t>(theirs - join.command.begin());
  return join.host + " runs another command than " + run.host + ": " + words_at(join.command, at) +
         " instead of " + words_at(run.command, at);
}

Refusal refuse_node_rank(int node_rank, const std::string& host) {
  const std::string taken = "--node_rank " + std::to_string(node_rank) + " is taken by the agent on " + host;
  return {{.reason = Rejected::kNodeRankTaken,
           .message = taken + "; give every agent a node rank of its own",
           .job = ""},
          taken};
}

}  // namespace dtrun::rendezvous
