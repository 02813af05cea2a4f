// The agent and its coordinator: joining, heartbeats, waiting for a generation, and a connection that is
// lost.
#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "agent/core/supervisor/notices.h"
#include "agent/core/supervisor/step.h"
#include "agent/text/report.h"
#include "proto/core/exit_codes.h"
#include "proto/core/text.h"

namespace dtrun::agent {
namespace {

// The gaps between lines on the same wait: short at first, then so that a log of ten minutes has a dozen
// lines.
constexpr std::array<Millis, 4> kNoticeGaps{5000, 10000, 30000, 60000};
// `dtrun status --watch` asks no more often, so newer progress would not be seen.
constexpr Millis kProgressEvery = 1000;

}  // namespace

void Step::on(const event::Opened& e) {
  s.link.hosting = e.hosting;
  if (s.ending()) return;
  emit(action::SendJoin{.running = s.group.assignment,
                        .age = generation() > 0 ? now_ - s.group.started_at : 0,
                        .hosting = s.link.hosting});
}

void Step::on(const event::Connected& e) {
  if (!e.endpoint.empty()) s.settings.endpoint = e.endpoint;
  s.link.connected = s.link.ever_connected = true;
  s.link.tell_at.reset();
  s.notices = 0;
}

void Step::on(const event::Disconnected& e) {
  if (s.link.connected) {
    s.link.connected = false;
    s.link.lost_at = now_;
    s.link.heartbeat_at.reset();
    s.link.tell_at = now_ + kBlip;
  }
  s.link.why_lost = e.why;
  if (!s.notice_at) s.notice_at = now_ + kNoticeGaps[0];
  if (e.permanent && !s.ending() && !s.job_succeeded()) give_up(e.exit_code, e.why);
}

void Step::on(const event::JoinAck& e) {
  s.link.address = e.address;
  s.link.heartbeat_interval = std::max<Millis>(1, e.heartbeat_interval);
  s.link.heartbeat_at = now_ + s.link.heartbeat_interval;
  s.link.separate = e.separate;
  if (s.ending()) return;
  if (std::exchange(s.link.told, false)) {
    print(e.resumed ? "connected to the coordinator again; the workers were not interrupted"
                    : "connected to the coordinator again");
  }
  if (e.resumed) s.link.seated = true;
  if (e.resumed) return say_again();
  s.group.broken_at.reset();  // the others have gone on
  if (s.awaited() > 0) halt_workers("the connection to the coordinator was lost for too long");
  if (s.settings.in_memory_recovery) settle();
  s.link.seated = false;
  tell_ready();
}

void Step::on(const event::WaitStatus& e) {
  if (s.ending()) return;
  if (e.restart_in > 0) {
    if (s.told_restart != e.reason) print(e.reason + " in " + whole_seconds_text(e.restart_in));
    s.told_restart = e.reason;
    s.waiting = e;
    s.notice_at.reset();
    return;
  }
  const bool news = !s.waiting || s.waiting->joined != e.joined || s.waiting->spare != e.spare;
  s.waiting = e;
  s.waiting_at = now_;
  if (news) s.notices = 0;
  const bool no_news_yet = s.settings.begin_together && generation() == 0;
  if (news && e.max_nodes > 1 && no_news_yet) s.notice_at = next_notice();
  if (news && e.max_nodes > 1 && !no_news_yet) show_wait_status();
  if (e.spare && e.joined <= e.max_nodes) warm_up();
}

void Step::on(const event::News& e) {
  if (s.ending()) return;
  s.told_news = e.text;
  emit(action::TellNews{.news = e, .text = news_notice(s, e)});
}

// `dtrun status` shows the progress that heartbeats carry. Only one node sends it early: that is enough.
void Step::on(const event::Progressed& e) {
  if (!s.progresses()) return;
  const bool first = !s.group.progress || (s.group.progress->step == 0 && e.progress.step > 0);
  s.group.progress = e.progress;
  if (!s.link.heartbeat_at || s.ending()) return;
  const bool stale = s.group.assignment.group_rank == 0 && now_ - s.link.heartbeat_sent_at >= kProgressEvery;
  if (first || stale) beat();
}

void Step::beat() {
  send_heartbeat();
  s.link.heartbeat_sent_at = now_;
  s.link.heartbeat_at = now_ + s.link.heartbeat_interval;
}

void Step::send_heartbeat() {
  emit(action::SendHeartbeat{.generation = generation(), .progress = s.group.progress.value_or(Progress{})});
}

// Sends the coordinator again whatever it may have missed, or a new coordinator cannot know.
void Step::say_again() {
  if (s.group.reported) emit(action::SendFailure{.generation = generation(), .outcome = *s.group.reported});
  if (s.group.closed && generation() > 0) send_end();
  tell_ready();
  send_heartbeat();
}

void Step::tell_lost() {
  s.link.tell_at.reset();
  if (s.link.connected || s.ending() || s.job_succeeded()) return;
  s.link.told = true;
  print(lost_notice(s, now_));
}

Millis Step::next_notice() {
  return now_ +
         kNoticeGaps[std::min<std::size_t>(static_cast<std::size_t>(s.notices++), kNoticeGaps.size() - 1)];
}

// Says how long we still wait for a coordinator, or for enough other nodes.
void Step::show_wait_status(bool again) {
  s.notice_at.reset();
  if (s.ending() || s.awaited() > 0) return;
  if (!s.link.connected) {
    if (s.link.why_lost.empty()) return;
    s.notice_at = next_notice();
    // The first time too the reason is new.
    emit(action::Print{.text = unanswered_notice(s, now_), .again = again && s.notices > 1});
  } else if (s.waiting) {
    s.notice_at = next_notice();
    emit(action::Print{.text = again ? standing_notice(s, now_) : waiting_notice(s, now_), .again = again});
  }
}

void Step::check_link() {
  if (s.link.connected || s.ending() || now_ < s.link_deadline()) return;
  if (!s.link.ever_connected) {
    give_up(kExitUnavailable, never_met_notice(s));
  } else if (s.job_succeeded()) {
    tell_success(s.group.assignment.restart_count, s.group.assignment.membership_changes);
    give_up(kExitOk, s.link.why_lost + ", but all workers of the job ended with 0");
  } else {
    give_up(kExitUnavailable, gone_notice(s, now_));
  }
}

}  // namespace dtrun::agent
