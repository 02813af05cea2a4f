// A file that only grows, entry by entry. An entry that finds no room waits for the next one, so that a run
// outlives a full disk.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>

namespace dtrun::worker {

class PatientFile {
 public:
  using Notice = std::function<void(const std::string&)>;

  // Takes `fd` over, which appends. `noun`: what people call an entry, "line". `notice` is called once when
  // entries begin to wait, once when they are written, and at the end for those that are lost.
  PatientFile(std::filesystem::path path, int fd, std::string noun, Notice notice);
  ~PatientFile();
  PatientFile(const PatientFile&) = delete;

  // One write for each entry, so that a reader or a crash never sees half of one, unless there is no room for
  // the rest.
  void append(std::string entry);

 private:
  int write_waiting();

  const std::filesystem::path path_;
  const int fd_;
  const std::string noun_;
  const Notice notice_;
  std::deque<std::string> waiting_;  // not in the file yet; the first one may be there in part
  std::size_t waiting_bytes_ = 0;
  std::int64_t lost_ = 0;
  bool told_ = false;  // the notice that entries wait was given
};

}  // namespace dtrun::worker
