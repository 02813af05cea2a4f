// Any bytes on the control socket, or on the line between a launcher and its agents, in pieces: frames or
// lines of JSON, and in each a message of any side. The first byte says how long the pieces are, so that the
// same payloads must come out however the stream is cut.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "agent/process/control_json.h"
#include "proto/control.pb.h"
#include "proto/core/framing.h"
#include "proto/launch.pb.h"

namespace {

// All payloads of the stream; whether it ended in an error goes to *broken.
std::vector<std::string> payloads_of(std::string_view bytes, std::size_t piece, bool* broken) {
  dtrun::FrameReader reader(dtrun::FrameReader::Takes::kLinesToo);
  std::vector<std::string> payloads;
  while (!bytes.empty()) {
    const std::size_t size = std::min(piece, bytes.size());
    reader.push(bytes.substr(0, size));
    bytes.remove_prefix(size);
    for (;;) {
      auto next = reader.next();
      *broken = !next.ok();
      if (*broken) return payloads;
      if (!next.value()) break;
      payloads.push_back(*next.value());
    }
  }
  return payloads;
}

template <typename Message>
void read_and_write(const std::string& payload) {
  Message message;
  if (!message.ParseFromString(payload)) return;
  Message again;
  if (!again.ParseFromString(message.SerializeAsString())) std::abort();
  if (again.SerializeAsString() != message.SerializeAsString()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  bool broken = false, broken_whole = false;
  const auto payloads = payloads_of(bytes, std::size_t{1} + data[0], &broken);
  if (payloads != payloads_of(bytes, bytes.size() + 1, &broken_whole) || broken != broken_whole) std::abort();
  for (const std::string& payload : payloads) {
    const auto of_json = dtrun::agent::from_json_line(payload);
    if (of_json.ok()) read_and_write<dtrun::control::FromWorker>(of_json.value().SerializeAsString());
    dtrun::control::FromAgent to_json;
    if (to_json.ParseFromString(payload) && dtrun::agent::to_json_line(to_json).back() != '\n') std::abort();
    read_and_write<dtrun::control::FromWorker>(payload);
    read_and_write<dtrun::control::FromAgent>(payload);
    read_and_write<dtrun::launch::FromHost>(payload);
    read_and_write<dtrun::launch::ToHost>(payload);
  }
  return 0;
}
