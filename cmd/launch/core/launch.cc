// The order of events of a launch. Each event calls one on(); settle() then takes the step that the state as
// a whole allows.
//
//   Begin, Tick       dial_who_is_due   calls as many hosts at a time as the fan-out lets
//   Answered                            the host gets the job, or is called again with another build's files
//   Planned, Refused                    the host can take part, or has failed
//   all planned       choose_first      the others look for the first host
//   Seen              take_place        the host knows its own address
//   all placed        try_ways          each host tries to reach those behind it
//   Seen                                its gaps are noted down
//   all ready         begin             gaps are judged, failures told, and the first host begins
//   Begun                               the others begin
//   Ended, Gone       finish_when_all_ended, or of a range the host is called again:
//   Answered, Planned the host begins at once, as it was told to the first time
//   Over              nobody is called any more
//
// Failures (fail, stop_where_too_few_are_left), signals (Told) and silence (Quiet, Tick) may come at any
// time.
#include "cmd/launch/core/launch.h"

#include <algorithm>
#include <utility>

#include "cmd/launch/core/connectivity.h"
#include "cmd/launch/core/launch_step.h"
#include "proto/core/exit_codes.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

constexpr int kStopSignal = 15;  // SIGTERM
constexpr int kLastExitCode = 255;
constexpr const char* kAllPorts = ": nodes must reach each other on all ports";

// A host's exit code becomes ours, which has eight bits: 256 would be a success.
int exit_code_of(int told, int least) {
  return told >= least && told <= kLastExitCode ? told : kExitSoftware;
}

// The agent's work after its answer.
const char* doing_in(HostPhase phase) {
  switch (phase) {
    case HostPhase::kPlanning:
      return "it looked at its files";
    case HostPhase::kLooking:
    case HostPhase::kTrying:
      return "it looked for the other hosts";
    default:
      return "it waited for the other hosts";
  }
}

class Launch : LaunchStep {
 public:
  using LaunchStep::LaunchStep;

  std::vector<LaunchAction> take(const LaunchEvent& event) {
    if (s_.finished) return {};
    std::visit([this](const auto& e) { on(e); }, event);
    if (!s_.finished) dial_who_is_due();
    if (!s_.finished) settle();
    return std::move(actions_);
  }

 private:
  void on(const launch_event::Begin&) {}  // the first hosts are due
  void on(const launch_event::Answered& e);
  void on(const launch_event::Planned& e);
  void on(const launch_event::Refused& e);
  void on(const launch_event::Seen& e);
  void on(const launch_event::Heard& e) { host(e.host).heard = e.line; }
  void on(const launch_event::Gone& e);
  void on(const launch_event::Quiet& e);
  void on(const launch_event::Begun& e);
  void on(const launch_event::Over& e);
  void on(const launch_event::Ended& e);
  void on(const launch_event::Told& e);
  void on(const launch_event::Tick&);
  std::string why_late(int index, Millis patience);
  void stop_where_too_few_are_left();
  void stop_all(int signal);
  void end(int host, int exit_code);
  bool calls_again() const;
  void call_again(int host);
  void call_nobody();
  void lose(int host);
  void miss(int host, int exit_code, const std::string& why);

  void dial_who_is_due();
  void dial(int host, bool with_files);
  void settle();
  void choose_first();
  void try_ways();
  void take_place(int host, const ProbeResult& result);
  void judge_gaps();
  bool enough(const std::vector<int>& hosts) const;
  const char* fate_after_loss() const;
  void begin();
  void tell_begin(int host);
  void give_up();
  void tell_failures();
  void finish_when_all_ended();

  void fail(int index, int exit_code, const std::string& why);
};

void Launch::fail(int index, int exit_code, const std::string& why) {
  if (host(index).again) return miss(index, exit_code, why);
  if (host(index).phase == HostPhase::kDialling || host(index).phase == HostPhase::kWaiting)
    s_.fan_out.failed(index);
  enter(index, HostPhase::kFailed);
  host(index).exit_code = exit_code;
  host(index).why = why;
  emit(launch_action::HangUp{index});
  if (!s_.begun) return;
  say(name(index) + ": " + why, true);
  stop_where_too_few_are_left();
}

// While a range runs without it, a host may be back: its cable was cut, or it was started anew.
bool Launch::calls_again() const {
  const LaunchSettings& job = s_.settings;
  return is(Purpose::kRun) && job.min_nodes < job.max_nodes && s_.signals == 0 && !s_.over && !s_.too_few;
}

// Its agent is lost.
void Launch::lose(int index) {
  HostState& state = host(index);
  state.brief_lives = now_ - state.since < kBriefLife ? state.brief_lives + 1 : 0;
  enter(index, HostPhase::kLost);
}

// Another host may have its rank by then.
void Launch::call_again(int index) {
  constexpr int kMostDoublings = 5;
  if (!calls_again()) return;
  host(index).again = true;
  host(index).again_at = now_ + (kCallAgain << std::min(host(index).brief_lives, kMostDoublings));
  host(index).node_rank.reset();
}

void Launch::call_nobody() {
  for (int index = 0; index < count(); ++index) {
    HostState& state = host(index);
    state.again_at.reset();
    if (!state.again || state.phase >= HostPhase::kRunning) continue;
    enter(index, HostPhase::kLost);
    emit(launch_action::HangUp{index});
  }
}

// A host that is called again cannot be reached, or cannot take part: nothing that another call would mend.
void Launch::miss(int index, int exit_code, const std::string& why) {
  enter(index, HostPhase::kLost);
  emit(launch_action::HangUp{index});
  if (exit_code == kExitUnavailable) return call_again(index);
  say(name(index) + ": " + why + "; it is not called again", true);
}

void Launch::dial(int index, bool with_files) {
  host(index).with_files = with_files;
  host(index).heard.clear();
  enter(index, HostPhase::kDialling);
  emit(launch_action::Dial{.host = index, .with_files = with_files});
}

void Launch::dial_who_is_due() {
  for (const int index : s_.fan_out.dial(now_)) dial(index, host(index).with_files);
  for (const int index : in_phase({HostPhase::kLost})) {
    if (!host(index).again_at || now_ < *host(index).again_at) continue;
    host(index).again_at.reset();
    dial(index, host(index).with_files);
  }
}

void Launch::on(const launch_event::Answered& e) {
  if (host(e.host).phase != HostPhase::kDialling) return;
  if (e.same_build) {
    if (!host(e.host).again) s_.fan_out.logged_in(e.host);
    host(e.host).quiet_is_told = false;
    enter(e.host, s_.settings.purpose >= Purpose::kAttach ? HostPhase::kRunning : HostPhase::kPlanning);
    return emit(launch_action::SendJob{e.host});
  }
  if (host(e.host).with_files)
    return fail(e.host, kExitSoftware, "another dtrun answers than the one that was brought there");
  emit(launch_action::HangUp{e.host});
  dial(e.host, true);
}

void Launch::on(const launch_event::Planned& e) {
  if (host(e.host).phase != HostPhase::kPlanning) return;
  if (host(e.host).again) return tell_begin(e.host);
  host(e.host).addresses = e.addresses;
  host(e.host).port = e.port;
  enter(e.host, HostPhase::kPlanned);
}

void Launch::on(const launch_event::Refused& e) {
  if (host(e.host).phase < HostPhase::kEnded) fail(e.host, exit_code_of(e.exit_code, 1), e.why);
}

void Launch::on(const launch_event::Seen& e) {
  HostState& state = host(e.host);
  const std::size_t asked = state.phase == HostPhase::kTrying ? state.tried.size() : 1;
  if (state.phase != HostPhase::kLooking && state.phase != HostPhase::kTrying) return;
  if (e.results.size() != asked) return fail(e.host, kExitSoftware, "its agent answers what was not asked");
  if (state.phase == HostPhase::kLooking) return take_place(e.host, e.results.front());
  for (std::size_t i = 0; i < asked; ++i)
    if (e.results[i].address.empty())
      state.gaps.push_back({.to = state.tried[i], .why = join(e.results[i].why_not)});
  enter(e.host, HostPhase::kReady);
}

void Launch::take_place(int index, const ProbeResult& result) {
  if (result.address.empty())
    return fail(index, kExitUnavailable,
                "reaches no address of " + name(*s_.first) + " on port " +
                    std::to_string(host(*s_.first).port) + " (" + join(result.why_not) + ")" + kAllPorts);
  host(index).address = result.address;
  host(index).from = result.from;
  enter(index, HostPhase::kPlaced);
}

const char* Launch::fate_after_loss() const {
  if (calls_again())
    return "its agent ends its part of the job; once it answers another one is started there";
  if (is(Purpose::kRun)) return "its agent ends its part of the job";
  return is(Purpose::kDetach) ? "whether its agent has begun is not known" : "the job there goes on";
}

void Launch::on(const launch_event::Gone& e) {
  HostState& state = host(e.host);
  switch (state.phase) {
    case HostPhase::kDialling:
      if (e.failure.kind == SshFailure::kRefusedLogin && !state.again && s_.fan_out.refused(e.host, now_))
        return enter(e.host, HostPhase::kWaiting);
      if (e.failure.kind == SshFailure::kNoDtrun && !state.with_files) return dial(e.host, true);
      break;
    case HostPhase::kRunning:
      lose(e.host);
      say(name(e.host) + ": the line to it is gone (" + e.failure.what + "); " + fate_after_loss(), true);
      stop_where_too_few_are_left();
      return call_again(e.host);
    case HostPhase::kPlanning:
    case HostPhase::kPlanned:
    case HostPhase::kLooking:
    case HostPhase::kPlaced:
    case HostPhase::kTrying:
    case HostPhase::kReady:
      return fail(
          e.host, kExitUnavailable,
          std::string("the line to it broke while ") + doing_in(state.phase) + " (" + e.failure.what + ")");
    default:
      return;
  }
  fail(e.host, e.failure.kind == SshFailure::kNoPlace ? kExitCannotCreate : kExitUnavailable,
       e.failure.what + (e.failure.remedy.empty() ? "" : "; " + e.failure.remedy));
}

// A host to which dtrun is being brought does not answer until dtrun is there.
void Launch::on(const launch_event::Quiet& e) {
  std::vector<HostMessage> lines;
  for (const int index : e.hosts) {
    HostState& state = host(index);
    const bool dialled = state.phase == HostPhase::kDialling && !state.with_files &&
                         now_ - state.since >= s_.settings.connect_time() + kQuiet / 4;
    const bool asked = state.phase >= HostPhase::kPlanning && state.phase <= HostPhase::kReady;
    if ((!dialled && !asked) || state.again || std::exchange(state.quiet_is_told, true)) continue;
    lines.push_back({index, dialled ? (state.heard.empty() ? "no answer yet, is it up? It has "
                                                           : "its shell has started no agent yet. It has ") +
                                          seconds_text(s_.settings.answer_time)
                                    : "no answer any more: the host or the way to it may be lost"});
  }
  tell(lines, false);
}

// A lost host that is not called again does not come back, so the others should not wait for it. If an agent
// has ended, the job ends anyway.
void Launch::stop_where_too_few_are_left() {
  const std::vector<int> left = in_phase({HostPhase::kRunning, HostPhase::kReady});
  const bool ends = !in_phase({HostPhase::kEnded}).empty() || s_.signals > 0 || s_.too_few;
  const bool first_is_missing =
      !in_phase({HostPhase::kReady}).empty() && host(*s_.first).phase != HostPhase::kRunning;
  if (!is(Purpose::kRun) && !(is(Purpose::kDetach) && first_is_missing)) return;
  if (ends || left.empty()) return;
  const bool enough_are_left = static_cast<int>(left.size()) >= s_.settings.min_nodes || calls_again();
  if (enough_are_left && !first_is_missing) return;
  s_.too_few = true;
  say(std::to_string(left.size()) + (left.size() == 1 ? " host is" : " hosts are") + " left, the job needs " +
          (first_is_missing ? name(*s_.first) : std::to_string(s_.settings.min_nodes)) + ": stopping it",
      true);
  stop_all(kStopSignal);
}

// Hosts that have not begun are not started any more.
void Launch::stop_all(int signal) {
  call_nobody();
  for (const int index : in_phase({HostPhase::kRunning}))
    emit(launch_action::PassSignal{.host = index, .signal = signal});
  for (const int index : in_phase({HostPhase::kReady})) {
    enter(index, HostPhase::kFailed);
    emit(launch_action::HangUp{index});
  }
}

void Launch::on(const launch_event::Begun& e) {
  if (host(e.host).phase != HostPhase::kRunning) return;
  if (is(Purpose::kDetach)) end(e.host, kExitOk);
  if (e.host != s_.first) return;
  for (const int index : in_phase({HostPhase::kReady})) tell_begin(index);
}

void Launch::on(const launch_event::Over& e) {
  if (host(e.host).phase != HostPhase::kRunning) return;
  host(e.host).over = true;
  if (std::exchange(s_.over, true)) return;
  s_.late_at = now_ + kHeardOfEnd;
  call_nobody();
}

// An agent that gave up the coordinator does not know how the others fare.
void Launch::on(const launch_event::Ended& e) {
  if (host(e.host).phase != HostPhase::kRunning) return;
  const int exit_code = exit_code_of(e.exit_code, kExitOk);
  const bool others_run = in_phase({HostPhase::kRunning}).size() > 1;
  if (exit_code != kExitUnavailable || !calls_again() || !others_run) return end(e.host, exit_code);
  lose(e.host);
  emit(launch_action::HangUp{e.host});
  say(name(e.host) + ": its agent ended with " + std::to_string(exit_code) + ", and another one is started");
  call_again(e.host);
}

void Launch::end(int index, int exit_code) {
  enter(index, HostPhase::kEnded);
  host(index).exit_code = exit_code;
  emit(launch_action::HangUp{index});
}

// The third signal ends the launcher without a wait for the hosts.
void Launch::on(const launch_event::Told& e) {
  if (s_.signals++ == 0) s_.signal = e.signal;
  const bool only_looks = is(Purpose::kAttach) || is(Purpose::kLogs);
  if (only_looks) say("the job goes on; dtrun stop " + s_.settings.run_id + " ends it");
  if (only_looks || !s_.begun || s_.signals > 2) {
    hang_up_all();
    return finish(exit_code_of_signal(s_.signal));
  }
  stop_all(e.signal);
}

void Launch::on(const launch_event::Tick&) {
  if (s_.late_at && *s_.late_at <= now_) {
    s_.late_at.reset();
    for (const int index : in_phase({HostPhase::kRunning}))
      if (!host(index).over) emit(launch_action::PassSignal{.host = index, .signal = kStopSignal});
  }
  for (const int index :
       in_phase({HostPhase::kDialling, HostPhase::kPlanning, HostPhase::kLooking, HostPhase::kTrying})) {
    const bool brief = host(index).phase == HostPhase::kDialling && !host(index).with_files;
    const Millis patience = brief ? s_.settings.answer_time : kPatience;
    if (now_ - host(index).since >= patience) fail(index, kExitUnavailable, why_late(index, patience));
  }
}

// Interactive parts of a startup file wait for input that never comes, or start another shell.
std::string Launch::why_late(int index, Millis patience) {
  const HostState& state = host(index);
  const bool shell = state.phase == HostPhase::kDialling && !state.heard.empty();
  const std::string what = shell
                               ? "logged in, but its shell started no agent within " +
                                     seconds_text(patience) + " (it printed: " + state.heard +
                                     "); a startup file there may read its input, or start " + "another shell"
                               : "no answer within " + seconds_text(patience);
  const auto& logins = s_.settings.logins;
  const std::string login = logins.empty() ? "" : logins[static_cast<std::size_t>(index)];
  return what + (login.empty() ? "" : "; try the same by hand: " + login);
}

void Launch::settle() {
  if (s_.begun) return finish_when_all_ended();
  if (!s_.first && all_in({HostPhase::kPlanned, HostPhase::kFailed})) choose_first();
  if (!s_.finished && s_.first && all_in({HostPhase::kPlaced, HostPhase::kFailed})) try_ways();
  if (!s_.finished && s_.first && all_in({HostPhase::kReady, HostPhase::kFailed})) begin();
}

void Launch::choose_first() {
  const std::vector<int> planned = in_phase({HostPhase::kPlanned});
  if (planned.empty() || !enough(planned)) return give_up();
  s_.first = planned.front();
  enter(*s_.first, HostPhase::kPlaced);
  for (const int index : planned) {
    if (index == *s_.first) continue;
    enter(index, HostPhase::kLooking);
    emit(launch_action::AskToLook{.host = index, .at = {{*s_.first, host(*s_.first).addresses}}});
  }
}

// Each host tries those behind it in a ring, which are all others if there are not too many.
void Launch::try_ways() {
  const std::vector<int> placed = in_phase({HostPhase::kPlaced});
  if (host(*s_.first).phase == HostPhase::kFailed || !enough(placed)) return give_up();
  host(*s_.first).address = host(*s_.first).from = meeting_address(s_);
  for (std::size_t i = 0; i < placed.size(); ++i) {
    launch_action::AskToLook ask{.host = placed[i], .at = {}};
    for (std::size_t k = 1; k < placed.size() && k <= kMostTried; ++k) {
      const int other = placed[(i + k) % placed.size()];
      host(placed[i]).tried.push_back(other);
      ask.at.push_back({other, {host(other).from}});
    }
    enter(placed[i], ask.at.empty() ? HostPhase::kReady : HostPhase::kTrying);
    if (!ask.at.empty()) emit(std::move(ask));
  }
}

// A check goes on to the end, even if hosts fail.
bool Launch::enough(const std::vector<int>& hosts) const {
  return is(Purpose::kCheck) || static_cast<int>(hosts.size()) >= s_.settings.min_nodes;
}

// If two hosts do not reach each other, one of them cannot take part.
void Launch::judge_gaps() {
  const bool bad = s_.settings.all_meet;
  std::vector<HostMessage> lines;
  for (const int index : in_phase({HostPhase::kReady}))
    if (const std::string gaps = gaps_text(s_, index); !gaps.empty())
      lines.push_back({index, gaps + (bad ? kAllPorts : "; a program that connects them would hang")});
  tell(lines, bad);
  if (!bad) return;
  for (auto odd = most_cut_off(s_); odd; odd = most_cut_off(s_))
    fail(*odd, kExitUnavailable, "cannot take part, as it and others do not reach each other");
}

void Launch::begin() {
  if (host(*s_.first).phase == HostPhase::kFailed) return give_up();
  judge_gaps();
  const std::vector<int> ready = in_phase({HostPhase::kReady});
  if (!enough(ready)) return give_up();
  tell_failures();
  if (is(Purpose::kCheck)) {
    emit(launch_action::TellCheck{.ready = static_cast<int>(ready.size())});
    hang_up_all();
    const std::vector<int> failed = in_phase({HostPhase::kFailed});
    return finish(failed.empty() ? kExitOk : host(failed.front()).exit_code);
  }
  s_.begun = true;
  if (is(Purpose::kDetach)) emit(launch_action::Remember{});
  // If there are more hosts than places, any of them may have to take any place.
  const bool places_are_fixed = static_cast<int>(ready.size()) <= s_.settings.max_nodes;
  for (std::size_t rank = 0; places_are_fixed && rank < ready.size(); ++rank)
    host(ready[rank]).node_rank = static_cast<int>(rank);
  s_.may_lead = hosts_that_may_lead(s_);
  tell_begin(*s_.first);
}

void Launch::tell_begin(int index) {
  enter(index, HostPhase::kRunning);
  launch_action::TellBegin tell{.host = index,
                                .first = *s_.first,
                                .address = host(index).address,
                                .node_rank = host(index).node_rank,
                                .may_lead = {}};
  for (const int one : s_.may_lead)
    tell.may_lead.push_back({one, {one == *s_.first ? host(index).address : host(one).from}});
  emit(std::move(tell));
}

void Launch::tell_failures() {
  std::vector<HostMessage> lines;
  for (const int index : in_phase({HostPhase::kFailed})) lines.push_back({index, host(index).why});
  tell(lines, true);
}

void Launch::give_up() {
  tell_failures();
  const std::vector<int> failed = in_phase({HostPhase::kFailed});
  const int usable = count() - static_cast<int>(failed.size());
  if (count() > 1)
    say(std::to_string(usable) + " of " + std::to_string(count()) + " hosts can run the job" +
            (s_.settings.min_nodes < count() ? ", it needs " + std::to_string(s_.settings.min_nodes) : "") +
            "; nothing was started",
        true);
  hang_up_all();
  finish(host(failed.front()).exit_code);
}

// The exit code of the coordinator's host counts: it ends last; but rather that of a host that knows the
// run's end. After a signal its code may only say that other hosts left, since they received the signal
// before it did; then the signal's code counts. A host that is called again holds nobody up.
void Launch::finish_when_all_ended() {
  const auto is_done = [](const HostState& one) {
    return one.phase >= HostPhase::kEnded || (one.again && one.phase < HostPhase::kRunning);
  };
  if (!std::ranges::all_of(s_.hosts, is_done)) return;
  const std::vector<int> ended = in_phase({HostPhase::kEnded});
  if (ended.empty() || s_.too_few) return finish(kExitUnavailable);
  if (is(Purpose::kDetach)) emit(launch_action::TellDetached{});
  if (!is(Purpose::kRun) && !is(Purpose::kAttach)) {
    const bool all_well =
        is(Purpose::kDetach) ? in_phase({HostPhase::kLost}).empty() : all_in({HostPhase::kEnded});
    return finish(all_well ? kExitOk : kExitUnavailable);
  }
  const auto worth = [this](int index) { return 2 * host(index).over + (index == *s_.first); };
  const int exit_code = host(*std::ranges::max_element(ended, {}, worth)).exit_code;
  finish(exit_code != kExitOk && s_.signals > 0 ? exit_code_of_signal(s_.signal) : exit_code);
}

}  // namespace

std::vector<int> hosts_in(const LaunchState& state, std::initializer_list<HostPhase> phases) {
  std::vector<int> found;
  for (int i = 0; i < static_cast<int>(state.hosts.size()); ++i)
    if (std::ranges::count(phases, state.hosts[static_cast<std::size_t>(i)].phase) > 0) found.push_back(i);
  return found;
}

LaunchState initial_launch(const LaunchSettings& settings) {
  const std::size_t hosts = settings.hosts.size();
  const bool comes_back = settings.purpose >= Purpose::kAttach;
  return {.settings = settings,
          .hosts = std::vector<HostState>(hosts),
          .fan_out = FanOut(static_cast<int>(hosts)),
          .first = comes_back ? std::optional(0) : std::nullopt,
          .may_lead = {},
          .begun = comes_back};
}

std::vector<LaunchAction> decide(LaunchState& state, const LaunchEvent& event, Millis now) {
  return Launch(state, now).take(event);
}

std::optional<Millis> next_deadline(const LaunchState& state) {
  if (state.finished) return std::nullopt;
  std::optional<Millis> due = state.fan_out.deadline();
  const auto consider = [&due](const std::optional<Millis>& at) {
    if (at) due = due ? std::min(*due, *at) : at;
  };
  consider(state.late_at);
  for (const HostState& host : state.hosts) {
    const bool asked = host.phase == HostPhase::kDialling || host.phase == HostPhase::kPlanning ||
                       host.phase == HostPhase::kLooking || host.phase == HostPhase::kTrying;
    consider(host.again_at);
    if (!asked) continue;
    const bool brief = host.phase == HostPhase::kDialling && !host.with_files;
    consider(host.since + (brief ? state.settings.answer_time : kPatience));
  }
  return due;
}

}  // namespace dtrun::cmd
