#include "cmd/cluster/port_row.h"

namespace dtrun::cmd {

std::vector<int> port_row(std::uint64_t number) {
  const int row = static_cast<int>(number % kPortRows);
  std::vector<int> ports;
  for (int i = 0; i < kPortsInRow; ++i) ports.push_back(kFirstPort + row * kPortsInRow + i);
  return ports;
}

// FNV-1a: the same on every host, which std::hash need not be.
std::vector<int> port_row(std::string_view name) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return port_row(hash ^ hash >> 32);
}

}  // namespace dtrun::cmd
