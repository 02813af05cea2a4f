#include "cmd/history/job_life.h"

#include <doctest/doctest.h>

#include <sstream>

namespace dtrun::cmd::job_life_test {
namespace {

JobLife life_in(const std::string& text, double alive_at = 0) {
  std::istringstream stream(text);
  return read_events(stream, alive_at);
}

// An event of agent 7 on host a.
std::string event(double time, const std::string& name, const std::string& more = "") {
  return R"({"time":)" + std::to_string(time) + R"(,"host":"a","agent":7,"event":")" + name + "\"" +
         (more.empty() ? "" : "," + more) + "}\n";
}
std::string of_b(std::string line) { return line.replace(line.find("\"a\""), 3, "\"b\""); }

}  // namespace

TEST_CASE(
    "a node is at work from the start of its workers to their end, and a failure is told with its error") {
  const JobLife life =
      life_in(event(100, "start", R"("run_id":"mnist","output_dir":"/runs/m")") +
              event(101, "start_workers", R"("generation":1,"world_size":2,"reason":"all joined")") +
              event(102, "place_worker", R"("generation":1,"rank":0)") +
              event(110, "worker_ended", R"x("rank":1,"how":"signal 9 (SIGKILL)","error":"out of luck")x") +
              event(110.5, "report_failure", R"x("rank":1,"how":"signal 9 (SIGKILL)","collateral":false)x") +
              event(111, "stopped", R"("generation":1)") +
              event(112, "start_workers", R"("generation":2,"world_size":2,"reason":"rank 1 failed")") +
              event(120, "worker_ended", R"("rank":1,"how":"exit code 0","error":"")") +
              event(121, "finished") + event(122, "end", R"("exit_code":0,"reason":"all succeeded")"));
  CHECK(life.run_id == "mnist");
  CHECK(life.output_dir == "/runs/m");
  CHECK(life.begin == 100);
  CHECK(life.end == 122);
  CHECK(life.generations == 2);
  CHECK(life.failures == 1);
  REQUIRE(life.nodes.size() == 1);
  REQUIRE(life.nodes[0].spans.size() == 2);
  const WorkSpan& first = life.nodes[0].spans[0];
  CHECK(first.begin == 101);
  CHECK(first.ready == 102);
  CHECK(first.end == 111);
  CHECK(first.world_size == 2);
  CHECK(first.reason == "all joined");
  CHECK_FALSE(first.cut_short);
  CHECK(life.nodes[0].spans[1].end == 121);
  REQUIRE(life.marks.size() == 2);
  CHECK(life.marks[0].kind == "failure");
  CHECK(life.marks[0].text == "rank 1: signal 9 (SIGKILL)\nout of luck");
  CHECK(life.marks[1].text == "exit code 0: all succeeded");
}

TEST_CASE("what each node tells is there once, what happens again is there again") {
  const std::string told = event(1, "news", R"("text":"node2 left")");
  CHECK(life_in(told + of_b(told)).marks.size() == 1);
  CHECK(life_in(told + of_b(event(9, "news", R"("text":"node2 left")"))).marks.size() == 2);
  CHECK(life_in(told + told).marks.size() == 2);
}

TEST_CASE("who was slow is among the events, and the end of that is not") {
  const JobLife life = life_in(event(1, "straggler", R"("rank":3,"text":"rank 3 is slow")") +
                               event(2, "straggler", R"("rank":-1,"text":"")"));
  REQUIRE(life.marks.size() == 1);
  CHECK(life.marks[0].kind == "straggler");
  CHECK(life.marks[0].text == "rank 3 is slow");
}

TEST_CASE("the report of a failure is shown until a later run succeeds") {
  const std::string failed = event(1, "report", R"("exit_code":3,"text":"the job failed")") +
                             event(2, "end", R"("exit_code":3,"reason":"why")");
  CHECK(life_in(failed).report == "the job failed");
  CHECK(life_in(failed + event(3, "end", R"("exit_code":0,"reason":"fine")")).report.empty());
}

TEST_CASE("the work of an agent that was killed ends with its last sign, or with the metrics") {
  const std::string killed = event(100, "start_workers", R"("generation":1)") + event(105, "worker_started");
  CHECK(life_in(killed).nodes.at(0).spans.at(0).end == 105);
  CHECK(life_in(killed).nodes.at(0).spans.at(0).cut_short);
  CHECK(life_in(killed, 130).nodes.at(0).spans.at(0).end == 130);
  // The metrics are those of the second start.
  const std::string again = R"({"time":120,"host":"a","agent":8,"event":"start_workers","generation":1})";
  const JobLife life = life_in(killed + again, 150);
  REQUIRE(life.nodes.size() == 1);
  CHECK(life.nodes[0].spans.at(0).end == 120);
  CHECK(life.nodes[0].spans.at(1).end == 150);
}

TEST_CASE("hosts have rows of their own, and agents that share one and a time, too") {
  const std::string span = event(1, "start_workers", R"("generation":1)") + event(9, "end");
  std::string neighbour = span;
  for (std::size_t at = 0; (at = neighbour.find("\"agent\":7", at)) != std::string::npos; ++at)
    neighbour.replace(at, 9, "\"agent\":8");
  const JobLife life = life_in(span + of_b(event(2, "start_workers")) + of_b(event(3, "end")) + neighbour);
  REQUIRE(life.nodes.size() == 3);
  CHECK(life.nodes[0].host == "a");
  CHECK(life.nodes[1].host == "a");
  CHECK(life.nodes[2].host == "b");
}

TEST_CASE("a pause of days divides a life") {
  const JobLife life =
      life_in(event(1000, "start_workers") + event(2000, "end") + event(3000, "start_workers") +
              event(4000, "end") + event(900000, "start_workers") + event(900100, "end"));
  const auto stretches = stretches_of(life, 3600);
  REQUIRE(stretches.size() == 2);
  CHECK(stretches[0].begin == 1000);
  CHECK(stretches[0].end == 4000);
  CHECK(stretches[1].begin == 900000);
  CHECK(stretches_of(JobLife{}, 3600).empty());
}

TEST_CASE("of very many events the newest are kept, in their order") {
  std::string text;
  for (std::size_t i = 0; i < kMostMarks + 7; ++i)
    text += event(static_cast<double>(i), "news", R"("text":")" + std::to_string(i) + "\"");
  const JobLife life = life_in(text);
  REQUIRE(life.marks.size() == kMostMarks);
  CHECK(life.marks_left_out == 7);
  CHECK(life.marks.front().text == "7");
  CHECK(life.marks.back().text == std::to_string(kMostMarks + 6));
}

TEST_CASE("garbage and a torn line harm no other line") {
  const JobLife life = life_in("\xff\n[1]\n{\"event\":\"end\"}\n{\"time\":\"x\",\"event\":\"end\"}\n" +
                               event(5, "news", R"("text":7)") + R"({"time":9,"ev)");
  CHECK(life.unreadable == 5);
  CHECK(life.begin == 5);
  CHECK(life.marks.size() == 1);
}

}  // namespace dtrun::cmd::job_life_test
