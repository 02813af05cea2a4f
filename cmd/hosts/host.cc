#include "cmd/hosts/host.h"

#include <algorithm>

namespace dtrun::cmd {
namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }

}  // namespace

std::string Host::name() const {
  const auto at = destination.rfind('@');
  return at == std::string::npos ? destination : destination.substr(at + 1);
}

bool is_destination(std::string_view destination) {
  if (destination.size() > kLongestDestination || std::ranges::any_of(destination, is_control)) return false;
  const auto at = destination.rfind('@');
  const auto name = at == std::string_view::npos ? destination : destination.substr(at + 1);
  if (name.empty() || name.front() == '-' || name.find_first_of("'`\"$\\;&<>|(){}, ") != name.npos)
    return false;
  if (at == std::string_view::npos) return true;
  const auto user = destination.substr(0, at);
  return !user.empty() && user.front() != '-' && user.back() != '\\' &&
         user.find_first_of("'`\";&<>|(){}$, ") == user.npos;
}

}  // namespace dtrun::cmd
