#include "rendezvous/core/run/turn.h"

namespace dtrun::rendezvous {

void Turn::say(ConnectionId to, decltype(Action::body) body) {
  actions_.push_back({.to = to, .generation = s_.generation, .body = std::move(body)});
}

// Members that don't know it yet are told in this step.
void Turn::note(News::Kind kind, const std::string& host, const std::string& text) {
  const News news{.kind = kind, .host = host, .text = text, .age = 0};
  if (s_.news.note(news, now_)) {
    news_.push_back(news);
    s_.history.tell("news", s_.news.all(now_).back().text, s_.generation, now_);
  }
  // An agent that is started again at once joins before its predecessor is given up.
  const auto is_here = [&](const auto& member) {
    return member.second.join.host == host && !member.second.seat;
  };
  if (in_generation() && somebody_waits() && std::any_of(s_.members.begin(), s_.members.end(), is_here))
    s_.news.came(host);
}

void Turn::tell_news() {
  if (s_.phase == Phase::kOver) return;
  const auto is_of = [](const News& news, const Member& member) {
    return news.kind == News::kBack && news.host == member.join.host;
  };
  for (const News& news : news_)
    for (const auto& [id, member] : s_.members)
      if (!is_of(news, member)) say(id, news);
}

RankReports Turn::rank_reports() const {
  RankReports reports;
  for (int seat = 0; seat < s_.current.seats.size(); ++seat) {
    const Node& node = s_.current.membership->nodes[static_cast<std::size_t>(seat)];
    const auto& connection = s_.current.seats[seat].member;
    const Member* member = connection ? s_.members.find(*connection) : nullptr;
    const bool silent = member == nullptr || now_ - member->last_seen > NoProgress::kPatience;
    for (int local = 0; local < node.nproc; ++local)
      reports[node.first_rank + local] = {.host = node.host, .out_of_touch = silent, .quiet = {}};
    if (member == nullptr) continue;
    for (const WorkerReport& worker : member->report.workers)
      if (const auto known = reports.find(worker.rank); known != reports.end())
        known->second.quiet = worker.quiet;
  }
  return reports;
}

void Turn::count_changed() {
  const Millis next = s_.announced ? *s_.announced + announce_gap(s_.members.size()) : now_;
  s_.deadlines.announce = std::max(now_, next);
}

void Turn::begin(Generation generation) {
  for (auto& [id, member] : s_.members) member.seat.reset();
  s_.spent = goodput_of(s_, now_);
  s_.current = std::move(generation);
  s_.stragglers = {};
  s_.phase = Phase::kRunning;
  s_.deadlines = {.sweep = s_.deadlines.sweep};
}

// Generation numbers go on from the old run: keys that its workers set are still in the store under its
// numbers.
void Turn::begin_anew() {
  State anew;
  anew.outlives_host = s_.outlives_host;
  anew.newest_seen = std::max(s_.generation, s_.newest_seen);
  s_ = std::move(anew);
}

}  // namespace dtrun::rendezvous
