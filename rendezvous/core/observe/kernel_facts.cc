#include "rendezvous/core/observe/kernel_facts.h"

#include "proto/core/text.h"
#include "proto/core/utf8.h"

namespace dtrun::rendezvous {
namespace {

// A rank is kept back for so much of its time, and each other one for at most half as much.
constexpr double kKeptBack = 0.2;
constexpr double kOthers = 0.5;
// Of a core: a rank that hardly wants to run loses nothing, and a program that hardly runs takes nothing.
constexpr double kBusy = 0.1;

double share(double kept, double ran) { return kept > 0 ? kept / (kept + ran) : 0; }

double stopped_share(const WindowPart& part) { return std::min(1.0, part.stopped); }

double throttled_share(const WindowPart& part) {
  return part.throttled >= kBusy ? share(part.throttled, part.cpu) : 0;
}

// Threads of one process that are more than its cores wait for each other, so the wait alone tells nothing.
double shared_share(const WindowPart& part) {
  const bool by_another = part.neighbour && part.neighbour->cpus >= kBusy;
  return by_another && part.cpu_wait >= kBusy ? share(part.cpu_wait, part.cpu) : 0;
}

using Share = double (*)(const WindowPart&);

// The rank whose share is high by itself; null: none.
const WindowPart* kept_back(const Window& window, Share share_of) {
  const WindowPart& most = *std::ranges::max_element(window, {}, share_of);
  if (share_of(most) < kKeptBack) return nullptr;
  for (const WindowPart& part : window)
    if (part.rank != most.rank && share_of(part) > kOthers * share_of(most)) return nullptr;
  return &most;
}

std::string named(const Neighbour& neighbour) {
  constexpr std::size_t kLongestName = 15;  // the kernel's
  return " with \"" + printable_line(neighbour.name.substr(0, kLongestName)) + "\" (pid " +
         std::to_string(neighbour.pid) + ")";
}

}  // namespace

Explanation stopped(const WindowPart& part) {
  return {"stopped", "a signal, or a debugger, has stopped it (for " +
                         decimals(std::min(1.0, part.stopped), 2) + " s of each second)"};
}

Explanation throttled(const WindowPart& part) {
  return {"throttled",
          "its control group has used up its CPU quota (ran " + decimals(part.cpu, 2) + " s of each second)"};
}

Explanation shares_cores(const WindowPart& part) {
  const bool by_another = part.neighbour && part.neighbour->cpus >= kBusy;
  return {"shared_cores", "its cores are shared" + (by_another ? named(*part.neighbour) : "") +
                              ", and it ran " + decimals(100 * (1 - share(part.cpu_wait, part.cpu)), 0) +
                              " % of the time that it was ready to"};
}

std::optional<Straggler> judge_kernel_facts(const Window& window) {
  if (window.size() < 2) return std::nullopt;
  const auto found = [](const WindowPart& part, Explanation cause) {
    return Straggler{
        .who = "rank " + std::to_string(part.rank),
        .verdict = {.text = std::move(cause.text), .rank = part.rank, .cause = std::move(cause.word)},
        .does = "is kept back"};
  };
  // Threads of a group without quota are ready to run, too, and a stopped process needs neither.
  if (const WindowPart* part = kept_back(window, stopped_share)) return found(*part, stopped(*part));
  if (const WindowPart* part = kept_back(window, throttled_share)) return found(*part, throttled(*part));
  if (const WindowPart* part = kept_back(window, shared_share)) return found(*part, shares_cores(*part));
  return std::nullopt;
}

}  // namespace dtrun::rendezvous
