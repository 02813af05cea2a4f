#include "worker/data/node_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>
#include <utility>

#include "worker/base/bits_hash.h"
#include "worker/base/pulse.h"
#include "worker/base/sha256.h"
#include "worker/base/stop_point.h"

namespace dtrun::worker {
namespace {

constexpr std::uint64_t kAlignment = 65536;  // of parts: the largest page of any system

// Empty if a file cannot be looked at: opening it tells why.
std::string key_of(const std::string& what, const std::vector<std::filesystem::path>& files) {
  std::vector<FileStamp> stamps;
  for (const auto& path : files) {
    struct stat file {};
    if (stat(path.c_str(), &file) != 0) return "";
    stamps.push_back({.device = file.st_dev,
                      .inode = file.st_ino,
                      .size = static_cast<std::uint64_t>(file.st_size),
                      .changed_ns = file.st_ctim.tv_sec * 1'000'000'000 + file.st_ctim.tv_nsec});
  }
  return data_key(what, stamps);
}

bool is_sealed(int file) { return (fcntl(file, F_GET_SEALS) & F_SEAL_WRITE) != 0; }

// A lock of this process: other processes that inherited the descriptor have not got it, and the kernel gives
// it back when this one ends.
bool lock(int file) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  return fcntl(file, F_SETLK, &whole) == 0;
}

std::shared_ptr<void> map(int file, std::uint64_t begin, std::size_t bytes, int protection, int flags) {
  void* const memory = mmap(nullptr, bytes, protection, flags, file, static_cast<off_t>(begin));
  if (memory == MAP_FAILED) return nullptr;
  return {memory, [bytes](void* mapped) { munmap(mapped, bytes); }};
}

// Private, since older kernels do not map as shared what is sealed against writing.
HeldBytes map_to_read(int file, std::uint64_t begin, std::size_t bytes, std::uint64_t hash) {
  auto memory = map(file, begin, bytes, PROT_READ, MAP_PRIVATE);
  if (memory == nullptr) throw std::bad_alloc();
  const auto* const first = static_cast<const std::uint8_t*>(memory.get());
  return {.bytes = {first, bytes}, .memory = std::move(memory), .hash = hash};
}

// Memory for good, so that no access fails later; null if there is none.
std::shared_ptr<void> add_to_file(int file, std::uint64_t begin, std::size_t bytes) {
  if (posix_fallocate(file, static_cast<off_t>(begin), static_cast<off_t>(bytes)) != 0) return nullptr;
  return map(file, begin, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE);
}

}  // namespace

std::string data_key(const std::string& what, const std::vector<FileStamp>& files) {
  Sha256 hash;
  hash.update(what);
  for (const FileStamp& file : files)
    for (const std::uint64_t number :
         {file.device, file.inode, file.size, static_cast<std::uint64_t>(file.changed_ns)})
      hash.update("/" + std::to_string(number));
  return hash.hex();
}

NodeMemory::Part NodeMemory::take_part() {
  if (!file_.open()) return Part::kAlone;
  while (!is_sealed(file_.get())) {
    if (lock(file_.get())) {
      if (is_sealed(file_.get())) break;
      // Another worker may have been killed before it had made all.
      return ftruncate(file_.get(), 0) == 0 ? Part::kMakes : Part::kAlone;
    }
    if (errno != EAGAIN && errno != EACCES) return Part::kAlone;
    Pulse::beat();  // should the one that makes them hang, its own pulse tells
    usleep(2000);
  }
  const bool whole = pread(file_.get(), &table_, sizeof table_, 0) == sizeof table_;
  return whole ? Part::kTakes : Part::kAlone;
}

Result<HeldBytes> NodeMemory::bytes_of(const std::string& what,
                                       const std::vector<std::filesystem::path>& files,
                                       const std::function<Status(const Room&)>& make) {
  if (part_ == Part::kNotAsked) part_ = take_part();
  const std::string key = key_of(what, files);
  const auto end = table_.entry + table_.entries;
  const auto found = std::find_if(table_.entry, end, [&](const Entry& one) { return one.key_text() == key; });
  if (part_ == Part::kTakes && found != end)
    return map_to_read(file_.get(), found->begin, found->bytes, found->hash);

  const bool shares = part_ == Part::kMakes && !key.empty() && table_.entries < std::size(table_.entry);
  const std::uint64_t begin = (end_ + kAlignment - 1) / kAlignment * kAlignment;
  std::shared_ptr<void> in_file;
  HeldBytes held;
  RETURN_IF_ERROR(make([&](std::size_t bytes) {
    if (shares) in_file = add_to_file(file_.get(), begin, bytes);
    const std::shared_ptr<void> memory =
        in_file ? in_file : std::shared_ptr<std::uint8_t[]>(new std::uint8_t[bytes]);
    const std::span room(static_cast<std::uint8_t*>(memory.get()), bytes);
    held = {.bytes = room, .memory = memory};
    return room;
  }));
  held.hash = bits_hash(held.bytes);
  if (!in_file) return held;
  end_ = begin + held.bytes.size();
  // Nothing that can be written to may be left when the file is sealed.
  in_file.reset();
  held = map_to_read(file_.get(), begin, held.bytes.size(), held.hash);
  stop_point(StopPoint::kDataMade);
  // Files that changed meanwhile may be in these bytes.
  if (key_of(what, files) == key) table_.add(key, begin, held);
  return held;
}

void NodeMemory::seal() {
  if (part_ != Part::kMakes) return;
  if (pwrite(file_.get(), &table_, sizeof table_, 0) == sizeof table_)
    fcntl(file_.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  file_.reset();
  part_ = Part::kAlone;
}

}  // namespace dtrun::worker
