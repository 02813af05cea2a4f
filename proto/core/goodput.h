// Goodput: what the wall time of a job was spent on. Kinds and names as in Google's ml-goodput-measurement,
// as far as it has them.
#pragma once

#include <cstdint>
#include <string>

namespace dtrun {

// Seconds; the kinds add up to the time since the job's first node joined.
struct Goodput {
  double training = 0;    // steps done for the first time; of a program that reports none, its workers' time
  double redone = 0;      // steps that an earlier generation had done
  double loading = 0;     // workers start, read data and state
  double evaluating = 0;  // with the wait for the others
  double saving = 0;      // as far as training waits for it
  double rendezvous = 0;  // enough nodes are there, and form a generation
  double waiting = 0;     // for nodes
  double down = 0;        // from a failure until the next generation may begin: workers stop, back-off
  std::int64_t steps_redone = 0;
  std::int64_t best_step = 0;  // that any generation is known to have got to

  double total() const;
  // The share of the time that trained the model, 0..1; 0 before any time has passed.
  double ratio() const { return total() > 0 ? training / total() : 0; }

  bool operator==(const Goodput&) const = default;
};

struct GoodputKind {
  const char* name;  // for people and programs
  double Goodput::*seconds;
};
inline constexpr GoodputKind kGoodputKinds[] = {
    {"training", &Goodput::training},     {"redone", &Goodput::redone}, {"loading", &Goodput::loading},
    {"evaluating", &Goodput::evaluating}, {"saving", &Goodput::saving}, {"rendezvous", &Goodput::rendezvous},
    {"waiting", &Goodput::waiting},       {"down", &Goodput::down}};

inline double Goodput::total() const {
  double sum = 0;
  for (const GoodputKind& kind : kGoodputKinds) sum += this->*kind.seconds;
  return sum;
}

// "goodput 93.4 %: 12.0 s training, 0.4 s redone, 0.5 s down"; kinds below a twentieth of a second are left
// out.
std::string goodput_text(const Goodput& spent);

}  // namespace dtrun
