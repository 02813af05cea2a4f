#include "agent/output/queued_log.h"

#include <system_error>
#include <utility>

namespace dtrun::agent {

struct QueuedLog::Shared {
  LogFile file;  // the disk's, like `broken`
  bool broken = false;
  Events events;  // the loop's, like those below
  bool failed = false;
  std::size_t queued = 0;
};

// One piece of work and what came of it: the disk's until it is done, and then the loop's.
struct QueuedLog::Piece {
  std::string text;
  bool unwritten = false;
  Status failure = {};  // of the first that fails
};

QueuedLog::QueuedLog(Disk& disk, const std::filesystem::path& path, std::uint64_t max_size,
                     LogFile::Writers writers)
    : disk_(disk), shared_(std::make_shared<Shared>()) {
  post("", [path, max_size, writers](LogFile& file, const std::string&) -> Status {
    std::error_code ignored;  // open() finds out
    std::filesystem::create_directories(path.parent_path(), ignored);
    auto opened = LogFile::open(path, max_size, writers);
    if (!opened.ok()) return opened.status();
    file = std::move(opened).value();
    return {};
  });
}

void QueuedLog::listen(Events events) { shared_->events = std::move(events); }

bool QueuedLog::takes() const { return !shared_->failed; }

std::size_t QueuedLog::queued() const { return shared_->queued; }

void QueuedLog::write(std::string text) {
  post(std::move(text), [](LogFile& file, const std::string& bytes) { return file.write(bytes); });
}

void QueuedLog::post(std::string text, Work work) {
  const auto piece = std::make_shared<Piece>(Piece{.text = std::move(text)});
  shared_->queued += piece->text.size();
  disk_.post(
      [shared = shared_, piece, work = std::move(work)] {
        piece->unwritten = shared->broken;
        if (shared->broken) return;
        piece->failure = work(shared->file, piece->text);
        piece->unwritten = shared->broken = !piece->failure.ok();
      },
      [shared = shared_, piece] {
        shared->queued -= piece->text.size();
        const Events events = shared->events;
        if (!piece->failure.ok()) {
          shared->failed = true;
          if (events.failed) events.failed(piece->failure);
        }
        if (piece->unwritten && events.unwritten) events.unwritten(piece->text);
        if (events.written) events.written();
      },
      piece->text.size());
}

}  // namespace dtrun::agent
