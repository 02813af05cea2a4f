#include "cmd/trace/chrome.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "proto/json/json.h"

namespace dtrun::cmd {
namespace {

using Kind = Operation::Kind;

// Numbers of tracks, in the order in which they are shown. Messages take as many as overlap.
constexpr int kSteps = 0, kFirstLane = 1, kWriter = 1000, kSends = 1001, kFirstMessages = 1002;
constexpr int kTracksOfRank = 10'000;

// An operation on the coordinator's clock, in ns.
struct Span {
  int rank = 0;
  Operation operation;
  std::int64_t began = 0, ended = 0;
  std::uint64_t node = 0;
  int pid = 0;
  bool cut = false;  // its end was not seen
  int track = 0;
};

// The piece of a bucket that one rank sends to others.
using Parcel = std::tuple<std::int64_t, std::int64_t, int, int>;  // generation, step, bucket, sender

// A thread's number. Perfetto takes the thread with its process's number for the main one, and has none of
// the number 0 in any other process: each rank's steps are its main thread, and no number is of two ranks.
int thread_of(int rank, int track) { return track == kSteps ? rank : (rank + 1) * kTracksOfRank + track; }

double microseconds(std::int64_t ns) { return static_cast<double>(ns) / 1000; }

// Messages of all others, which are parcels only with a bucket.
bool is_sending(const Operation& one) { return one.kind == Kind::kSend && one.peer < 0 && one.bucket >= 0; }

int track_of(const Operation& one) {
  switch (one.kind) {
    case Kind::kStep:
    case Kind::kWait:
    case Kind::kExchange:
    case Kind::kUpdate:
    case Kind::kSave:
      return kSteps;
    case Kind::kData:
    case Kind::kMath:
      return kFirstLane + std::clamp(one.lane, 0, kWriter - kFirstLane - 1);
    case Kind::kWrite:
      return kWriter;
    case Kind::kEvaluation:
      return one.peer < 0 ? kSteps : kFirstMessages;
    default:
      return is_sending(one) ? kSends : kFirstMessages;
  }
}

std::string name_of_track(int track) {
  if (track == kSteps) return "steps";
  if (track < kWriter) return "lane " + std::to_string(track - kFirstLane);
  if (track == kWriter) return "checkpoints";
  return track == kSends ? "sends" : "waits for messages";
}

std::string title_of(const Operation& one) {
  const std::string name = name_of(one.kind);
  if (one.kind == Kind::kStep) return "step " + std::to_string(one.step + 1);
  if (one.bucket >= 0)
    return name + " bucket " + std::to_string(one.bucket) +
           (one.peer >= 0 ? " of rank " + std::to_string(one.peer) : "");
  return one.peer >= 0 ? name + ", rank " + std::to_string(one.peer) : name;
}

std::vector<Span> spans_of(const TraceRecord& record) {
  const std::map<std::uint64_t, ClockOffset> offsets = record.offsets();
  std::vector<Span> spans;
  for (const auto& [rank, operations] : record.ranks()) {
    std::map<int, std::int64_t> last;  // by process: when it was last seen at work
    const std::size_t first = spans.size();
    for (const TracedOperation& one : operations) {
      const auto offset = offsets.find(one.node);
      if (offset == offsets.end()) continue;
      const bool waits = one.operation.state == Operation::State::kWaits;
      Span span{.rank = rank, .operation = one.operation, .node = one.node, .pid = one.pid, .cut = waits};
      span.began = one.operation.began + offset->second.to_coordinator;
      span.ended = waits ? span.began : one.operation.ended + offset->second.to_coordinator;
      span.track = track_of(one.operation);
      last[span.pid] = std::max(last.try_emplace(span.pid, span.ended).first->second, span.ended);
      spans.push_back(span);
    }
    for (std::size_t i = first; i < spans.size(); ++i)
      if (spans[i].cut) spans[i].ended = last[spans[i].pid];
  }
  std::ranges::stable_sort(
      spans, {}, [](const Span& span) { return std::tuple(span.began, -(span.ended - span.began)); });
  return spans;
}

// Several threads of a rank wait at once, and a track can show one after the other only.
void spread_messages(std::vector<Span>& spans) {
  std::map<int, std::vector<std::int64_t>> free_at;  // by rank, of its tracks for messages
  for (Span& span : spans) {
    if (span.track != kFirstMessages) continue;
    std::vector<std::int64_t>& tracks = free_at[span.rank];
    auto track = std::ranges::find_if(tracks, [&](std::int64_t at) { return at <= span.began; });
    if (track == tracks.end()) track = tracks.insert(tracks.end(), 0);
    *track = span.ended;
    span.track = kFirstMessages + static_cast<int>(track - tracks.begin());
  }
}

class Writer {
 public:
  Writer(const TraceRecord& record, std::vector<Span> spans) : record_(record), spans_(std::move(spans)) {
    if (!spans_.empty()) origin_ = spans_.front().began;
  }

  // An event a line: a long trace as a tree of JSON would take ten times the memory.
  std::string events() {
    write_names();
    for (const Span& span : spans_) write(span);
    write_arrows();
    write_turns();
    return std::move(text_);
  }

 private:
  double at(std::int64_t time) const { return microseconds(time - origin_); }

  void add(const Json& event) { text_ += (text_.empty() ? "" : ",\n") + json_text(event); }

  void write_names() {
    std::map<int, std::map<int, bool>> tracks;
    std::map<int, std::string> hosts;
    for (const Span& span : spans_) tracks[span.rank][span.track] = true;
    for (const auto& [rank, operations] : record_.ranks())
      if (!operations.empty()) hosts[rank] = record_.host_of(operations.back().node);
    for (const auto& [rank, of_rank] : tracks) {
      add_name("process_name", rank, kSteps, "rank " + std::to_string(rank) + " on " + hosts[rank]);
      add({{"name", "process_sort_index"},
           {"ph", "M"},
           {"pid", rank},
           {"tid", thread_of(rank, kSteps)},
           {"args", {{"sort_index", rank}}}});
      for (const auto& [track, shown] : of_rank) {
        add_name("thread_name", rank, track, name_of_track(track));
        add({{"name", "thread_sort_index"},
             {"ph", "M"},
             {"pid", rank},
             {"tid", thread_of(rank, track)},
             {"args", {{"sort_index", track}}}});
      }
    }
  }

  void add_name(const char* what, int rank, int track, const std::string& name) {
    add({{"name", what},
         {"ph", "M"},
         {"pid", rank},
         {"tid", thread_of(rank, track)},
         {"args", {{"name", name}}}});
  }

  void write(const Span& span) {
    const Operation& one = span.operation;
    Json arguments{{"generation", one.generation}, {"step", one.step + 1}};
    if (one.bucket >= 0) arguments["bucket"] = one.bucket;
    if (one.round >= 0) arguments["round"] = one.round;
    if (one.peer >= 0) arguments["peer"] = one.peer;
    if (span.cut) arguments["state"] = "its end was not seen";
    if (one.state == Operation::State::kBroken) arguments["state"] = "broken";
    add({{"name", title_of(one)},
         {"cat", name_of(one.kind)},
         {"ph", "X"},
         {"ts", at(span.began)},
         {"dur", microseconds(std::max<std::int64_t>(1, span.ended - span.began))},
         {"pid", span.rank},
         {"tid", thread_of(span.rank, span.track)},
         {"args", std::move(arguments)}});
  }

  // From a send to each receive of it. A receive that was over before its wait began has its arrow at its
  // begin.
  void write_arrows() {
    std::map<Parcel, std::vector<const Span*>> sends;
    for (const Span& span : spans_)
      if (is_sending(span.operation)) sends[parcel_of(span.operation, span.rank)].push_back(&span);
    int id = 0;
    for (const Span& span : spans_) {
      const Operation& one = span.operation;
      if (one.kind != Kind::kReceive || one.peer < 0 || one.state != Operation::State::kDone) continue;
      const auto known = sends.find(parcel_of(one, one.peer));
      if (known == sends.end()) continue;
      const Span* const from = send_of(span, known->second);
      if (from == nullptr) continue;
      add_arrow("s", ++id, *from, from->began);
      add_arrow("f", id, span, std::max(span.began, span.ended - 1));
    }
  }

  static Parcel parcel_of(const Operation& one, int sender) {
    return {one.generation, one.step, one.bucket, sender};
  }

  // Between ranks that share memory the round is not known: it is the newest that was sent by then.
  static const Span* send_of(const Span& receive, const std::vector<const Span*>& sends) {
    const Span* found = nullptr;
    for (const Span* send : sends) {
      const bool fits = receive.operation.round >= 0 ? send->operation.round == receive.operation.round
                                                     : found == nullptr || send->began <= receive.ended;
      if (fits) found = send;
    }
    return found;
  }

  // `phase`: "s" where it starts, "f" where it ends, within the span.
  void add_arrow(const char* phase, int id, const Span& span, std::int64_t time) {
    Json arrow{{"name", "bucket"},
               {"cat", "exchange"},
               {"ph", phase},
               {"id", id},
               {"ts", at(time)},
               {"pid", span.rank},
               {"tid", thread_of(span.rank, span.track)}};
    if (*phase == 'f') arrow["bp"] = "e";
    add(arrow);
  }

  // Where a rank goes on in another generation, and where a process was last seen that has no part in the
  // newest.
  void write_turns() {
    std::map<int, std::int64_t> generations;                         // by rank
    std::map<std::pair<std::uint64_t, int>, const Span*> processes;  // by node and number: their last
    std::int64_t newest = 0;
    for (const Span& span : spans_) {
      const std::int64_t generation = span.operation.generation;
      const auto [known, is_new] = generations.try_emplace(span.rank, generation);
      if (!is_new && generation > known->second)
        add_turn(span.rank, span.began, "generation " + std::to_string(generation));
      known->second = std::max(known->second, generation);
      newest = std::max(newest, generation);
      const Span*& last = processes[{span.node, span.pid}];
      if (last == nullptr ||
          std::pair(generation, span.ended) > std::pair(last->operation.generation, last->ended))
        last = &span;
    }
    for (const auto& [process, last] : processes)
      if (last->operation.generation < newest)
        add_turn(last->rank, last->ended, "last of process " + std::to_string(process.second));
  }

  void add_turn(int rank, std::int64_t time, const std::string& name) {
    add({{"name", name},
         {"cat", "run"},
         {"ph", "i"},
         {"s", "p"},
         {"ts", at(time)},
         {"pid", rank},
         {"tid", thread_of(rank, kSteps)}});
  }

  const TraceRecord& record_;
  const std::vector<Span> spans_;
  std::int64_t origin_ = 0;
  std::string text_;
};

}  // namespace

std::string chrome_json(const TraceRecord& record, const std::string& run_id, int steps) {
  std::vector<Span> spans = spans_of(record);
  spread_messages(spans);
  Json clocks = Json::array();
  for (const auto& [node, offset] : record.offsets())
    clocks.push_back({{"host", record.host_of(node)},
                      {"offset_us", microseconds(offset.to_coordinator)},
                      {"error_us", microseconds(offset.error)}});
  const Json other{{"run_id", run_id},
                   {"world_size", record.world_size()},
                   {"clock_error_us", microseconds(record.clock_error())},
                   {"clocks", clocks},
                   {"missing", record.missing(steps)}};
  return "{\"displayTimeUnit\":\"ms\",\"otherData\":" + json_text(other) + ",\"traceEvents\":[\n" +
         Writer(record, std::move(spans)).events() + "\n]}\n";
}

}  // namespace dtrun::cmd
