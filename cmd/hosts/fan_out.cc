#include "cmd/hosts/fan_out.h"

#include <algorithm>
#include <cstdint>

namespace dtrun::cmd {
namespace {

// SplitMix64's last step: neighbours get unlike numbers.
std::uint64_t scrambled(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Millis login_back_off(int host, int attempt) {
  constexpr int kDoublings = 5;  // 300 ms << 5 is more than the most
  const Millis full =
      std::min(kFirstLoginBackOff << std::clamp(attempt - 1, 0, kDoublings), kMostLoginBackOff);
  const auto key = static_cast<std::uint64_t>(host) << 32 | static_cast<std::uint32_t>(attempt);
  return full - static_cast<Millis>(scrambled(key + 1) % static_cast<std::uint64_t>(full / 2 + 1));
}

FanOut::FanOut(int hosts, int window) : logins_(static_cast<std::size_t>(hosts)), window_(window) {}

void FanOut::dial_one(int host, Millis now) {
  auto& login = logins_[static_cast<std::size_t>(host)];
  if (login.attempts++ == 0) login.first_at = now;
  login.round = round_;
  ++under_way_;
}

std::vector<int> FanOut::dial(Millis now) {
  std::vector<int> hosts;
  const auto has_room = [&] { return under_way_ < window_; };
  // Those that wait for another try come first: their patience runs.
  while (has_room() && !backing_off_.empty() && backing_off_.begin()->first <= now) {
    hosts.push_back(backing_off_.begin()->second);
    backing_off_.erase(backing_off_.begin());
    dial_one(hosts.back(), now);
  }
  while (has_room() && next_new_ < static_cast<int>(logins_.size())) {
    hosts.push_back(next_new_++);
    dial_one(hosts.back(), now);
  }
  return hosts;
}

void FanOut::logged_in(int) {
  --under_way_;
  if (window_ < kMostLoginWindow) ++window_;
}

bool FanOut::refused(int host, Millis now) {
  --under_way_;
  const auto& login = logins_[static_cast<std::size_t>(host)];
  if (login.round == round_) {
    window_ = std::min(window_, std::max(window_ / 2, kLeastLoginWindow));
    ++round_;
  }
  if (now - login.first_at >= kLoginPatience) return false;
  backing_off_.emplace(now + login_back_off(host, login.attempts), host);
  return true;
}

void FanOut::failed(int) { --under_way_; }

std::optional<Millis> FanOut::deadline() const {
  if (under_way_ >= window_ || backing_off_.empty()) return std::nullopt;
  return backing_off_.begin()->first;
}

bool FanOut::over() const {
  return under_way_ == 0 && backing_off_.empty() && next_new_ == static_cast<int>(logins_.size());
}

}  // namespace dtrun::cmd
