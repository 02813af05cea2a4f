#include "agent/output/flush.h"

#include <string>

#include "proto/core/text.h"

namespace dtrun::agent {
namespace {

using std::chrono::milliseconds;

std::string lost_text(std::size_t bytes, const std::string& why, milliseconds patience) {
  return std::to_string(bytes) + " bytes are lost: " + why + " for " + whole_seconds_text(patience.count());
}

// Runs the loop until left() is 0, or has been the same for `patience`: false.
bool falls_to_nothing(Loop& loop, milliseconds patience, const std::function<std::size_t()>& left,
                      const std::function<bool()>& hurried) {
  Timer timer(loop);
  bool stands = false;
  std::size_t before = 0;
  for (std::size_t now; (now = left()) > 0 && !hurried(); before = now) {
    if (now != before) timer.set(Loop::Clock::now() + patience, [&stands] { stands = true; });
    if (stands || !loop.run_once().ok()) return false;
  }
  return true;
}

}  // namespace

void flush(Loop& loop, Console& console, const std::vector<Disk*>& disks, milliseconds patience,
           const std::function<bool()>& hurried) {
  const auto unread = [&console] { return console.queued(); };
  if (!falls_to_nothing(loop, patience, unread, hurried)) {
    const std::size_t bytes = unread();
    console.drop();
    console.error(lost_text(bytes, "nobody has read this output", patience));
  }
  console.drop();

  // One more than the bytes of a disk that is at work.
  const auto unwritten = [&disks] {
    std::size_t sum = 0;
    for (const Disk* disk : disks) sum += disk->idle() ? 0 : disk->queued() + 1;
    return sum;
  };
  for (Disk* disk : disks) disk->post([] {}, [] {});  // wakes the loop
  if (!falls_to_nothing(loop, patience, unwritten, [] { return false; }))
    console.error(
        lost_text(unwritten(), "the file system of logs or of temporary files has not answered", patience));
}

}  // namespace dtrun::agent
