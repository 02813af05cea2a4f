// From a plan's calls to steps: forward, the classifier, backward with the segments that are recomputed.
#include <algorithm>
#include <utility>

#include "worker/schedule/op_lowering.h"
#include "worker/schedule/places.h"
#include "worker/schedule/schedule.h"
#include "worker/schedule/step_list.h"

namespace dtrun::worker::schedule {
namespace {

class Lowering {
 public:
  Lowering(const Program& program, const Plan& plan, std::size_t samples, const Abilities& abilities)
      : program_(program),
        plan_(plan),
        places_(program, plan, samples, abilities.bf16),
        steps_(abilities),
        ops_(program, plan, samples, abilities, steps_) {}

  Schedule run() {
    ops_.run(plan_.forward, plan_.value, plan_.aux, false);
    steps_.finish(schedule_.forward);
    classify(false);
    steps_.finish(schedule_.evaluate);
    schedule_.arena = plan_.arena * places_.element();
    if (plan_.forward_only) return std::move(schedule_);
    classify(true);
    ready(plan_.backward.front());
    const std::vector<Call>& calls = plan_.backward;
    for (std::size_t i = 1; i < calls.size();) {
      if (calls[i].backward) {
        const bool fused = i + 1 < calls.size() && ops_.run_pair(calls[i], calls[i + 1]);
        if (!fused) ops_.run(calls[i]);
        ready(calls[i]);
        if (fused) ready(calls[i + 1]);
        i += fused ? 2 : 1;
      } else {
        std::size_t end = i;
        while (end < calls.size() && !calls[end].backward) ++end;
        ops_.run({calls.begin() + i, calls.begin() + end}, plan_.value_again, plan_.aux_again, true);
        i = end;
      }
    }
    steps_.add(Join{}, {}, {});
    steps_.finish(schedule_.backward);
    return std::move(schedule_);
  }

 private:
  // The linear layer that makes the logits, and the loss.
  void classify(bool training) {
    steps_.begin(static_cast<int>(program_.nodes.size()) - 1, true);
    const std::size_t all = places_.rows(program_.nodes[plan_.classifier].in[0]);
    for (std::size_t first = 0; first < all; first += plan_.logit_rows)
      classify(first, std::min(plan_.logit_rows, all - first), training);
  }
  void classify(std::size_t first, std::size_t m, bool training) {
    const Node& at = program_.nodes[plan_.classifier];
    const Call& call = plan_.backward.front();
    const auto& made = std::get<Linear>(at.op);
    const Linear l = places_.with_padded_classes(made);
    const std::size_t stride = plan_.logit_width, before = first * static_cast<std::size_t>(l.in_features);
    const Place logits = places_.at(plan_.logits), x = places_.moved(places_.kept(at.in[0]), before);
    const Place targets{Space::kTargets, first * sizeof(std::int32_t)};
    ops_.multiply(l, x, places_.forward_product(l, m, stride), logits, {});
    std::vector<ByteRange> writes{Places::floats({Space::kStatistics, 0}, kStatisticsFloats)};
    if (training) writes.push_back(places_.values(logits, m * stride));
    steps_.add(CrossEntropy{.rows = m,
                            .classes = static_cast<std::size_t>(made.out_features),
                            .stride = stride,
                            .logits = logits,
                            .targets = targets,
                            .gradient = training},
               {places_.values(logits, m * stride), {targets, m * sizeof(std::int32_t)}}, std::move(writes));
    if (!training) return;
    const bool adds = first > 0 || call.parameters == Into::kAdd;
    const Place d_x = call.in[0] == Into::kNone ? Place{} : places_.moved(places_.gradient(at.in[0]), before);
    ops_.linear_backward(l, m, x, logits, stride, adds, call.in[0], d_x, {});
  }

  // Adds notices of the buckets that are final with this call.
  void ready(const Call& call) {
    if (call.final_from == SIZE_MAX) return;
    const int begin = next_bucket_;
    while (next_bucket_ < static_cast<int>(program_.buckets.size()) &&
           program_.buckets[next_bucket_].begin >= call.final_from)
      ++next_bucket_;
    if (begin == next_bucket_) return;
    std::vector<ByteRange> reads;
    for (int bucket = begin; bucket < next_bucket_; ++bucket)
      reads.push_back(Places::floats({Space::kGradient, program_.buckets[bucket].begin * sizeof(float)},
                                     program_.buckets[bucket].size()));
    if (next_bucket_ == static_cast<int>(program_.buckets.size()))
      reads.push_back(Places::floats({Space::kStatistics, 0}, kStatisticsFloats));
    steps_.add(Ready{begin, next_bucket_}, std::move(reads), {}, steps_.ready_stream());
  }

  const Program& program_;
  const Plan& plan_;
  const Places places_;
  StepList steps_;
  OpLowering ops_;
  Schedule schedule_;
  int next_bucket_ = 0;
};

}  // namespace

Schedule make_schedule(const Program& program, const Plan& plan, int samples, const Abilities& abilities) {
  return Lowering(program, plan, static_cast<std::size_t>(samples), abilities).run();
}

std::map<MatmulShape, int> products_of(const Schedule& schedule) {
  std::map<MatmulShape, int> matmuls;
  for (const auto* const steps : {&schedule.forward, &schedule.evaluate, &schedule.backward})
    for (const Step& step : *steps)
      if (const auto* const matmul = std::get_if<Matmul>(&step.work)) ++matmuls[matmul->shape];
  return matmuls;
}

}  // namespace dtrun::worker::schedule
