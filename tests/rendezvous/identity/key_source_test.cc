#include "rendezvous/identity/key_source.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/folder.h"

namespace dtrun::rendezvous::key_source_test {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::Folder;

TEST_CASE("who can connect follows from the coordinator's host") {
  for (const char* const host : {"", "unix:/tmp/a/coordinator"}) CHECK(reach_of(host) == Reach::kUser);
  for (const char* const host : {"localhost", "127.0.0.1", "127.9.8.7", "::1"})
    CHECK_MESSAGE(reach_of(host) == Reach::kMachine, host);
  // A name may begin like an address, and belong to any host.
  for (const char* const host : {"node0", "10.0.0.1", "0.0.0.0", "::", "fd00::1", "127.0.0.1.example.org",
                                 "localhost.example.org", "*"})
    CHECK_MESSAGE(reach_of(host) == Reach::kNetwork, host);
}

TEST_CASE("of several keys the first in the order counts, of none the user's") {
  const std::optional<Named> none, option(Named{"--key_file", "f"}), variable(Named{"DTRUN_KEY_FILE", "f"}),
      unset(Named{"DTRUN_KEY_FILE", ""});
  const struct {
    const char* what;
    KeyOffer offer;
    Reach reach;
    KeyChoice choice;
  } table[] = {
      {"everything", {option, none, "t", "3"}, Reach::kNetwork, KeyChoice::kFile},
      {"the file's variable", {variable, none, "t", "3"}, Reach::kMachine, KeyChoice::kFile},
      {"its variable is empty", {unset, none, "t", "3"}, Reach::kNetwork, KeyChoice::kText},
      {"the key as text", {none, none, "t", "3"}, Reach::kNetwork, KeyChoice::kText},
      {"a descriptor", {none, none, "", "3"}, Reach::kNetwork, KeyChoice::kDescriptor},
      {"nothing", {}, Reach::kNetwork, KeyChoice::kUsers},
      {"nothing, on loopback", {}, Reach::kMachine, KeyChoice::kUsers},
      {"nothing, on a Unix socket", {}, Reach::kUser, KeyChoice::kPlain},
      {"all, on a Unix socket", {option, none, "t", "3"}, Reach::kUser, KeyChoice::kPlain},
      {"plain text", {none, Named{"--insecure", "true"}}, Reach::kNetwork, KeyChoice::kPlain},
      {"plain text, and no file",
       {unset, Named{"DTRUN_INSECURE", "true"}},
       Reach::kMachine,
       KeyChoice::kPlain},
  };
  for (const auto& row : table) {
    CAPTURE(row.what);
    const Result<KeyChoice> choice = choose_key(row.offer, row.reach);
    REQUIRE(choice.ok());
    CHECK(choice.value() == row.choice);
  }
}

TEST_CASE("a key and plain text, or a file without a name, is a wrong command line") {
  const Named insecure{"--insecure", "true"}, file{"--key_file", "f"};
  for (const KeyOffer& offer :
       {KeyOffer{file, insecure}, KeyOffer{{}, insecure, "t"}, KeyOffer{{}, insecure, "", "3"},
        KeyOffer{Named{"--key_file", ""}, {}, "t"}}) {
    const Result<KeyChoice> choice = choose_key(offer, Reach::kNetwork);
    REQUIRE(!choice.ok());
    CHECK(choice.status().exit_code() == kExitUsage);
  }
  CHECK(choose_key({{}, insecure, "t"}, Reach::kNetwork).status().message() ==
        "--insecure asks for plain text and DTRUN_KEY for a key: give one of them");
}

Result<fs::path> file_in(const std::map<std::string, std::string>& variables) {
  return users_key_file([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST_CASE("the user's key is where the configuration is") {
  CHECK(file_in({{"HOME", "/home/ada"}}).value() == "/home/ada/.config/dtrun/key");
  CHECK(file_in({{"HOME", "/home/ada"}, {"XDG_CONFIG_HOME", "/etc/ada"}}).value() == "/etc/ada/dtrun/key");
  CHECK(file_in({{"HOME", "/home/ada"}, {"XDG_CONFIG_HOME", "relative"}}).value() ==
        "/home/ada/.config/dtrun/key");
  CHECK(!file_in({}).ok());
  CHECK(!file_in({{"HOME", ""}}).ok());
}

FoundKey found(const KeyOffer& offer, const Result<fs::path>& file, bool make = true) {
  Result<FoundKey> key = find_key(offer, Reach::kNetwork, file, make);
  REQUIRE_MESSAGE(key.ok(), key.status().message());
  return std::move(key).value();
}

TEST_CASE("the user's key is made once, for this user alone, and kept") {
  const Folder folder;
  const Result<fs::path> file(folder / "config" / "dtrun" / "key");
  CHECK(found({}, file, false).why_none == "no " + file.value().string());
  CHECK(!fs::exists(folder / "config"));
  const FoundKey made = found({}, file);
  REQUIRE(made.key.has_value());
  struct stat facts {};
  REQUIRE(stat(file.value().c_str(), &facts) == 0);
  CHECK((facts.st_mode & 07777) == 0600);
  REQUIRE(stat(file.value().parent_path().c_str(), &facts) == 0);
  CHECK((facts.st_mode & 07777) == 0700);
  CHECK(*found({}, file).key == *made.key);
  CHECK(*found({}, file, false).key == *made.key);
  CHECK(std::distance(fs::directory_iterator(file.value().parent_path()), {}) == 1);  // nothing unfinished
}

TEST_CASE("of many processes that need the first key at once all get the same") {
  for (int round = 0; round < 20; ++round) {
    const Folder folder;
    const Result<fs::path> file(folder / "dtrun" / "key");
    int gate[2], answers[2];
    REQUIRE(pipe(gate) == 0);
    REQUIRE(pipe(answers) == 0);
    constexpr int kProcesses = 50;
    for (int i = 0; i < kProcesses; ++i) {
      if (fork() != 0) continue;
      char go;
      close(gate[1]);
      if (::read(gate[0], &go, 1) < 0) _exit(2);
      const auto key = find_key({}, Reach::kNetwork, file, true);
      const std::string line = key.ok() && key.value().key ? key.value().key->fingerprint() : "no key!";
      _exit(write(answers[1], line.data(), 8) == 8 ? 0 : 1);
    }
    close(gate[0]);
    close(gate[1]);  // go
    close(answers[1]);
    std::set<std::string> all;
    char answer[8];
    int count = 0;
    for (; ::read(answers[0], answer, 8) == 8; ++count) all.emplace(answer, 8);
    close(answers[0]);
    while (wait(nullptr) > 0) {
    }
    CHECK(count == kProcesses);
    CHECK(all.size() == 1);
    CHECK(all.count("no key!") == 0);
    CHECK(std::distance(fs::directory_iterator(folder / "dtrun"), {}) == 1);
  }
}

TEST_CASE("a process that is killed while it makes the key leaves none that is half a key") {
  std::set<std::string> all;
  for (int delay = 0; delay < 400; delay += 4) {
    const Folder folder;
    const Result<fs::path> file(folder / "dtrun" / "key");
    const pid_t pid = fork();
    if (pid == 0) {
      (void)find_key({}, Reach::kNetwork, file, true);
      _exit(0);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(delay));
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    const FoundKey key = found({}, file);
    REQUIRE(key.key.has_value());
    all.insert(key.key->text());
    CHECK(found({}, file).key == key.key);
  }
  CHECK(all.size() == 100);
}

TEST_CASE("where no key can be kept there is none, and it says why") {
  CHECK(found({}, Status(kExitNoPermission, "HOME is not set")).why_none == "HOME is not set");
  const FoundKey nowhere = found({}, fs::path("/nonexistent/ada/.config/dtrun/key"));
  CHECK(!nowhere.key);
  CHECK(nowhere.why_none == "/nonexistent/ada/.config/dtrun/key cannot be made: No such file or directory");
  // No room: the part that was written is removed.
  const Folder folder;
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit none{10, 10};
    setrlimit(RLIMIT_FSIZE, &none);
    const auto key = find_key({}, Reach::kNetwork, folder / "dtrun" / "key", true);
    _exit(key.ok() && !key.value().key && contains(key.value().why_none, "File too large") ? 0 : 1);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  CHECK(status == 0);
  CHECK(fs::is_empty(folder / "dtrun"));
}

TEST_CASE("a user's key that is broken or that everybody may read is not passed over") {
  const Folder folder;
  const fs::path file = folder / "key";
  test::write_text(file, "dtk1_tooshort\n");
  chmod(file.c_str(), 0600);
  Result<FoundKey> key = find_key({}, Reach::kMachine, file, true);
  REQUIRE(!key.ok());
  CHECK(key.status().exit_code() == kExitNoPermission);
  CHECK(key.status().message().starts_with(file.string() + ": "));
  test::write_text(file, JobKey::random().text());
  chmod(file.c_str(), 0644);
  key = find_key({}, Reach::kMachine, file, true);
  REQUIRE(!key.ok());
  CHECK(contains(key.status().message(), "every user of this machine may read this key"));
}

TEST_CASE("what is longer than 4096 bytes is no key's file, and is told as such") {
  const Folder folder;
  for (const std::size_t size : {4096, 4097}) {
    const fs::path file = folder / std::to_string(size);
    test::write_text(file, std::string(size, 'k'));
    chmod(file.c_str(), 0600);
    const Result<FoundKey> key = find_key({}, Reach::kMachine, file, true);
    REQUIRE(!key.ok());
    CHECK(contains(key.status().message(), "this is no key, it is too long") == (size > 4096));
  }
}

TEST_CASE("a key on a descriptor is read once, and the descriptor closed; what cannot be read is refused") {
  const JobKey key = JobKey::random();
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const std::string line = key.text() + "\n";
  REQUIRE(write(ends[1], line.data(), line.size()) == static_cast<ssize_t>(line.size()));  // stays open
  const std::string number = std::to_string(ends[0]);
  CHECK(*found({.descriptor = number}, fs::path("/nonexistent")).key == key);
  CHECK(fcntl(ends[0], F_GETFD) == -1);
  close(ends[1]);
  const auto refused = [](const std::string& descriptor) {
    const auto key = find_key({.descriptor = descriptor}, Reach::kNetwork, fs::path("/nonexistent"), true);
    REQUIRE(!key.ok());
    CHECK(key.status().message().starts_with("DTRUN_KEY_FD=" + descriptor + ": "));
    return key.status().exit_code();
  };
  CHECK(refused(number) == kExitNoInput);  // a second time
  for (const char* const wrong : {"0", "2", "-1", "x", "3x", "99999999999"})
    CHECK(refused(wrong) == kExitUsage);
  const int empty = open("/dev/null", O_RDONLY);
  CHECK(refused(std::to_string(empty)) == kExitNoPermission);
}

}  // namespace
}  // namespace dtrun::rendezvous::key_source_test
