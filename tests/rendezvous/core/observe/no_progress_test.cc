#include "rendezvous/core/observe/no_progress.h"

#include <doctest/doctest.h>

namespace dtrun::no_progress_test {

using namespace dtrun::rendezvous;

namespace {

// Ranks 0 and 1 are on node0, ranks 2 and 3 on node1, and so on. All get on.
RankReports ranks(int count) {
  RankReports reports;
  for (int rank = 0; rank < count; ++rank) reports[rank].host = "node" + std::to_string(rank / 2);
  return reports;
}

Quiet waits(int peer, double seconds, bool overdue = true) {
  return {.why = Quiet::kWaits,
          .seconds = seconds,
          .overdue = overdue,
          .peer = peer,
          .operation = Operation::Kind::kReceive,
          .step = 117,
          .bucket = 2};
}

Quiet stands(Quiet::Why why, double seconds, const std::string& where,
             Activity activity = Activity::kElsewhere) {
  return {.why = why, .seconds = seconds, .overdue = true, .where = where, .activity = activity};
}

}  // namespace

TEST_CASE("the rank that others wait for, and that waits for nobody, is named with what it has not done") {
  RankReports reports = ranks(4);
  reports[0].quiet = waits(1, 31);
  reports[1].quiet = waits(3, 30.5);
  reports[2].quiet = waits(3, 32);
  reports[3].quiet = {.why = Quiet::kSilent, .seconds = 33, .where = "stopped (by a signal)"};
  CHECK(no_progress_text(reports) ==
        "rank 3 on node1 has not sent bucket 2 of step 118 for 32 s; it stands at: stopped (by a signal); 3 "
        "ranks "
        "wait for it");
  CHECK(waited_for(reports).size() == 1);
}

TEST_CASE("a node that is out of touch is told to be") {
  RankReports reports = ranks(4);
  for (int rank : {0, 1}) reports[rank].quiet = waits(2, 40);
  reports[2].out_of_touch = true;
  CHECK(no_progress_text(reports) ==
        "rank 2 on node1 has not sent bucket 2 of step 118 for 40 s; its node is out of touch; 2 ranks wait "
        "for "
        "it");
}

TEST_CASE("several ranks that are waited for are named, the others counted") {
  RankReports reports = ranks(8);
  for (int rank = 0; rank < 4; ++rank) reports[rank].quiet = waits(4 + rank, 30 + rank);
  CHECK(no_progress_text(reports) ==
        "rank 4 on node2 has not sent bucket 2 of step 118 for 30 s; rank 5 on node2 has not sent bucket 2 "
        "of step "
        "118 for 31 s; and 2 other ranks; 4 ranks wait for them");
}

TEST_CASE("ranks that wait for each other are told, and none is blamed") {
  RankReports reports = ranks(2);
  reports[0].quiet = waits(1, 30);
  reports[1].quiet = waits(0, 31);
  CHECK(no_progress_text(reports) == "ranks 0-1 wait for each other at step 118 for 31 s");
}

TEST_CASE("ranks that wait for all others wait for those that do not wait") {
  RankReports reports = ranks(4);
  for (int rank : {0, 1, 3}) {
    reports[rank].quiet = waits(-1, 45);
    reports[rank].quiet->operation = Operation::Kind::kDevices;
    reports[rank].quiet->bucket = -1;
  }
  CHECK(no_progress_text(reports) ==
        "rank 2 on node1 has not joined the exchange of step 118 for 45 s; 3 ranks wait for it");
}

TEST_CASE("each kind of wait has its words") {
  using Kind = Operation::Kind;
  const auto text = [](Kind kind, int bucket) {
    RankReports reports = ranks(2);
    reports[0].quiet = waits(1, 30);
    reports[0].quiet->operation = kind;
    reports[0].quiet->bucket = bucket;
    return no_progress_text(reports);
  };
  CHECK(text(Kind::kSend, 1).starts_with("rank 1 on node0 has not taken bucket 1 of step 118 for 30 s"));
  CHECK(text(Kind::kSend, -1).starts_with("rank 1 on node0 has not begun step 118 for 30 s"));
  CHECK(text(Kind::kStopVote, -1)
            .starts_with("rank 1 on node0 has not voted whether to stop after step 118 for"));
  CHECK(text(Kind::kEvaluation, -1)
            .starts_with("rank 1 on node0 has not sent its part of the evaluation after step 117 for"));
  CHECK(text(Kind::kGather, -1).starts_with("rank 1 on node0 has not joined a gather at step 117 for"));
}

TEST_CASE("a silent rank that nobody waits for is told with the place where it stands") {
  RankReports reports = ranks(2);
  reports[1].quiet = stands(Quiet::kSilent, 301, "read of /data/shard7");
  CHECK(no_progress_text(reports) ==
        "rank 1 on node0 has given no sign of life for 5 min: rank 1: read of /data/shard7");
  reports[1].quiet->overdue = false;
  CHECK(no_progress_text(reports).empty());
}

TEST_CASE("where nobody gets anything done the places are merged, and the rank that stands out is named") {
  RankReports reports = ranks(4);
  for (auto& [rank, report] : reports)
    report.quiet = stands(Quiet::kIdle, 600, "all_reduce at train.py:88", Activity::kWaitsForPeers);
  reports[1].quiet = stands(Quiet::kIdle, 605, "sleep at loader.py:41");
  CHECK(no_progress_text(reports) ==
        "no worker has written, computed or read anything for 10 min: ranks 0, 2-3: all_reduce at "
        "train.py:88 · rank "
        "1: sleep at loader.py:41; likely cause: rank 1 on node0, which does not wait for another rank");
  for (int rank : {2, 3}) reports[rank].quiet.reset();
  CHECK(no_progress_text(reports).starts_with("no worker of node0 has written"));
}

TEST_CASE("people are told once, after all nodes could report, and once when the ranks get on") {
  NoProgress watch;
  RankReports reports = ranks(2);
  CHECK_FALSE(watch.due(false, 500));
  CHECK(watch.due(true, 500));
  CHECK_FALSE(watch.look(reports, 1000).has_value());
  reports[0].quiet = waits(1, 30);
  CHECK_FALSE(watch.due(true, 1500));
  CHECK_FALSE(watch.look(reports, 2000).has_value());
  CHECK(watch.due(false, 3000));
  CHECK_FALSE(watch.look(reports, 2000 + NoProgress::kPatience - 1).has_value());
  const News told = watch.look(reports, 2000 + NoProgress::kPatience).value();
  CHECK(told.kind == News::kNoProgress);
  CHECK(told.host == "node0");
  CHECK(told.text.starts_with("rank 1 on node0 has not sent"));
  for (Millis now = 13000; now < 100000; now += 1000) CHECK_FALSE(watch.look(reports, now).has_value());
  const News again = watch.look(ranks(2), 101000).value();
  CHECK(again.kind == News::kProgress);
  CHECK(again.text == "the workers get on again, 89 s after they were told of");
  CHECK_FALSE(watch.look(ranks(2), 102000).has_value());
  CHECK_FALSE(watch.due(false, 200000));
}

TEST_CASE("what is over before all nodes could report is not told at all") {
  NoProgress watch;
  RankReports reports = ranks(2);
  reports[0].quiet = waits(1, 30);
  CHECK_FALSE(watch.look(reports, 1000).has_value());
  CHECK_FALSE(watch.look(ranks(2), 4000).has_value());
  CHECK_FALSE(watch.look(reports, 8000).has_value());
  CHECK(watch.look(reports, 8000 + NoProgress::kPatience).has_value());
}

}  // namespace dtrun::no_progress_test
