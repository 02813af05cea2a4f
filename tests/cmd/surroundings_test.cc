// dtrun where the machine gives less than usual: no temporary directory, a full disk, few files, few
// processes, no name for itself; and piped input.
#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/ports.h"
#include "tests/support/process.h"
#include "tests/support/skip.h"
#include "tests/support/unique.h"

namespace dtrun::surroundings_test {

using namespace dtrun::test;

namespace {

using Words = std::vector<std::string>;

// `before` is what the shell does before it becomes dtrun.
Ended run_in_shell(const std::string& before, const Words& arguments, const Words& variables = {}) {
  Words words{"/bin/sh", "-c", before + "\nexec \"$@\"", "sh", kDtrun};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return Process(words, variables).end();
}

// A user whose processes a limit counts, as it does not root's. The copy of dtrun is one that others may run:
// the build may lie below a home directory that they may not enter.
class OtherUser {
 public:
  OtherUser() : dtrun_(folder_.path() / "dtrun") {
    namespace fs = std::filesystem;
    fs::copy_file(kDtrun, dtrun_);
    const auto others = fs::perms::others_read | fs::perms::others_exec;
    for (const auto& path : {folder_.path(), dtrun_}) fs::permissions(path, others, fs::perm_options::add);
  }

  // Why nothing can be run as this user; empty if it can.
  std::string why_not() const {
    if (geteuid() != 0) return "needs root";
    Process probe({"/bin/sh", "-c", kBecome + shell_text({"test", "-x", dtrun_})});
    return probe.wait() == 0 ? "" : "another user cannot reach " + dtrun_.string();
  }

  Ended run(int processes, const Words& arguments) const {
    return run_in_shell("shift\nset -- prlimit --nproc=" + std::to_string(processes) + " " + kBecome +
                            shell_text({dtrun_}) + " \"$@\"",
                        arguments);
  }

 private:
  static inline const std::string kBecome = "setpriv --reuid=64231 --regid=64231 --clear-groups ";
  Folder folder_;
  std::filesystem::path dtrun_;
};

}  // namespace

TEST_CASE("without the temporary directory that TMPDIR names another one is taken") {
  const Ended job = run_in_shell("cd /",
                                 {"--redirects", "1", "--rdzv_id", "t", "--", "/bin/sh", "-c",
                                  "echo hidden; test -d \"$(dirname \"$TORCHELASTIC_ERROR_FILE\")\""},
                                 {"TMPDIR=/nonexistent"});
  CHECK(job.exit_code == 0);
  CHECK_MESSAGE(contains(job.err, "files are in /tmp/dtrun_"), job.err);
  std::filesystem::remove_all(
      job.err.substr(job.err.find("/tmp/dtrun_"), std::string("/tmp/dtrun_").size() + 8));
}

TEST_CASE("output that a full disk does not take is said to be lost, once") {
  const Ended job = run_in_shell("exec >/dev/full", {"--", "/bin/sh", "-c", "echo one; sleep 0.2; echo two"});
  CHECK(job.exit_code == 0);
  CHECK(job.err ==
        "dtrun: cannot write standard output: No space left on device; what the workers write there is shown "
        "no "
        "more\n");
}

TEST_CASE(
    "a closed standard stream is nothing's in particular: no worker reads or writes another file there") {
  const Ended unread = run_in_shell("exec <&-", {"--", "/bin/sh", "-c", "cat; readlink /proc/self/fd/0"});
  CHECK(unread.exit_code == 0);
  CHECK(unread.out == "[default:0] /dev/null\n");
  const Ended unwritten = run_in_shell("exec >&-", {"--", "/bin/sh", "-c", "echo lost"});
  CHECK(unwritten.exit_code == 0);
  CHECK_MESSAGE(contains(unwritten.err, "cannot write standard output: Bad file descriptor"), unwritten.err);
  const Folder nobody;  // the home of a user whose jobs come and go meanwhile
  CHECK(run_in_shell("exec >&-", {"status"}, {"XDG_RUNTIME_DIR=" + nobody.path().string()}).exit_code == 70);
}

TEST_CASE("an answer that a full disk does not take is no success") {
  for (const char* option : {"--help", "--version", "--dry_run"}) {
    const Ended asked = run_in_shell("exec >/dev/full", {option, "/bin/true"});
    CHECK(asked.exit_code != 0);
    CHECK(asked.err == "dtrun: standard output: No space left on device\n");
  }
}

TEST_CASE("events that cannot be written are said to be missing, once") {
  Folder logs;
  std::filesystem::create_directories(logs.path() / "t/events.jsonl");
  const Ended job = run_in_shell("", {"--log_dir", logs.path(), "--rdzv_id", "t", "--", "/bin/true"});
  CHECK(job.exit_code == 0);
  CHECK(job.err == "dtrun: cannot write " + (logs.path() / "t/events.jsonl").string() +
                       ": Is a directory; events are missing there\n");
}

TEST_CASE("a reader that went away early is no trouble") {
  const Ended job = run_in_shell("", {"--", "/bin/sh", "-c", "exit 0"});
  CHECK(job.exit_code == 0);
  Process piped({"/bin/sh", "-c", shell_text({kDtrun}) + " -- /usr/bin/seq 100000 | head -n 1"});
  CHECK(piped.wait() == 0);
  CHECK(piped.out() == "[default:0] 1\n");
  CHECK(piped.err() ==
        "dtrun: nobody reads standard output any more: what the workers write there is dropped, and the job "
        "goes "
        "on\n");
  Process deaf({"/bin/sh", "-c", shell_text({kDtrun}) + " -- /usr/bin/seq 100000 2>&1 | head -n 1"});
  CHECK(deaf.wait() == 0);
  CHECK(deaf.out() == "[default:0] 1\n");
}

TEST_CASE("a limit on memory ends dtrun with 71 and the way out, not with that of a missing rendezvous") {
  int refused = 0, done = 0;
  for (int kilobytes = 60000; kilobytes <= 400000; kilobytes += 10000) {
    const Ended job = run_in_shell("ulimit -v " + std::to_string(kilobytes), {"--", "/bin/true"});
    CAPTURE(kilobytes);
    CAPTURE(job.err);
    if (job.exit_code == 127) continue;  // not even its libraries fit
    CHECK((job.exit_code == 0 || job.exit_code == 71));
    job.exit_code == 0 ? ++done : ++refused;
    if (job.exit_code == 0) continue;
    CHECK(contains(job.err, "dtrun: the limit on memory of " + std::to_string(kilobytes / 1024) +
                                " MiB (ulimit -v) leaves no "));
  }
  CHECK(done > 0);
  CHECK(refused > 0);
}

TEST_CASE("a limit on stacks that is too low for threads is named by dtrun, and by its doctor") {
  const Ended refused = run_in_shell("ulimit -s 64", {"--", "/bin/true"});
  CHECK(refused.exit_code == 71);
  CHECK(
      refused.err ==
      "dtrun: the limit on stacks of 64 KiB (ulimit -s) is too low for dtrun's threads, which need 256 KiB; "
      "raise the limit\n");
  const Ended told = run_in_shell("ulimit -s 192", {"doctor"});
  CHECK_MESSAGE(contains(told.out, "the limit on stacks of 192 KiB (ulimit -s) is too low"), told.out);
  const Ended job = run_in_shell("ulimit -s 256", {"--nproc_per_node", "2", "--", "/bin/true"});
  CHECK_MESSAGE(job.exit_code == 0, job.err);
}

TEST_CASE("a limit on open files is raised as far as it goes, else named before anything starts") {
  const Ended raised =
      run_in_shell("ulimit -Sn 30", {"--nproc_per_node", "12", "--", "/bin/true"}, {"OMP_NUM_THREADS=1"});
  CHECK_MESSAGE(raised.exit_code == 0, raised.err);
  for (const char* limit : {"10", "30", "64"}) {
    const Ended refused = run_in_shell(std::string("ulimit -n ") + limit,
                                       {"--nproc_per_node", "32", "--", "/bin/true"}, {"OMP_NUM_THREADS=1"});
    CHECK(refused.exit_code == 71);
    CHECK_MESSAGE(contains(refused.err, std::string("dtrun: only ") + limit + " files may be open"),
                  refused.err);
    CHECK(contains(refused.err, "ulimit -n"));
  }
}

TEST_CASE("a limit on processes ends dtrun with a message, not with an abort" * doctest::test_suite("root")) {
  const OtherUser user;
  if (const std::string why = user.why_not(); !why.empty()) return skip(why);
  const Ended job = user.run(3, {"--", "true"});
  CHECK(job.exit_code == 71);
  CHECK_MESSAGE(contains(job.err, "dtrun: the machine refuses what dtrun needs: "), job.err);
}

TEST_CASE("workers for which a limit leaves no processes end the job with 71, the reason and the way out" *
          doctest::test_suite("root")) {
  const OtherUser user;
  if (const std::string why = user.why_not(); !why.empty()) return skip(why);
  const Ended job = user.run(40, {"--nproc_per_node", "64", "--", "sleep", "30"});
  CHECK(job.exit_code == 71);
  CHECK_MESSAGE(
      contains(job.err,
               "cannot start a process for 'sleep': Resource temporarily unavailable (see ulimit -a"),
      job.err);
}

TEST_CASE("a control group's CPU quota counts, not the machine's cores" * doctest::test_suite("root")) {
  const std::string group = unique("/sys/fs/cgroup/cpu/dtrun-surroundings");
  if (run({"mkdir", group}).exit_code != 0) return skip("needs root, and version 1 of control groups");
  write_text(group + "/cpu.cfs_quota_us", "150000");
  write_text(group + "/cpu.cfs_period_us", "100000");
  const std::string enter = "echo $$ > " + group + "/cgroup.procs";
  const Ended plan = run_in_shell(enter, {"--dry_run", "--nproc_per_node", "cpu", "--", "x"});
  const Ended job = run_in_shell(enter, {"--", "true"});
  run({"rmdir", group});
  CHECK_MESSAGE(contains(plan.out, "\"nproc_per_node\": 1,"), plan.out);
  CHECK_MESSAGE(
      contains(plan.out, "\"cpus_by\": \"cpu.cfs_quota_us of its control group /dtrun-surroundings-"),
      plan.out);
  CHECK_MESSAGE(contains(job.err, "dtrun: CPUs: 1, by cpu.cfs_quota_us of its control group"), job.err);
}

TEST_CASE("a /dev/shm as small as a container's is told of, once" * doctest::test_suite("namespaces")) {
  if (Process({"unshare", "-rm", "true"}).wait() != 0) return skip("no namespaces here");
  const auto told = [](const std::string& size, const std::string& workers) {
    return run_in_shell("set -- unshare -rm /bin/sh -c 'mount -t tmpfs -o size=" + size +
                            " tmpfs /dev/shm && exec \"$@\"' sh \"$@\"",
                        {"--nproc_per_node", workers, "-m", "this"}, {"PYTHON_EXEC=python3"})
        .err;
  };
  CHECK(contains(told("64m", "2"), "dtrun: /dev/shm has 64 MB, where PyTorch and NCCL share memory"));
  for (const std::string& err : {told("64m", "1"), told("1g", "2")})
    CHECK_MESSAGE(!contains(err, "/dev/shm"), err);
}

TEST_CASE("who is told to host the coordinator is reached by its name in a network of IPv6 alone" *
          doctest::test_suite("namespaces")) {
  if (run({"unshare", "-rmn", "ip", "-V"}).exit_code != 0) return skip("no namespaces, or no ip, here");
  const Folder folder;
  write_text(folder / "hosts", "fd00:77::1 only6\n");
  const std::string network = "mount --bind " + (folder / "hosts").string() +
                              " /etc/hosts; ip link add d0 type veth peer name d1; "
                              "ip address add fd00:77::1/64 dev d0 nodad; "
                              "for link in lo d0 d1; do ip link set $link up; done";
  const Ended job =
      run_in_shell("set -- unshare -rmn /bin/sh -ec '" + network + "; exec \"$@\"' sh \"$@\"",
                   {"--nnodes", "1:2", "--rdzv_conf", "is_host=1,last_call_timeout=0,join_timeout=20",
                    "--rdzv_endpoint", "only6", "--", "/bin/echo", "met"});
  CHECK_MESSAGE(job.exit_code == 0, job.err);
  CHECK(job.out == "[default:0] met\n");
}

TEST_CASE("localhost is this machine though /etc/hosts does not say so" * doctest::test_suite("namespaces")) {
  if (Process({"unshare", "-rm", "true"}).wait() != 0) return skip("no namespaces here");
  const Ended job = run_in_shell(
      "set -- unshare -rm /bin/sh -c 'mount --bind /dev/null /etc/hosts && exec \"$@\"' sh \"$@\"",
      {"--nnodes", "1:2", "--rdzv_conf", "last_call_timeout=0", "--rdzv_endpoint",
       "localhost:" + std::to_string(free_port()), "--", "/bin/echo", "met"});
  CHECK_MESSAGE(job.exit_code == 0, job.err);
  CHECK(job.out == "[default:0] met\n");
}

TEST_CASE("what keeps a program from being started is said") {
  Folder folder;
  const std::string here = "cd " + folder.path().string();
  std::ofstream(folder.path() / "bare_script") << "print(1)\n";
  std::ofstream(folder.path() / "lost") << "#!/nonexistent/python\n";
  std::filesystem::permissions(folder.path() / "lost", std::filesystem::perms::owner_all);
  const auto why = [&](const std::string& program, int code) {
    const Ended job = run_in_shell(here, {"--max_restarts", "3", "--", program});
    CHECK(job.exit_code == code);
    return job.err;
  };
  CHECK(contains(why("bare_script", 127),
                 "no such program in PATH (the one in this directory is ./bare_script)"));
  CHECK(contains(why("./bare_script", 126),
                 "it is not executable (chmod +x; for a Python script without .py: --run_path)"));
  CHECK(contains(why("./lost", 127), "the interpreter that its first line names is missing"));
  CHECK(contains(why(folder.path().string(), 126), "it is a directory"));
  CHECK(contains(why("./nothing", 127), "'./nothing': No such file or directory"));
}

TEST_CASE("workers read what is piped into dtrun, in every generation") {
  Process job({"/bin/sh", "-c",
               "(echo one; echo two; echo three) | " + shell_text({kDtrun}) +
                   " --max_restarts 1 -- /bin/sh -c 'read line; echo got $line; exit $((1 - "
                   "$DTRUN_RESTART_COUNT))'"});
  CHECK(job.wait() == 0);
  CHECK(job.out() == "[default:0] got one\n[default:0] got two\n");
}

}  // namespace dtrun::surroundings_test
