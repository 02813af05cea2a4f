// An event first changes the phase of its own host; then settle() looks whether all hosts have got far enough
// for the next common step, or whether the launch is over.
#include "cmd/launch/core/launch.h"

#include <algorithm>
#include <map>
#include <utility>

#include "proto/core/exit_codes.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

using Phase = HostPhase;

constexpr int kStopSignal = 15;  // SIGTERM
constexpr int kLastExitCode = 255;
constexpr const char* kAllPorts = ": nodes must reach each other on all ports";

// A host's exit code becomes ours, which has eight bits: 256 would be a success.
int exit_code_of(int told, int least) {
  return told >= least && told <= kLastExitCode ? told : kExitSoftware;
}

// The agent's work after its answer.
const char* doing_in(Phase phase) {
  switch (phase) {
    case Phase::kPlanning:
      return "it looked at its files";
    case Phase::kLooking:
    case Phase::kTrying:
      return "it looked for the other hosts";
    default:
      return "it waited for the other hosts";
  }
}

// One event's step: changes the state and collects the actions.
class Launch {
 public:
  Launch(LaunchState& state, Millis now) : s_(state), now_(now) {}

  std::vector<LaunchAction> take(const LaunchEvent& event) {
    if (s_.finished) return {};
    std::visit([this](const auto& e) { on(e); }, event);
    if (!s_.finished) dial_who_is_due();
    if (!s_.finished) settle();
    return std::move(actions_);
  }

 private:
  using Line = std::pair<int, std::string>;  // a host, and a message on it

  void on(const launch_event::Begin&) {}  // the first hosts are due
  void on(const launch_event::Answered& e);
  void on(const launch_event::Planned& e);
  void on(const launch_event::Refused& e);
  void on(const launch_event::Seen& e);
  void on(const launch_event::Gone& e);
  void on(const launch_event::Quiet& e);
  void on(const launch_event::Begun& e);
  void on(const launch_event::Ended& e);
  void on(const launch_event::Told& e);
  void on(const launch_event::Tick&);
  void stop_where_too_few_are_left();
  void stop_all(int signal);
  void end(int host, int exit_code);

  void dial_who_is_due();
  void dial(int host, bool with_files);
  void settle();
  void choose_first();
  void try_ways();
  void take_place(int host, const ProbeResult& result);
  std::string gaps_of(int host) const;
  void judge_gaps();
  std::optional<int> most_cut_off() const;
  bool enough(const std::vector<int>& hosts) const;
  const char* fate_after_loss() const;
  void begin();
  std::vector<int> those_who_may_lead() const;
  void tell_begin(int host);
  void give_up();
  void tell_failures();
  void tell(const std::vector<Line>& lines, bool error);
  void finish_when_all_ended();
  void hang_up_all();
  void finish(int exit_code);
  bool is(Purpose purpose) const { return s_.settings.purpose == purpose; }

  HostState& host(int index) { return s_.hosts[static_cast<std::size_t>(index)]; }
  const std::string& name(int index) const { return s_.settings.hosts[static_cast<std::size_t>(index)]; }
  int count() const { return static_cast<int>(s_.hosts.size()); }
  void enter(int index, Phase phase) {
    host(index).phase = phase;
    host(index).since = now_;
  }
  void fail(int index, int exit_code, const std::string& why);
  std::vector<int> in_phase(std::initializer_list<Phase> phases) const;
  bool all_in(std::initializer_list<Phase> phases) const {
    return in_phase(phases).size() == s_.hosts.size();
  }
  std::string meeting_address() const;
  template <typename Action>
  void emit(Action action) {
    actions_.emplace_back(std::move(action));
  }
  void say(const std::string& text, bool error = false) {
    emit(launch_action::Say{.text = text, .error = error});
  }

  LaunchState& s_;
  const Millis now_;
  std::vector<LaunchAction> actions_;
};

std::vector<int> Launch::in_phase(std::initializer_list<Phase> phases) const {
  std::vector<int> found;
  for (int i = 0; i < count(); ++i)
    if (std::ranges::count(phases, s_.hosts[static_cast<std::size_t>(i)].phase) > 0) found.push_back(i);
  return found;
}

void Launch::fail(int index, int exit_code, const std::string& why) {
  if (host(index).phase == Phase::kDialling || host(index).phase == Phase::kWaiting) s_.fan_out.failed(index);
  enter(index, Phase::kFailed);
  host(index).exit_code = exit_code;
  host(index).why = why;
  emit(launch_action::HangUp{index});
  if (!s_.begun) return;
  say(name(index) + ": " + why, true);
  stop_where_too_few_are_left();
}

void Launch::dial(int index, bool with_files) {
  host(index).with_files = with_files;
  enter(index, Phase::kDialling);
  emit(launch_action::Dial{.host = index, .with_files = with_files});
}

void Launch::dial_who_is_due() {
  for (const int index : s_.fan_out.dial(now_)) dial(index, host(index).with_files);
}

void Launch::on(const launch_event::Answered& e) {
  if (host(e.host).phase != Phase::kDialling) return;
  if (e.same_build) {
    s_.fan_out.logged_in(e.host);
    host(e.host).quiet_is_told = false;
    enter(e.host, s_.settings.purpose >= Purpose::kAttach ? Phase::kRunning : Phase::kPlanning);
    return emit(launch_action::SendJob{e.host});
  }
  if (host(e.host).with_files)
    return fail(e.host, kExitSoftware, "another dtrun answers than the one that was brought there");
  emit(launch_action::HangUp{e.host});
  dial(e.host, true);
}

void Launch::on(const launch_event::Planned& e) {
  if (host(e.host).phase != Phase::kPlanning) return;
  host(e.host).addresses = e.addresses;
  host(e.host).port = e.port;
  enter(e.host, Phase::kPlanned);
}

void Launch::on(const launch_event::Refused& e) {
  if (host(e.host).phase < Phase::kEnded) fail(e.host, exit_code_of(e.exit_code, 1), e.why);
}

void Launch::on(const launch_event::Seen& e) {
  HostState& state = host(e.host);
  const std::size_t asked = state.phase == Phase::kTrying ? state.tried.size() : 1;
  if (state.phase != Phase::kLooking && state.phase != Phase::kTrying) return;
  if (e.results.size() != asked) return fail(e.host, kExitSoftware, "its agent answers what was not asked");
  if (state.phase == Phase::kLooking) return take_place(e.host, e.results.front());
  for (std::size_t i = 0; i < asked; ++i)
    if (e.results[i].address.empty())
      state.gaps.push_back({.to = state.tried[i], .why = join(e.results[i].why_not)});
  enter(e.host, Phase::kReady);
}

void Launch::take_place(int index, const ProbeResult& result) {
  if (result.address.empty())
    return fail(index, kExitUnavailable,
                "reaches no address of " + name(*s_.first) + " on port " +
                    std::to_string(host(*s_.first).port) + " (" + join(result.why_not) + ")" + kAllPorts);
  host(index).address = result.address;
  host(index).from = result.from;
  enter(index, Phase::kPlaced);
}

const char* Launch::fate_after_loss() const {
  if (is(Purpose::kRun)) return "its agent ends its part of the job";
  return is(Purpose::kDetach) ? "whether its agent has begun is not known" : "the job there goes on";
}

void Launch::on(const launch_event::Gone& e) {
  HostState& state = host(e.host);
  switch (state.phase) {
    case Phase::kDialling:
      if (e.failure.kind == SshFailure::kRefusedLogin && s_.fan_out.refused(e.host, now_))
        return enter(e.host, Phase::kWaiting);
      if (e.failure.kind == SshFailure::kNoDtrun && !state.with_files) return dial(e.host, true);
      break;
    case Phase::kRunning:
      enter(e.host, Phase::kLost);
      say(name(e.host) + ": the line to it is gone (" + e.failure.what + "); " + fate_after_loss(), true);
      return stop_where_too_few_are_left();
    case Phase::kPlanning:
    case Phase::kPlanned:
    case Phase::kLooking:
    case Phase::kPlaced:
    case Phase::kTrying:
    case Phase::kReady:
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
  std::vector<Line> lines;
  for (const int index : e.hosts) {
    HostState& state = host(index);
    const bool dialled = state.phase == Phase::kDialling && !state.with_files &&
                         now_ - state.since >= kConnectTime + kQuiet / 4;
    const bool asked = state.phase >= Phase::kPlanning && state.phase <= Phase::kReady;
    if ((!dialled && !asked) || std::exchange(state.quiet_is_told, true)) continue;
    lines.push_back(
        {index, dialled ? "no answer yet, is it up? It has " + std::to_string(kAnswerTime / 1000) + " s"
                        : "no answer any more: the host or the way to it may be lost"});
  }
  tell(lines, false);
}

// A lost host does not come back, so the others should not wait for it. If an agent has ended, the job ends
// anyway.
void Launch::stop_where_too_few_are_left() {
  const std::vector<int> left = in_phase({Phase::kRunning, Phase::kReady});
  const bool ends = !in_phase({Phase::kEnded}).empty() || s_.signals > 0 || s_.too_few;
  const bool first_is_missing =
      !in_phase({Phase::kReady}).empty() && host(*s_.first).phase != Phase::kRunning;
  if (!is(Purpose::kRun) && !(is(Purpose::kDetach) && first_is_missing)) return;
  if (ends || left.empty()) return;
  if (static_cast<int>(left.size()) >= s_.settings.min_nodes && !first_is_missing) return;
  s_.too_few = true;
  say(std::to_string(left.size()) + (left.size() == 1 ? " host is" : " hosts are") + " left, the job needs " +
          (first_is_missing ? name(*s_.first) : std::to_string(s_.settings.min_nodes)) + ": stopping it",
      true);
  stop_all(kStopSignal);
}

// Hosts that have not begun are not started any more.
void Launch::stop_all(int signal) {
  for (const int index : in_phase({Phase::kRunning}))
    emit(launch_action::PassSignal{.host = index, .signal = signal});
  for (const int index : in_phase({Phase::kReady})) {
    enter(index, Phase::kFailed);
    emit(launch_action::HangUp{index});
  }
}

void Launch::on(const launch_event::Begun& e) {
  if (host(e.host).phase != Phase::kRunning) return;
  if (is(Purpose::kDetach)) end(e.host, kExitOk);
  if (e.host != s_.first) return;
  for (const int index : in_phase({Phase::kReady})) tell_begin(index);
}

void Launch::on(const launch_event::Ended& e) {
  if (host(e.host).phase != Phase::kRunning) return;
  end(e.host, exit_code_of(e.exit_code, kExitOk));
}

void Launch::end(int index, int exit_code) {
  enter(index, Phase::kEnded);
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
  for (const int index : in_phase({Phase::kDialling, Phase::kPlanning, Phase::kLooking, Phase::kTrying})) {
    const bool brief = host(index).phase == Phase::kDialling && !host(index).with_files;
    const Millis patience = brief ? kAnswerTime : kPatience;
    if (now_ - host(index).since >= patience)
      fail(index, kExitUnavailable,
           "no answer within " + std::to_string(patience / 1000) + " s; try the same by hand: ssh " +
               name(index) + " true");
  }
}

void Launch::settle() {
  if (s_.begun) return finish_when_all_ended();
  if (!s_.first && all_in({Phase::kPlanned, Phase::kFailed})) choose_first();
  if (!s_.finished && s_.first && all_in({Phase::kPlaced, Phase::kFailed})) try_ways();
  if (!s_.finished && s_.first && all_in({Phase::kReady, Phase::kFailed})) begin();
}

void Launch::choose_first() {
  const std::vector<int> planned = in_phase({Phase::kPlanned});
  if (planned.empty() || !enough(planned)) return give_up();
  s_.first = planned.front();
  enter(*s_.first, Phase::kPlaced);
  for (const int index : planned) {
    if (index == *s_.first) continue;
    enter(index, Phase::kLooking);
    emit(launch_action::AskToLook{.host = index, .at = {{*s_.first, host(*s_.first).addresses}}});
  }
}

// Each host tries those behind it in a ring, which are all others if there are not too many.
void Launch::try_ways() {
  const std::vector<int> placed = in_phase({Phase::kPlaced});
  if (host(*s_.first).phase == Phase::kFailed || !enough(placed)) return give_up();
  host(*s_.first).address = host(*s_.first).from = meeting_address();
  for (std::size_t i = 0; i < placed.size(); ++i) {
    launch_action::AskToLook ask{.host = placed[i], .at = {}};
    for (std::size_t k = 1; k < placed.size() && k <= kMostTried; ++k) {
      const int other = placed[(i + k) % placed.size()];
      host(placed[i]).tried.push_back(other);
      ask.at.push_back({other, {host(other).from}});
    }
    enter(placed[i], ask.at.empty() ? Phase::kReady : Phase::kTrying);
    if (!ask.at.empty()) emit(std::move(ask));
  }
}

// A check goes on to the end, even if hosts fail.
bool Launch::enough(const std::vector<int>& hosts) const {
  return is(Purpose::kCheck) || static_cast<int>(hosts.size()) >= s_.settings.min_nodes;
}

// The hosts that it does not reach, in words; empty: it reaches all that can take part.
std::string Launch::gaps_of(int index) const {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> parts;
  for (const Gap& gap : s_.hosts[static_cast<std::size_t>(index)].gaps) {
    const HostState& to = s_.hosts[static_cast<std::size_t>(gap.to)];
    if (to.phase == Phase::kReady)
      parts.push_back(name(gap.to) + " on port " + std::to_string(to.port) + " (" + gap.why + ")");
  }
  if (parts.empty()) return "";
  const std::size_t more = parts.size() - std::min(parts.size(), kNamed);
  parts.resize(parts.size() - more);
  return "does not reach " + join(parts) + (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

// If two hosts do not reach each other, one of them cannot take part.
void Launch::judge_gaps() {
  const bool bad = s_.settings.all_meet;
  std::vector<Line> lines;
  for (const int index : in_phase({Phase::kReady}))
    if (const std::string gaps = gaps_of(index); !gaps.empty())
      lines.push_back({index, gaps + (bad ? kAllPorts : "; a program that connects them would hang")});
  tell(lines, bad);
  if (!bad) return;
  for (auto odd = most_cut_off(); odd; odd = most_cut_off())
    fail(*odd, kExitUnavailable, "cannot take part, as it and others do not reach each other");
}

// The later one of hosts with equally many gaps: the first host is needed.
std::optional<int> Launch::most_cut_off() const {
  const std::vector<int> ready = in_phase({Phase::kReady});
  std::map<int, int> gaps;
  for (const int index : ready)
    for (const Gap& gap : s_.hosts[static_cast<std::size_t>(index)].gaps)
      if (std::ranges::count(ready, gap.to) > 0) {
        ++gaps[index];
        ++gaps[gap.to];
      }
  gaps.erase(*s_.first);
  std::optional<int> most;
  for (const auto& [index, count] : gaps)
    if (!most || count >= gaps[*most]) most = index;
  return most;
}

// The address of the first host that most others reach, since their workers will come to it too.
std::string Launch::meeting_address() const {
  std::map<std::string, int> votes;
  for (const HostState& one : s_.hosts)
    if (!one.address.empty()) ++votes[one.address];
  const std::vector<std::string>& own = s_.hosts[static_cast<std::size_t>(*s_.first)].addresses;
  std::string best = own.empty() ? "" : own.front();
  for (const std::string& address : own)
    if (votes[address] > votes[best]) best = address;
  return best;
}

void Launch::begin() {
  if (host(*s_.first).phase == Phase::kFailed) return give_up();
  judge_gaps();
  const std::vector<int> ready = in_phase({Phase::kReady});
  if (!enough(ready)) return give_up();
  tell_failures();
  if (is(Purpose::kCheck)) {
    emit(launch_action::TellCheck{.ready = static_cast<int>(ready.size())});
    hang_up_all();
    const std::vector<int> failed = in_phase({Phase::kFailed});
    return finish(failed.empty() ? kExitOk : host(failed.front()).exit_code);
  }
  s_.begun = true;
  if (is(Purpose::kDetach)) emit(launch_action::Remember{});
  // If there are spare hosts, any of them may have to take any place.
  const bool places_are_fixed = static_cast<int>(ready.size()) <= s_.settings.max_nodes;
  for (std::size_t rank = 0; places_are_fixed && rank < ready.size(); ++rank)
    host(ready[rank]).node_rank = static_cast<int>(rank);
  s_.may_lead = those_who_may_lead();
  tell_begin(*s_.first);
}

// The first host and two that reach it and each other: of three one may be lost.
std::vector<int> Launch::those_who_may_lead() const {
  constexpr std::size_t kWanted = 3;
  const auto meet = [this](int one, int other) {
    const auto leads_to = [this](int from, int to) {
      return std::ranges::none_of(s_.hosts[static_cast<std::size_t>(from)].gaps,
                                  [to](const Gap& gap) { return gap.to == to; });
    };
    return leads_to(one, other) && leads_to(other, one);
  };
  std::vector<int> chosen{*s_.first};
  for (const int index : in_phase({Phase::kReady})) {
    if (index == *s_.first || chosen.size() == kWanted) continue;
    if (std::ranges::all_of(chosen, [&](int one) { return meet(one, index); })) chosen.push_back(index);
  }
  return chosen.size() == kWanted ? chosen : std::vector<int>();
}

void Launch::tell_begin(int index) {
  enter(index, Phase::kRunning);
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
  std::vector<Line> lines;
  for (const int index : in_phase({Phase::kFailed})) lines.push_back({index, host(index).why});
  tell(lines, true);
}

// A message that is the same for several hosts is shown once.
void Launch::tell(const std::vector<Line>& lines, bool error) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (const auto& [index, text] : lines) {
    const std::string& wanted = text;
    const auto found = std::ranges::find_if(groups, [&](const auto& group) { return group.first == wanted; });
    if (found == groups.end())
      groups.push_back({text, {index}});
    else
      found->second.push_back(index);
  }
  constexpr std::size_t kNamed = 8;
  for (const auto& [text, members] : groups) {
    std::string names;
    for (std::size_t i = 0; i < std::min(members.size(), kNamed); ++i)
      names += (i == 0 ? "" : ", ") + name(members[i]);
    if (members.size() > kNamed) names += " and " + std::to_string(members.size() - kNamed) + " more";
    say(names + ": " + text, error);
  }
}

void Launch::give_up() {
  tell_failures();
  const std::vector<int> failed = in_phase({Phase::kFailed});
  const int usable = count() - static_cast<int>(failed.size());
  if (count() > 1)
    say(std::to_string(usable) + " of " + std::to_string(count()) + " hosts can run the job" +
            (s_.settings.min_nodes < count() ? ", it needs " + std::to_string(s_.settings.min_nodes) : "") +
            "; nothing was started",
        true);
  hang_up_all();
  finish(host(failed.front()).exit_code);
}

// The exit code of the coordinator's host counts: it ends last. After a signal its code may only say that
// other hosts left, since they received the signal before it did; then the signal's code counts.
void Launch::finish_when_all_ended() {
  if (!all_in({Phase::kEnded, Phase::kLost, Phase::kFailed})) return;
  const std::vector<int> ended = in_phase({Phase::kEnded});
  if (ended.empty() || s_.too_few) return finish(kExitUnavailable);
  if (is(Purpose::kDetach)) emit(launch_action::TellDetached{});
  if (!is(Purpose::kRun) && !is(Purpose::kAttach)) {
    const bool all_well = is(Purpose::kDetach) ? in_phase({Phase::kLost}).empty() : all_in({Phase::kEnded});
    return finish(all_well ? kExitOk : kExitUnavailable);
  }
  const bool first_ended = host(*s_.first).phase == Phase::kEnded;
  const int exit_code = host(first_ended ? *s_.first : ended.front()).exit_code;
  finish(exit_code != kExitOk && s_.signals > 0 ? exit_code_of_signal(s_.signal) : exit_code);
}

void Launch::hang_up_all() {
  for (int i = 0; i < count(); ++i) emit(launch_action::HangUp{i});
}

void Launch::finish(int exit_code) {
  s_.finished = true;
  emit(launch_action::Finish{exit_code});
}

}  // namespace

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
  for (const HostState& host : state.hosts) {
    const bool asked = host.phase == Phase::kDialling || host.phase == Phase::kPlanning ||
                       host.phase == Phase::kLooking || host.phase == Phase::kTrying;
    if (!asked) continue;
    const bool brief = host.phase == Phase::kDialling && !host.with_files;
    const Millis patience_ends = host.since + (brief ? kAnswerTime : kPatience);
    due = due ? std::min(*due, patience_ends) : patience_ends;
  }
  return due;
}

}  // namespace dtrun::cmd
