// The lowering of one direction of a program: the tools that forward and backward share.
#pragma once

#include <utility>
#include <vector>

#include "worker/device/cuda/schedule/places.h"
#include "worker/device/cuda/schedule/schedule.h"
#include "worker/device/cuda/schedule/step_list.h"

namespace dtrun::worker::cuda {

class PassLowering : public Places {
 public:
  // All references must outlive this. Adds to `steps`.
  PassLowering(const Program& program, const Plan& plan, std::size_t samples, const Abilities& abilities,
               StepList& steps)
      : Places(program, plan, samples, abilities.bf16),
        program_(program),
        plan_(plan),
        samples_(samples),
        abilities_(abilities),
        steps_(steps) {}

 protected:
  using Kind = Elementwise::Kind;

  const Node& node(int n) const { return program_.nodes[n]; }
  void add(const Work& work, std::vector<ByteRange> reads, std::vector<ByteRange> writes, int stream = 0) {
    steps_.add(work, std::move(reads), std::move(writes), stream);
  }
  void elementwise(Elementwise work) {
    const std::size_t size = work.count;
    std::vector<ByteRange> reads{values(work.first, size), values(work.second, size)};
    if (work.add) reads.push_back(values(work.out, size));
    const ByteRange out = values(work.out, size);
    add(work, std::move(reads), {out});
  }

  const Program& program_;
  const Plan& plan_;
  const std::size_t samples_;
  const Abilities& abilities_;
  StepList& steps_;
};

}  // namespace dtrun::worker::cuda
