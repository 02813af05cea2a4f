// The order in which files, directories and renames reach the disk decides what survives a power cut. This
// program's fsync, rename and renameat2 take the C library's place: they note that order, and fail where a
// test wants them to.
#include "worker/checkpoint/durable.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/worker/checkpoint/program_example.h"
#include "worker/base/error.h"
#include "worker/base/pulse.h"
#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/manifest.h"

namespace dtrun::worker::durable_test {
namespace {

using dtrun::test::contains;
using dtrun::test::Folder;

// "sync PATH", "rename PATH to PATH", "exchange PATH and PATH", also of calls that failed.
std::vector<std::string> calls;
// The errno with which a call fails, 0 for none.
std::function<int(const std::string& call)> fault = [](const std::string&) { return 0; };

int refused(const std::string& call) {
  calls.push_back(call);
  errno = fault(call);
  return errno == 0 ? 0 : -1;
}

std::string path_of(int fd) {
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)).string();
}

}  // namespace

extern "C" int fsync(int fd) {
  if (refused("sync " + path_of(fd)) != 0) return -1;
  return static_cast<int>(syscall(SYS_fsync, fd));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  if (refused(std::string("rename ") + from + " to " + to) != 0) return -1;
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
extern "C" int renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) noexcept {
  const std::string both[] = {from, to};
  const bool exchange = flags == RENAME_EXCHANGE;
  if (refused(exchange ? "exchange " + both[0] + " and " + both[1] : "move " + both[0] + " to " + both[1]))
    return -1;
  return static_cast<int>(syscall(SYS_renameat2, from_at, from, to_at, to, flags));
}

namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

const Lines kFiles = {kModelFile, kOptimizerFile, kStateFile, kManifestFile};

// An output directory with the checkpoint of step 100.
class TracedOutput {
 public:
  TracedOutput() {
    fault = [](const std::string&) { return 0; };
    save(100);
  }
  ~TracedOutput() {
    fault = [](const std::string&) { return 0; };
  }
  // Value: of the first parameter.
  void save(std::int64_t step, float value = 1) {
    TrainState state = example_state(step);
    state.parameters[0] = value;
    calls.clear();
    save_checkpoint(path(), kProgram, state, 0);
  }
  std::string error_of_saving(std::int64_t step, float value = 1) {
    try {
      save(step, value);
    } catch (const WorkerError& error) {
      CHECK((error.exit_code() == kExitIo || error.exit_code() == kExitCannotCreate));
      return error.what();
    }
    return "nothing thrown";
  }
  float value_of(std::int64_t step) const {
    return load_checkpoint(path() / "checkpoints" / step_name(step), kProgram).parameters[0];
  }
  // The calls since the last save() began; the output directory as OUT, the scratch one as TMP.
  Lines calls_since() const {
    Lines lines = calls;
    for (std::string& line : lines) {
      for (std::size_t at; (at = line.find(path().string())) != line.npos;)
        line.replace(at, path().string().size(), "OUT");
      const std::string scratch = "OUT/checkpoints/.tmp-";
      for (std::size_t at; (at = line.find(scratch)) != line.npos;)
        line.replace(at, line.find_first_of("/. ", at + scratch.size()) - at, "TMP");
    }
    return lines;
  }
  Lines names() const {
    Lines names;
    for (const auto& entry : fs::directory_iterator(path() / "checkpoints"))
      names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }
  fs::path path() const { return directory_.path(); }

 private:
  Folder directory_;
};

bool syncs_directory(const std::string& call) {
  return call.starts_with("sync ") && fs::is_directory(call.substr(5));
}

// All calls of a save that moves its directory in this way.
Lines writing(const Lines& then) {
  Lines lines;
  for (const std::string& file : kFiles) lines.push_back("sync TMP/" + file);
  lines.push_back("sync TMP");
  lines.insert(lines.end(), then.begin(), then.end());
  lines.push_back("sync OUT/checkpoints");
  return lines;
}

TEST_CASE("a checkpoint's files reach the disk first, then their directory, then its name, then the parent") {
  TracedOutput output;
  output.save(200);
  CHECK(output.calls_since() == writing({"move TMP to OUT/checkpoints/step-00000200"}));
  output.save(200, 7);
  CHECK(output.calls_since() == writing({"move TMP to OUT/checkpoints/step-00000200",
                                         "exchange TMP and OUT/checkpoints/step-00000200"}));
  CHECK(output.value_of(200) == 7);
}

TEST_CASE("the directory of the first checkpoint is synced too") {
  TracedOutput output;
  fs::remove_all(output.path() / "checkpoints");
  output.save(1);
  REQUIRE_FALSE(output.calls_since().empty());
  CHECK(output.calls_since().front() == "sync OUT");
}

TEST_CASE("each directory on the way is synced where it is new") {
  const Folder folder;
  calls.clear();
  make_directories(folder.path() / "a/b/c");
  const std::string above = folder.path().string();
  CHECK(calls == Lines{"sync " + above + "/a/b", "sync " + above + "/a", "sync " + above});
  calls.clear();
  make_directories(folder.path() / "a/b/c");
  CHECK(calls.empty());
}

TEST_CASE("the final model reaches the disk before it gets its name, and its directory after that") {
  TracedOutput output;
  calls.clear();
  save_model(output.path(), kProgram, example_state(1).parameters);
  CHECK(output.calls_since() == Lines{"sync OUT/.model.safetensors.tmp",
                                      "rename OUT/.model.safetensors.tmp to OUT/model.safetensors",
                                      "sync OUT"});
}

TEST_CASE("a disk that fails while it syncs is an error that names the file, and costs no older checkpoint") {
  for (const std::string& file : kFiles) {
    for (const std::int64_t step : {100, 200}) {
      CAPTURE(file);
      TracedOutput output;
      fault = [&](const std::string& call) { return call.ends_with("/" + file) ? EIO : 0; };
      const std::string error = output.error_of_saving(step, 7);
      CHECK_MESSAGE(error.starts_with("cannot sync " + output.path().string()), error);
      CHECK_MESSAGE(error.ends_with("/" + file + ": Input/output error"), error);
      CHECK(output.names() == Lines{"step-00000100"});
      CHECK(output.value_of(100) == 1);
    }
  }
}

TEST_CASE("a directory that cannot be synced for a fault of the disk is an error that names it") {
  TracedOutput output;
  const std::string checkpoints = (output.path() / "checkpoints").string();
  fault = [&](const std::string& call) {
    return syncs_directory(call) && call != "sync " + checkpoints ? EIO : 0;
  };
  const std::string scratch = output.error_of_saving(200);
  CHECK_MESSAGE(scratch.starts_with("cannot sync " + checkpoints + "/.tmp-"), scratch);
  CHECK(output.names() == Lines{"step-00000100"});

  fault = [&](const std::string& call) { return call == "sync " + checkpoints ? EIO : 0; };
  CHECK(output.error_of_saving(200) == "cannot sync " + checkpoints + ": Input/output error");
  CHECK(output.value_of(100) == 1);
}

TEST_CASE(
    "a file system that cannot sync directories keeps checkpoints all the same, one that cannot sync "
    "files does not") {
  TracedOutput output;
  fault = [](const std::string& call) { return syncs_directory(call) ? EINVAL : 0; };
  output.save(200, 7);
  CHECK(output.calls_since().back() == "sync OUT/checkpoints");
  CHECK(output.value_of(200) == 7);
  fault = [&](const std::string& call) { return call.ends_with(kModelFile) ? EINVAL : 0; };
  CHECK(output.error_of_saving(300).ends_with("/model.safetensors: Invalid argument"));
}

TEST_CASE("where a rename has no flags, a step that is there already is put aside and replaced") {
  for (const int none_such : {EINVAL, ENOSYS}) {
    CAPTURE(none_such);
    TracedOutput output;
    fault = [&](const std::string& call) {
      return call.starts_with("move") || call.starts_with("exchange") ? none_such : 0;
    };
    output.save(100, 7);
    CHECK(output.calls_since() ==
          writing({"move TMP to OUT/checkpoints/step-00000100",
                   "rename OUT/checkpoints/step-00000100 to TMP.old",
                   "rename TMP to OUT/checkpoints/step-00000100", "rename TMP.old to TMP"}));
    CHECK(output.value_of(100) == 7);
    output.save(200, 8);
    CHECK(output.value_of(200) == 8);
    CHECK(output.names() == Lines{"step-00000100", "step-00000200"});
  }
}

TEST_CASE("where the exchange alone is missing, a step that is there already is replaced too") {
  TracedOutput output;
  fault = [&](const std::string& call) { return call.starts_with("exchange") ? EINVAL : 0; };
  output.save(100, 7);
  CHECK(output.value_of(100) == 7);
  CHECK(output.names() == Lines{"step-00000100"});
}

TEST_CASE("a rename that is not allowed is an error that names both, and leaves what was there") {
  TracedOutput output;
  fault = [&](const std::string& call) { return call.starts_with("exchange") ? EACCES : 0; };
  const std::string error = output.error_of_saving(100, 7);
  CHECK_MESSAGE(error.starts_with("cannot rename " + output.path().string()), error);
  CHECK_MESSAGE(contains(error, "step-00000100: Permission denied"), error);
  CHECK(output.value_of(100) == 1);
  CHECK(output.names() == Lines{"step-00000100"});
}

TEST_CASE("a long file gives a sign of life with every 16 MiB that are written or read") {
  const Folder directory;
  const fs::path path = directory.path() / "long";
  const std::string longer((std::size_t{16} << 20) + 1, 'x');
  for (const std::size_t cut : {1, 0}) {
    CAPTURE(cut);
    const std::string_view piece[] = {std::string_view(longer).substr(cut)};
    const std::uint64_t before = Pulse::read();
    write_synced(path, piece);
    CHECK(Pulse::read() - before == 2 - cut);
    CHECK(read_whole(path).value() == piece[0]);
    CHECK(Pulse::read() - before == 2 * (2 - cut));
  }
}

}  // namespace
}  // namespace dtrun::worker::durable_test
