// The parts of oneDNN operations: primitives with their arguments bound once, memory on our own aligned
// buffers, and reorders that vanish where two operations agree on a format.
#pragma once

#include <dnnl.hpp>
#include <unordered_map>
#include <vector>

namespace dtrun::worker::onednn {

// A primitive with its arguments, ready to run any number of times.
struct PrimitiveCall {
  dnnl::primitive primitive;
  std::unordered_map<int, dnnl::memory> arguments;
  void run(dnnl::stream& stream) const { primitive.execute(stream, arguments); }
};

// `from` in the format `to`: itself if it has that format, else new memory, with a reorder added to `calls`.
inline dnnl::memory in_format(const dnnl::engine& engine, const dnnl::memory& from,
                              const dnnl::memory::desc& to, std::vector<PrimitiveCall>& calls) {
  if (from.get_desc() == to) return from;
  dnnl::memory converted(to, engine);
  calls.push_back({dnnl::reorder(from, converted), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, converted}}});
  return converted;
}

}  // namespace dtrun::worker::onednn
