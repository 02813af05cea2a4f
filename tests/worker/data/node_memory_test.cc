#include "worker/data/node_memory.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/worker/data/datasets.h"
#include "tests/worker/data/idx_files.h"
#include "worker/base/pulse.h"

namespace dtrun::worker::node_memory_test {
namespace {

using dtrun::test::Folder;
using dtrun::test::write_text;

const std::filesystem::path kNumber = "number", kOther = "other";

// A node with two data files, of which its workers make bytes: the files' own, doubled.
class Node {
 public:
  Node() {
    write_text(folder_ / kNumber, "12345");
    write_text(folder_ / kOther, "a");
  }
  std::filesystem::path path(const std::filesystem::path& name) const { return folder_ / name; }
  int descriptor() const { return fcntl(memory_.get(), F_DUPFD_CLOEXEC, 0); }
  bool sealed() const { return (fcntl(memory_.get(), F_GET_SEALS) & F_SEAL_WRITE) != 0; }
  int file() const { return memory_.get(); }

  // What a worker gets that makes and seals as it should.
  std::string text(NodeMemory& memory, const std::filesystem::path& name) {
    const auto held = memory.bytes_of("text", {path(name)}, [&](const Room& room) {
      ++made;
      const std::string text = dtrun::test::read_if_there(path(name));
      std::ranges::copy(text + text, room(2 * text.size()).begin());
      return Status();
    });
    REQUIRE(held.ok());
    hashes.push_back(held.value().hash);
    return {held.value().bytes.begin(), held.value().bytes.end()};
  }
  std::string both(int descriptor) {
    NodeMemory memory(descriptor);
    const std::string all = text(memory, kNumber) + text(memory, kOther);
    memory.seal();
    return all;
  }

  int made = 0;                       // in this process
  std::vector<std::uint64_t> hashes;  // of what all have got

 private:
  const Folder folder_;
  const Descriptor memory_{memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
};

// Memory that a process and its children have in common.
struct Shared {
  std::atomic<int> made{0};
  std::atomic<std::uint64_t> pulse{0};  // of the one that waits
};
struct Unmap {
  void operator()(Shared* shared) const { munmap(shared, sizeof *shared); }
};
std::unique_ptr<Shared, Unmap> shared_memory() {
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  return std::unique_ptr<Shared, Unmap>(new (memory) Shared);
}

template <typename Work>
pid_t in_another_process(const Work& work) {
  const pid_t pid = fork();
  if (pid == 0) {
    work();
    _exit(0);
  }
  return pid;
}

int status_of(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

TEST_CASE("a key is another one for each thing that another content has, and for each use of a file") {
  const FileStamp stamp{.device = 1, .inode = 2, .size = 3, .changed_ns = 4};
  std::vector<FileStamp> others(4, stamp);
  ++others[0].device, ++others[1].inode, ++others[2].size, ++others[3].changed_ns;
  std::vector<std::string> keys{data_key("a", {stamp}), data_key("b", {stamp}), data_key("a", {stamp, stamp}),
                                data_key("a", {})};
  for (const FileStamp& other : others) keys.push_back(data_key("a", {other}));
  std::ranges::sort(keys);
  CHECK(std::ranges::adjacent_find(keys) == keys.end());
  CHECK(keys.front().size() == 64);
  CHECK(data_key("a", {stamp}) == data_key("a", {stamp}));
}

TEST_CASE("the first worker makes the bytes, every later one finds them, and nobody can change them") {
  Node node;
  CHECK(node.both(node.descriptor()) == "1234512345aa");
  CHECK(node.made == 2);
  CHECK(node.sealed());
  CHECK(node.both(node.descriptor()) == "1234512345aa");
  CHECK(node.made == 2);
  CHECK(node.hashes.at(0) != node.hashes.at(1));
  CHECK(node.both(-1) == "1234512345aa");  // by itself
  for (const std::size_t later : {2, 4}) {
    CHECK(node.hashes.at(later) == node.hashes[0]);
    CHECK(node.hashes.at(later + 1) == node.hashes[1]);
  }
  CHECK(pwrite(node.file(), "x", 1, 0) < 0);
  CHECK(ftruncate(node.file(), 0) < 0);
}

TEST_CASE("bytes live as long as somebody holds them") {
  Node node;
  const auto number_of = [&](int descriptor) {
    NodeMemory memory(descriptor);
    auto held = memory.bytes_of("held", {node.path(kNumber)}, [](const Room& room) {
      std::ranges::fill(room(100'000), 7);
      return Status();
    });
    memory.seal();
    return std::move(held).value();
  };
  for (const int descriptor : {node.descriptor(), node.descriptor(), -1}) {
    const HeldBytes held = number_of(descriptor);
    CHECK(held.bytes.size() == 100'000);
    CHECK(std::ranges::count(held.bytes, 7) == 100'000);
  }
}

TEST_CASE("without a file of the node's a process has its own") {
  Node node;
  CHECK(node.both(-1) == "1234512345aa");
  CHECK(node.both(-1) == "1234512345aa");
  CHECK(node.made == 4);
}

TEST_CASE("what a file has become since is made anew, also if it has its old size and time") {
  Node node;
  node.both(node.descriptor());
  struct stat before {};
  REQUIRE(stat(node.path(kNumber).c_str(), &before) == 0);
  write_text(node.path(kNumber), "54321");
  const timespec times[] = {before.st_atim, before.st_mtim};
  REQUIRE(utimensat(AT_FDCWD, node.path(kNumber).c_str(), times, 0) == 0);
  CHECK(node.both(node.descriptor()) == "5432154321aa");
  CHECK(node.made == 3);
}

TEST_CASE("bytes of a file that changed while they were made are not the node's") {
  Node node;
  NodeMemory memory(node.descriptor());
  const auto held = memory.bytes_of("text", {node.path(kNumber)}, [&](const Room& room) {
    write_text(node.path(kNumber), "123456");
    room(1)[0] = 'x';
    return Status();
  });
  CHECK(held.value().bytes[0] == 'x');
  memory.seal();
  CHECK(node.both(node.descriptor()) == "123456123456aa");
  CHECK(node.made == 2);
}

TEST_CASE("a failure is that of who makes, and leaves the next one to make all") {
  Node node;
  {
    NodeMemory memory(node.descriptor());
    node.text(memory, kNumber);
    const auto bad = memory.bytes_of("text", {node.path(kOther)}, [](const Room& room) {
      room(1000);
      return Status(kExitNoInput, "it is bad");
    });
    CHECK(bad.status().message() == "it is bad");
  }
  CHECK_FALSE(node.sealed());
  CHECK(node.both(node.descriptor()) == "1234512345aa");
  CHECK(node.made == 3);
  CHECK(node.sealed());
}

TEST_CASE("who is killed before all was made leaves nothing that another takes") {
  Node node;
  const pid_t killed = in_another_process([&] {
    NodeMemory memory(node.descriptor());
    node.text(memory, kNumber);
    kill(getpid(), SIGKILL);
  });
  CHECK(WTERMSIG(status_of(killed)) == SIGKILL);
  CHECK(node.both(node.descriptor()) == "1234512345aa");
  CHECK(node.made == 2);
}

TEST_CASE("workers that come at once wait for the one that makes, and give signs of life meanwhile") {
  Node node;
  const auto shared = shared_memory();
  const auto work = [&] {
    std::jthread teller([&](const std::stop_token& stop) {
      while (!stop.stop_requested())
        shared->pulse = std::max(shared->pulse.load(), Pulse::read()), usleep(1000);
    });
    NodeMemory memory(node.descriptor());
    const auto held = memory.bytes_of("text", {node.path(kNumber)}, [&](const Room& room) {
      ++shared->made;
      while (shared->pulse < Pulse::read() + 3) usleep(1000);
      room(1)[0] = 'x';
      return Status();
    });
    memory.seal();
    if (!held.ok() || held.value().bytes[0] != 'x') _exit(1);
  };
  std::vector<pid_t> workers(4);
  for (pid_t& worker : workers) worker = in_another_process(work);
  for (const pid_t worker : workers) CHECK(status_of(worker) == 0);
  CHECK(shared->made == 1);
}

TEST_CASE("where the file may not grow a worker has memory of its own") {
  Node node;
  const pid_t limited = in_another_process([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit little{.rlim_cur = 1000, .rlim_max = 1000};
    setrlimit(RLIMIT_FSIZE, &little);
    if (node.both(node.descriptor()) != "1234512345aa" || node.made != 2) _exit(1);
  });
  CHECK(status_of(limited) == 0);
  CHECK(node.both(node.descriptor()) == "1234512345aa");
  CHECK(node.made == 2);
}

TEST_CASE("the data sets of a node's workers are the same, made or found") {
  const Folder folder;
  write_text(folder / "train-images-idx3-ubyte.gz", gzip(idx_file({3, 2, 2}, "abcdefghijkl")));
  write_text(folder / "train-labels-idx1-ubyte", idx_file({3}, std::string("\1\2\3", 3)));
  write_text(folder / "train.csv", "1.5,2.5,1\n3.5,4.5,0\n");
  const DataConfig images{.type = DataType::kFashionMnist, .path = folder.path().string()};
  DataConfig rows{.type = DataType::kCsv, .path = folder.path().string()};
  rows.label_column = "3";
  for (const DataConfig& config : {images, rows}) {
    const Node node;
    const auto load = [&] {
      NodeMemory memory(node.descriptor());
      auto data = load_dataset(config, Split::kTrain, memory);
      memory.seal();
      return data;
    };
    const auto made = load(), found = load(), own = load_dataset(config, Split::kTrain);
    CHECK(node.sealed());
    for (const auto& data : {std::cref(made), std::cref(found)}) {
      CHECK(data.get()->spec() == own->spec());
      CHECK(data.get()->size() == own->size());
      CHECK(samples_of(*data.get(), {1, 0}).values == samples_of(*own, {1, 0}).values);
      CHECK(samples_of(*data.get(), {1, 0}).targets == samples_of(*own, {1, 0}).targets);
    }
  }
}

}  // namespace
}  // namespace dtrun::worker::node_memory_test
