#include "tests/bench/attention_ways.h"

namespace dtrun::worker::cuda {

std::vector<AttentionWay> cudnn_ways(const AttentionShape&) {
  return {{.name = "cuDNN", .why_not = why_no_cudnn_ops()}};
}

}  // namespace dtrun::worker::cuda
