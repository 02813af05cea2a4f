#include "agent/core/supervisor/connection.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "agent/core/supervisor/notices.h"
#include "proto/core/text.h"

namespace dtrun::agent {
namespace {

// The gaps between lines on the same wait: short at first, then so that a log of ten minutes has a dozen
// lines.
constexpr std::array<Millis, 4> kNoticeGaps{5000, 10000, 30000, 60000};
// `dtrun status --watch` asks no more often, so newer progress would not be seen.
constexpr Millis kProgressEvery = 1000;

}  // namespace

void Connection::on(const event::Opened& e) {
  own_.hosting = e.hosting;
  if (s.is_ending()) return;
  emit(action::SendJoin{.running = s.generation.assignment,
                        .age = generation() > 0 ? now_ - s.generation.started_at : 0,
                        .hosting = own_.hosting});
}

void Connection::on(const event::Connected& e) {
  if (!e.endpoint.empty()) own_.endpoint = e.endpoint;
  own_.connected = own_.ever_connected = true;
  own_.gone_at.reset();
  own_.tell_at.reset();
  own_.notices = 0;
}

void Connection::on(const event::Disconnected& e) {
  if (own_.connected) {
    own_.connected = false;
    own_.lost_at = now_;
    own_.silent = e.silent;
    own_.heartbeat_at.reset();
    own_.tell_at = now_ + kBlip;
  }
  if (!e.refused)
    own_.gone_at.reset();
  else if (!own_.gone_at)
    own_.gone_at = now_;
  own_.why_lost = e.why;
  if (!own_.notice_at) own_.notice_at = now_ + kNoticeGaps[0];
}

void Connection::on(const event::JoinAck& e) {
  own_.address = e.address;
  own_.heartbeat_interval = std::max<Millis>(1, e.heartbeat_interval);
  own_.heartbeat_at = now_ + own_.heartbeat_interval;
  own_.separate = e.separate;
  if (s.is_ending()) return;
  if (std::exchange(own_.told, false)) {
    print(e.resumed && !s.generation.parted
              ? "connected to the coordinator again; the workers were not interrupted"
              : "connected to the coordinator again");
  }
  if (e.resumed) own_.seated = true;
}

void Connection::on(const event::WaitStatus& e) {
  if (s.is_ending()) return;
  if (e.restart_in > 0) {
    if (own_.told_restart != e.reason) print(e.reason + " in " + whole_seconds_text(e.restart_in));
    own_.told_restart = e.reason;
    own_.waiting = e;
    own_.notice_at.reset();
    return;
  }
  const bool news = !own_.waiting || own_.waiting->joined != e.joined ||
                    own_.waiting->run_goes_on != e.run_goes_on ||
                    own_.waiting->short_of_workers != e.short_of_workers;
  own_.waiting = e;
  own_.waiting_at = now_;
  if (news) own_.notices = 0;
  const bool no_news_yet = s.settings.begin_together && generation() == 0;
  if (news && e.max_nodes > 1 && no_news_yet) own_.notice_at = next_notice();
  if (news && e.max_nodes > 1 && !no_news_yet) show_wait();
}

void Connection::on(const event::News& e) {
  if (s.is_ending()) return;
  own_.told_news = e.text;
  emit(action::TellNews{.news = e, .text = news_notice(s, e)});
}

void Connection::on(const event::Verdict& e) {
  if (!s.is_ending()) emit(action::TellVerdict{e});
}

void Connection::on(const event::Tick&) {
  if (due(own_.heartbeat_at)) beat();
  if (due(own_.tell_at)) tell_lost();
}

// Only one node sends progress early: that is enough.
void Connection::progressed(bool first) {
  if (!own_.heartbeat_at || s.is_ending()) return;
  const bool stale =
      s.generation.assignment.group_rank == 0 && now_ - own_.heartbeat_sent_at >= kProgressEvery;
  if (first || stale) beat();
}

void Connection::beat() {
  send_heartbeat();
  own_.heartbeat_sent_at = now_;
  own_.heartbeat_at = now_ + own_.heartbeat_interval;
}

void Connection::send_heartbeat() {
  emit(action::SendHeartbeat{
      .generation = generation(), .progress = s.generation.progress, .outlives = s.workers_warm_up()});
}

void Connection::tell_lost() {
  own_.tell_at.reset();
  if (own_.connected || s.is_ending() || s.job_succeeded()) return;
  own_.told = true;
  emit(action::Print{.text = lost_notice(s, now_), .of_node = s.generation.parted});
}

void Connection::assigned() {
  own_.waiting.reset();
  own_.notice_at.reset();
}

void Connection::begin(const Assignment& next) {
  if (generation() > 0) announce(next);
  own_.seated = true;
}

void Connection::announce(const Assignment& next) {
  if (s.succeeded()) {
    print(again_notice(s, next));
    own_.told_news = next.reason;
  }
  if (next.restart_count <= s.generation.assignment.restart_count) return print(regrouped_notice(s, next));
  if (own_.told_restart != next.reason && !s.succeeded()) print(next.reason);
}

Millis Connection::next_notice() {
  return now_ +
         kNoticeGaps[std::min<std::size_t>(static_cast<std::size_t>(own_.notices++), kNoticeGaps.size() - 1)];
}

void Connection::remind() {
  if (due(own_.notice_at)) show_wait(true);
}

void Connection::show_wait(bool again) {
  own_.notice_at.reset();
  if (s.is_ending() || s.awaited() > 0) return;
  if (!own_.connected) {
    if (own_.why_lost.empty()) return;
    own_.notice_at = next_notice();
    // The first time too the reason is new.
    emit(action::Print{.text = unanswered_notice(s, now_), .again = again && own_.notices > 1});
  } else if (own_.waiting && own_.waiting->restart_in <= 0) {  // a back-off has been told
    own_.notice_at = next_notice();
    emit(action::Print{.text = again ? standing_notice(s, now_) : waiting_notice(s, now_), .again = again});
  }
}

}  // namespace dtrun::agent
