// What a run was, for people who look at it later than it happened: the curves of its training, its ranks
// beside each other, what its time went to, and its events. Only this coordinator's time is in it. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "proto/core/millis.h"
#include "proto/core/training.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/observe/life.h"
#include "rendezvous/core/observe/series.h"

namespace dtrun::rendezvous {

enum class Curve { kLoss, kLearningRate, kGradNorm, kSamplesPerSecond, kEvalLoss, kEvalAccuracy };
// As metrics.jsonl names them.
inline constexpr const char* kCurveNames[] = {"loss",      "learning_rate", "grad_norm", "samples_per_second",
                                              "eval_loss", "eval_accuracy"};
inline constexpr std::size_t kCurves = std::size(kCurveNames);

struct Occurrence {
  std::int64_t serial = 0;
  Millis at = 0;
  const char* kind = "";  // generation, failure, stopping, over, news, checkpoint, straggler
  std::string text = {};  // a sentence; may be empty
  std::int64_t generation = 0;
  std::int64_t step = 0;   // that training was known to be at
  int rank = -1;           // that a failure is of; -1: none
  std::string words = {};  // the last of that worker: its error, and lines of its standard error
};

// The ranks of a generation beside each other in one window of time.
struct HeatColumn {
  std::int64_t serial = 0;
  Millis at = 0;
  std::int64_t generation = 0;
  std::vector<int> ratios = {};  // StragglerWatch::ratios()
};

class History {
 public:
  static constexpr std::size_t kMostEvents = 256;
  static constexpr std::size_t kMostWords = 2000;  // bytes
  // Of many ranks there are fewer columns.
  static constexpr std::size_t kMostColumns = 128, kMostRatios = 128 * 1024;

  // What rank 0 said of its training in this generation. The same may come again.
  void add(const Progress& progress, std::int64_t generation, Millis now);
  void tell(const char* kind, const std::string& text, std::int64_t generation, Millis now);
  // A worker failed; null: a node was lost.
  void tell_failure(const std::string& text, const WorkerOutcome* first, std::int64_t generation, Millis now);
  void add_column(const std::vector<int>& ratios, std::int64_t generation, Millis now);
  // From `now` on the time goes to this; null: the run is over.
  void spend(const GoodputKind* kind, Millis now);

  const Series& of(Curve curve) const { return curves_[static_cast<std::size_t>(curve)]; }
  const std::deque<Occurrence>& events() const { return events_; }    // the newest last
  const std::deque<HeatColumn>& columns() const { return columns_; }  // likewise
  const Life& life() const { return life_; }
  // Points, columns, events and changes of the life are numbered together, in the order in which they came,
  // from 1 on.
  std::int64_t serial() const { return serial_; }
  Millis began() const { return began_; }  // the time of the first; 0: there is none
  // The life is there as a whole, or, if it has not changed, not at all.
  History newer_than(std::int64_t serial) const;
  std::size_t points() const;  // in all curves; columns and spans count as points of as many bytes

 private:
  std::int64_t next(Millis now);
  void add(Curve curve, std::int64_t step, double value, Millis now);
  Occurrence& note_event(const char* kind, const std::string& text, std::int64_t step, Millis now);

  std::array<Series, kCurves> curves_;
  std::deque<HeatColumn> columns_;
  Life life_;
  std::int64_t life_serial_ = 0;  // of its newest change
  std::deque<Occurrence> events_;
  std::int64_t serial_ = 0;
  Millis began_ = 0;
  // What was known last of a generation's training.
  std::int64_t generation_ = 0, step_ = 0, logged_ = 0, evaluated_ = -1, saved_ = 0;
};

}  // namespace dtrun::rendezvous
