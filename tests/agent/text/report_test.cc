#include "agent/text/report.h"

#include <doctest/doctest.h>

#include <csignal>

#include "agent/text/progress_text.h"

namespace dtrun::report_test {

using namespace dtrun::agent;
using namespace dtrun::rendezvous;

namespace {

WorkerOutcome worker(int rank, const std::string& host, int code, int signal, bool collateral) {
  WorkerOutcome outcome;
  outcome.rank = rank;
  outcome.local_rank = rank % 2;
  outcome.host = host;
  outcome.pid = 4711;
  outcome.exit_code = code;
  outcome.signal = signal;
  outcome.collateral = collateral;
  outcome.uptime_s = 12.34;
  return outcome;
}

}  // namespace

TEST_CASE("the report names the culprit, its last words, the restarts, and who followed") {
  JobEnd end;
  end.exit_code = 1;
  end.first_failure = worker(3, "node-b", 1, 0, false);
  end.first_failure->stderr_tail = {"Traceback (most recent call last):", "ValueError: boom"};
  end.first_failure->error = "boom";
  end.first_failure->ended_at = 1795276450.5;
  end.followers = {worker(0, "node-a", 0, SIGTERM, true), worker(2, "node-b", 0, SIGSEGV, false)};
  end.restart_count = 3;
  CHECK(failure_report(end, 3) ==
        "the job failed: rank 3 on node-b failed first: exit code 1\n"
        "  after 12.3 s, at 2026-11-21 15:54:10 UTC; local rank 1, pid 4711\n"
        "  error:\n"
        "    boom\n"
        "  last lines of its stderr:\n"
        "    Traceback (most recent call last):\n"
        "    ValueError: boom\n"
        "  restarts used: 3 of 3\n"
        "  followed: rank 0 on node-a, signal 15 (SIGTERM)\n"
        "  followed: rank 2 on node-b, signal 11 (SIGSEGV) of its own");
}

TEST_CASE("an error that several ranks have alike is said once, with the ranks") {
  JobEnd end;
  end.first_failure = worker(1, "node-a", 65, 0, false);
  end.first_failure->error = "training diverged";
  for (const int rank : {0, 2, 4}) {
    end.followers.push_back(worker(rank, "node-a", 65, 0, false));
    end.followers.back().error = "training diverged";
  }
  end.followers[2].error = "another one";
  end.followers.push_back(worker(3, "node-b", 77, 0, true));
  CHECK(failure_report(end, 0) ==
        "the job failed: rank 1 on node-a failed first: exit code 65\n"
        "  after 12.3 s; local rank 1, pid 4711\n"
        "  error of ranks 0-2, the same for each:\n"
        "    training diverged\n"
        "  followed: rank 4 on node-a, exit code 65 of its own\n"
        "  followed: rank 3 on node-b, exit code 77");
  end.first_failure->error = "";
  for (auto& follower : end.followers) follower.error = "";
  CHECK(failure_report(end, 0).find("followed: ranks 0") !=
        std::string::npos);  // nothing says that they are alike
}

TEST_CASE("what the GPU had to do with a failure stands before the worker's own words") {
  JobEnd end;
  end.first_failure = worker(3, "node-b", 0, SIGABRT, false);
  end.first_failure->stderr_tail = {"CUDA error"};
  end.first_failure->gpu = "GPU 3 (0000:5e:00.0): Xid 79\nGPU 3 (0000:5e:00.0): Xid 74";
  CHECK(failure_report(end, 0) ==
        "the job failed: rank 3 on node-b failed first: signal 6 (SIGABRT)\n"
        "  after 12.3 s; local rank 1, pid 4711\n"
        "  GPU 3 (0000:5e:00.0): Xid 79\n"
        "  GPU 3 (0000:5e:00.0): Xid 74\n"
        "  last lines of its stderr:\n"
        "    CUDA error");
}

TEST_CASE("a failure that would come back says why no restart was tried") {
  JobEnd end;
  end.first_failure = worker(0, "a", 66, 0, false);
  end.first_failure->retryable = false;
  CHECK(failure_report(end, 3).ends_with("0 of 3 (the same failure would come back)"));
  end.reason = "rank 0 on a failed (exit code 66), the same way 3 times in a row";
  CHECK(failure_report(end, 3).ends_with("0 of 3 (the same way 3 times in a row)"));
}

TEST_CASE("empty lines are shown only between others, and without blanks") {
  JobEnd end;
  end.first_failure = worker(0, "a", 1, 0, false);
  end.first_failure->stderr_tail = {"", " ", "Fatal Python error: Aborted", "", "Thread 1:", "  f", "\t"};
  CHECK(failure_report(end, 0).ends_with(
      "  last lines of its stderr:\n    Fatal Python error: Aborted\n\n    Thread 1:\n      f"));
  end.first_failure->stderr_tail = {"", " "};
  CHECK(failure_report(end, 0).find("stderr") == std::string::npos);
}

TEST_CASE("an error is shown once, although it is also what stderr ends in") {
  JobEnd end;
  end.first_failure = worker(0, "a", 78, 0, false);
  end.first_failure->error = "runs/x is in use\nwait";
  end.first_failure->stderr_tail = {"warning: y", "runs/x is in use", "wait"};
  CHECK(failure_report(end, 0) ==
        "the job failed: rank 0 on a failed first: exit code 78\n"
        "  after 12.3 s; local rank 0, pid 4711\n"
        "  error:\n"
        "    runs/x is in use\n"
        "    wait\n"
        "  last lines of its stderr:\n"
        "    warning: y");
  end.first_failure->stderr_tail = {"runs/x is in use", "wait"};
  CHECK(failure_report(end, 0).ends_with("    wait"));
}

TEST_CASE("a traceback is shown once, although it is also what stderr ends in") {
  JobEnd end;
  end.first_failure = worker(0, "a", 1, 0, false);
  end.first_failure->error = "ValueError: boom";
  end.first_failure->traceback =
      "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    g()\nValueError: boom";
  end.first_failure->stderr_tail = {"warning: x", "    g()", "ValueError: boom", "bye"};
  CHECK(failure_report(end, 0) ==
        "the job failed: rank 0 on a failed first: exit code 1\n"
        "  after 12.3 s; local rank 0, pid 4711\n"
        "  error:\n"
        "    ValueError: boom\n"
        "  traceback:\n"
        "    Traceback (most recent call last):\n"
        "      File \"a.py\", line 1, in f\n"
        "        g()\n"
        "    ValueError: boom\n"
        "  last lines of its stderr:\n"
        "    warning: x\n"
        "    (the traceback above)\n"
        "    bye");
  end.first_failure->stderr_tail = {"something else"};
  CHECK(failure_report(end, 0).ends_with("last lines of its stderr:\n    something else"));
}

TEST_CASE("a thousand followers that ended alike make a line per host, and very many hosts a last line") {
  JobEnd end;
  end.first_failure = worker(2, "a", 1, 0, false);
  for (int rank = 0; rank < 1000; ++rank) {
    if (rank != 2) end.followers.push_back(worker(rank, rank < 8 ? "a" : "b", 0, SIGTERM, true));
  }
  CHECK(failure_report(end, 0, "logs/report.json")
            .ends_with("  followed: ranks 0-1, 3-7 on a, signal 15 (SIGTERM)\n"
                       "  followed: ranks 8-999 on b, signal 15 (SIGTERM)\n"
                       "  all of it: logs/report.json"));
  for (int rank = 0; rank < 20; ++rank) {
    end.followers.push_back(worker(1000 + rank, "c" + std::to_string(rank), 0, SIGTERM, true));
  }
  CHECK(failure_report(end, 0).ends_with("\n  and others on 6 more hosts"));
}

TEST_CASE("followers have at most 16 lines, the rest is counted") {
  for (const int hosts : {16, 17}) {
    CAPTURE(hosts);
    JobEnd end;
    end.first_failure = worker(0, "a", 1, 0, false);
    for (int host = 1; host <= hosts; ++host)
      end.followers.push_back(worker(host, "h" + std::to_string(host), 0, SIGTERM, true));
    const std::string text = failure_report(end, 0);
    CHECK(text.find("followed: rank 16 on h16,") != std::string::npos);
    CHECK(text.ends_with("\n  and others on 1 more hosts") == (hosts == 17));
    CHECK(text.find("on h17") == std::string::npos);
  }
}

TEST_CASE("what the kernel or a hang did to a worker is part of how it ended") {
  JobEnd end;
  end.first_failure = worker(0, "a", 0, SIGKILL, false);
  end.first_failure->cause = dtrun::EndCause::kOutOfMemory;
  CHECK(failure_report(end, 0).starts_with(
      "the job failed: rank 0 on a failed first: signal 9 (SIGKILL): out of memory\n"));
  end.first_failure->cause = dtrun::EndCause::kHung;
  CHECK(failure_report(end, 0).starts_with(
      "the job failed: rank 0 on a failed first: signal 9 (SIGKILL): it hung\n"));
}

TEST_CASE("of a hang every rank's place is told, and the likely cause only where one stands out") {
  JobEnd end;
  end.exit_code = 137;
  Hang& hang = end.hang.emplace();
  hang.ranks = {{0, 2}};
  hang.what = "no progress for 4 s";
  hang.places = {{{{0, 0}, {2, 2}}, "all_reduce at train.py:88"}, {{{1, 1}}, "sleep at loader.py:41"}};
  hang.verdict = "the verdict";
  for (int rank : {0, 1, 2}) {
    end.followers.push_back(worker(rank, "a", 0, SIGKILL, false));
    end.followers.back().activity = Activity::kWaits;
  }
  end.reason = "ranks 0-2 hang: …";
  const std::string heading = "the job failed: ranks 0-2 hang: no progress for 4 s\n";
  const std::string places = "  ranks 0, 2: all_reduce at train.py:88 · rank 1: sleep at loader.py:41\n";
  CHECK(failure_report(end, 0) == heading + places + "  the verdict");
  CHECK(failure_report(end, 1, "l/report.json") ==
        heading + places + "  the verdict\n  restarts used: 0 of 1\n  all of it: l/report.json");

  end.first_failure = worker(1, "a", 0, SIGKILL, false);
  end.first_failure->error = hang.what;
  end.first_failure->stderr_tail = {"loading shard 7"};
  CHECK(failure_report(end, 0) == heading + places +
                                      "  the verdict\n  after 12.3 s; local rank 1, pid 4711\n"
                                      "  last lines of its stderr:\n    loading shard 7");
  end.first_failure->activity = Activity::kSilent;
  end.first_failure->cause = dtrun::EndCause::kHung;
  CHECK(failure_report(end, 0).starts_with(
      "the job failed: rank 1 on a failed first: signal 9 (SIGKILL): it hung\n" + places));

  for (int rank = 3; rank < 12; ++rank)
    hang.places.push_back({{{rank, rank}}, "read of /data/shard" + std::to_string(rank)});
  hang.more = 7;
  const std::string text = failure_report(end, 0);
  CHECK(text.find("\n  rank 1: sleep at loader.py:41\n  rank 3: read of /data/shard3\n") !=
        std::string::npos);
  CHECK(text.find("\n  7 more elsewhere\n") != std::string::npos);
}

TEST_CASE("a terminal has a blank line below the report, colour makes its heading stand out") {
  JobEnd end;
  end.reason = "only 1 of 2 nodes joined within 10 s";
  CHECK(failure_report(end, 0, "", {true, dtrun::Palette(true)}) ==
        "\x1b[1;31monly 1 of 2 nodes joined within 10 s\x1b[0m\n");
  CHECK(failure_report(end, 0, "", {true, dtrun::Palette()}) == "only 1 of 2 nodes joined within 10 s\n");
}

TEST_CASE("a job that ended without a failed worker says the coordinator's reason") {
  JobEnd end;
  end.reason = "only 1 of 2 nodes joined within 10 s";
  CHECK(failure_report(end, 0) == "only 1 of 2 nodes joined within 10 s");
}

TEST_CASE("progress as a line and as a bar that never wraps") {
  Progress progress;
  progress.phase = Progress::Phase::kTraining;
  progress.step = 1290;
  progress.total_steps = 2345;
  progress.loss = 0.3119;
  progress.samples_per_second = 9812.4;
  CHECK(progress_line(progress, 200) ==
        "step 1290 of 2345 (55 %), loss 0.312, 9,812 samples/s, 3 min 20 s left");
  CHECK(progress_bar(progress, 200, 120) ==
        "[=============>          ]  55 %  1290/2345  loss 0.312  9,812 samples/s  3 min 20 s left");
  // A narrow terminal takes it from the bar, not from the facts.
  CHECK(progress_bar(progress, 200, 80) ==
        "[=======>      ]  55 %  1290/2345  loss 0.312  9,812 samples/s  3 min 20 s left");
  CHECK(progress_bar(progress, 200, 80).size() == 79);
  CHECK(progress_bar(progress, 200, 66) == " 55 %  1290/2345  loss 0.312  9,812 samples/s  3 min 20 s left");
  CHECK(progress_bar(progress, 200, 20).size() == 19);
  progress.step = progress.total_steps;
  CHECK(progress_bar(progress, 200, 120).starts_with("[========================] 100 %"));
  progress.phase = Progress::Phase::kEvaluating;
  CHECK(progress_bar(progress, 200, 60) == "[================] 100 %  2345/2345  loss 0.312  evaluating");
}

TEST_CASE("a bar has 24 columns where there is room, and at least 6") {
  Progress progress;
  progress.phase = Progress::Phase::kTraining;
  progress.total_steps = 100;
  const std::string text = "  0 %  0/100";
  const auto bar = [&](int width) {
    return "[>" + std::string(static_cast<std::size_t>(width) - 1, ' ') + "] " + text;
  };
  const int beside = static_cast<int>(text.size()) + 3 + 1;  // brackets, a blank, and the last column
  CHECK(progress_bar(progress, {}, beside + 25) == bar(24));
  CHECK(progress_bar(progress, {}, beside + 24) == bar(24));
  CHECK(progress_bar(progress, {}, beside + 23) == bar(23));
  CHECK(progress_bar(progress, {}, beside + 6) == bar(6));
  CHECK(progress_bar(progress, {}, beside + 5) == text);
}

TEST_CASE("a run beyond its last step, as with a smaller max_steps, is at 100 %") {
  Progress progress;
  progress.step = 388;
  progress.total_steps = 10;
  CHECK(progress_line(progress, {}).starts_with("step 388 of 10 (100 %)"));
  CHECK(progress_bar(progress, {}, 80).size() < 80);
}

TEST_CASE("a restarted job claims no loss before its first step") {
  Progress progress;
  progress.phase = Progress::Phase::kEvaluating;
  progress.step = progress.total_steps = 2345;
  CHECK(progress_line(progress, {}) == "step 2345 of 2345 (100 %), evaluating");
}

TEST_CASE("time left follows the pace of the last half minute") {
  Pace pace;
  CHECK_FALSE(pace.seconds_left(0, 1000, 0).has_value());
  CHECK(*pace.seconds_left(100, 1000, 10) == doctest::Approx(90));
  for (int t = 11; t <= 60; ++t) (void)pace.seconds_left(100 + (t - 10) * 2, 1000, t);
  CHECK(*pace.seconds_left(202, 1000, 61) == doctest::Approx(399));
  CHECK_FALSE(pace.seconds_left(50, 1000, 62).has_value());
}

TEST_CASE("time left is guessed from a second of steps on, and forgets those of 30 s ago") {
  for (const double now : {0.999, 1.0}) {
    Pace pace;
    CHECK_FALSE(pace.seconds_left(0, 1000, 0).has_value());
    CHECK(pace.seconds_left(100, 1000, now).has_value() == (now == 1.0));
  }
  for (const double now : {30.999, 31.0}) {
    Pace pace;
    (void)pace.seconds_left(0, 1000, 0);
    (void)pace.seconds_left(400, 1000, 1);  // a fast second
    const double per_second = now == 31.0 ? 100 / 30.0 : 500 / now;
    CHECK(*pace.seconds_left(500, 1000, now) == doctest::Approx(500 / per_second));
  }
}

}  // namespace dtrun::report_test
