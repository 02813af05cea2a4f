// What the page answers, without a socket.
#include "rendezvous/http/routes.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "rendezvous/text/job_metrics.h"
#include "rendezvous/text/status_text.h"

namespace dtrun::rendezvous::routes_test {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kWall = 1764000000;

// Two runs, "job7" and "a/b <x>", each with a short history.
struct Coordinator {
  std::vector<RunView> views;
  std::string instance = "c1";
  JobMetrics metrics;

  Coordinator() {
    for (const char* id : {"job7", "a/b <x>"}) {
      RunView view;
      view.status.set_run_id(id);
      view.status.set_phase(v1::RunStatus::RUNNING);
      view.now = 60000;
      views.push_back(view);
    }
  }

  Site site() {
    return {.look =
                [this](const std::string& run_id, const HistoryMark& mark) {
                  std::vector<RunView> found;
                  for (RunView view : views) {
                    if (!run_id.empty() && view.status.run_id() != run_id) continue;
                    view.until = {.history = instance, .serial = view.history.serial()};
                    view.history = view.history.newer_than(mark.history == instance ? mark.serial : 0);
                    found.push_back(std::move(view));
                  }
                  return found;
                },
            .token = [](const std::string& run_id) { return "token of " + run_id; },
            .metrics = [this](std::span<const v1::RunStatus> runs,
                              double wall_now) { return metrics.text(runs, {}, wall_now, "0.1.0"); },
            .version = "0.1.0",
            .endpoint = "node1:29400"};
  }
};

HttpReply get(Coordinator& coordinator, const std::string& target, bool trusted = true) {
  return answer({.method = "GET", .target = target, .host = "localhost:1"}, trusted, coordinator.site(),
                kWall);
}

Progress logged(std::int64_t step, double loss) {
  Progress progress{.step = step, .times = PhaseTimes{}};
  progress.logged = {
      {.step = step, .loss = loss, .learning_rate = 0.5, .grad_norm = 1, .samples_per_second = 9}};
  return progress;
}

}  // namespace

TEST_CASE("the status of the runs is that of `dtrun status --json`") {
  Coordinator coordinator;
  const HttpReply reply = get(coordinator, "/api/v1/runs");
  CHECK(reply.status == 200);
  CHECK(reply.type == "application/json");
  const Json runs = Json::parse(reply.body);
  REQUIRE(runs.size() == 2);
  CHECK(runs[0] == status_json(coordinator.views[0].status, "node1:29400"));
  CHECK(Json::parse(get(coordinator, "/api/v1/runs/job7").body) == runs[0]);
  CHECK(Json::parse(get(coordinator, "/api/v1/runs/a/b%20%3cx%3E").body) == runs[1]);
  CHECK(get(coordinator, "/api/v1/runs/job8").status == 404);
}

TEST_CASE("it only shows: other methods, paths and names are refused") {
  Coordinator coordinator;
  const HttpReply post =
      answer({.method = "POST", .target = "/", .host = "localhost"}, true, coordinator.site(), kWall);
  CHECK(post.status == 405);
  CHECK(post.headers == std::vector<std::pair<std::string, std::string>>{{"Allow", "GET, HEAD"}});
  CHECK(answer({.method = "HEAD", .target = "/", .host = "localhost"}, true, coordinator.site(), kWall)
            .without_body);
  CHECK(answer({.method = "GET", .target = "/", .host = "evil.example"}, true, coordinator.site(), kWall)
            .status == 421);
  CHECK(answer({.method = "GET", .target = "/"}, true, coordinator.site(), kWall).status == 421);
  for (const char* target : {"/x", "/../etc/passwd", "//", "*", "", "/page.js/", "/api/v1/", "/api/v1/runs/"})
    CHECK(get(coordinator, target).status == 404);
  CHECK(get(coordinator, "/healthz").body == "ok\n");
}

TEST_CASE("who is not trusted needs the token of a run, and then sees this run alone") {
  Coordinator coordinator;
  for (const char* target :
       {"/", "/api/v1/runs", "/api/v1/runs/job7", "/api/v1/runs/job8", "/api/v1/stream",
        "/api/v1/stream?run=job7", "/api/v1/runs/job7/series", "/?token=", "/?token=x"}) {
    CAPTURE(target);
    CHECK(get(coordinator, target, false).status == 403);
  }
  CHECK(get(coordinator, "/page.js", false).status == 200);
  CHECK(get(coordinator, "/healthz", false).status == 200);
  const std::string token = "token=token+of%20job7";
  CHECK(Json::parse(get(coordinator, "/api/v1/runs?" + token, false).body).size() == 1);
  CHECK(get(coordinator, "/api/v1/runs/job7?" + token, false).status == 200);
  CHECK(get(coordinator, "/api/v1/runs/a/b%20%3Cx%3E?" + token, false).status == 403);
  CHECK(get(coordinator, "/api/v1/stream?" + token, false).stream->run_id == "job7");
  const HttpReply page = get(coordinator, "/?" + token, false);
  CHECK(page.body.find("run job7 at") != std::string::npos);
  CHECK(page.body.find("a/b") == std::string::npos);
  const HttpRequest by_header{.method = "GET",
                              .target = "/api/v1/runs/job7",
                              .host = "localhost",
                              .authorization = "Bearer token of job7"};
  CHECK(answer(by_header, false, coordinator.site(), kWall).status == 200);
  // A browser that a foreign site led here has no token, and a token is enough under any name of this host.
  CHECK(answer({.method = "GET", .target = "/api/v1/runs/job7?" + token, .host = "10.0.0.7:29401"}, false,
               coordinator.site(), kWall)
            .status == 200);
  // A Prometheus has the token of no run, for the metrics of all.
  CHECK(get(coordinator, "/metrics?token=token+of+", false).body.find("a/b") != std::string::npos);
  CHECK(get(coordinator, "/metrics?" + token, false).body.find("a/b") == std::string::npos);
  CHECK(get(coordinator, "/api/v1/runs?token=token+of+", false).status == 403);
  Site closed = coordinator.site();
  closed.token = [](const std::string&) { return ""; };
  CHECK(answer({.method = "GET", .target = "/api/v1/runs/job7?token=", .host = "localhost"}, false, closed,
               kWall)
            .status == 403);
}

TEST_CASE("Prometheus is told of the runs that it may see, in its own format") {
  Coordinator coordinator;
  const HttpReply all = get(coordinator, "/metrics");
  CHECK(all.status == 200);
  CHECK(all.type == "text/plain; version=0.0.4; charset=utf-8");
  CHECK(all.body.find("dtrun_job_phase{run_id=\"job7\",phase=\"running\"} 1\n") != std::string::npos);
  CHECK(all.body.find("run_id=\"a/b <x>\"") != std::string::npos);
  CHECK(get(coordinator, "/metrics", false).status == 403);
  const HttpReply one = answer(
      {.method = "GET", .target = "/metrics", .host = "localhost:1", .authorization = "Bearer token of job7"},
      false, coordinator.site(), kWall);
  CHECK(one.status == 200);
  CHECK(one.body.find("run_id=\"job7\"") != std::string::npos);
  CHECK(one.body.find("a/b") == std::string::npos);
}

TEST_CASE("the page has the text of `dtrun status`, with no markup of a job's in it") {
  Coordinator coordinator;
  const HttpReply page = get(coordinator, "/");
  CHECK(page.type == "text/html; charset=utf-8");
  CHECK(page.body.find("run job7 at node1:29400: running") != std::string::npos);
  CHECK(page.body.find("run a/b &lt;x&gt; at") != std::string::npos);
  CHECK(page.body.find("<x>") == std::string::npos);
  CHECK(get(coordinator, "/?run=job7").body.find("a/b") == std::string::npos);
  CHECK(page.body.find("http") == page.body.find("http-equiv"));  // nothing is loaded from elsewhere
}

TEST_CASE("a reader gets what it lacks of the curves and events, with the times of the wall's clock") {
  Coordinator coordinator;
  History& history = coordinator.views[0].history;
  history.tell("generation", "1 node joined", 1, 10000);
  history.add(logged(10, 2.5), 1, 30000);
  const Json first = Json::parse(get(coordinator, "/api/v1/runs/job7/series").body);
  CHECK(first["series"]["loss"] == Json({{10, 2.5, kWall - 30}}));
  CHECK_FALSE(first["series"].contains("eval_loss"));
  const Json events = Json::parse(get(coordinator, "/api/v1/runs/job7/events").body);
  REQUIRE(events["events"].size() == 1);
  CHECK(events["events"][0]["kind"] == "generation");
  CHECK(events["events"][0]["time"] == kWall - 50);
  const std::string since = "?since=" + first["since"].get<std::string>();
  CHECK(Json::parse(get(coordinator, "/api/v1/runs/job7/series" + since).body)["series"].empty());
  history.add(logged(20, 2.25), 1, 40000);
  CHECK(Json::parse(get(coordinator, "/api/v1/runs/job7/series" + since).body)["series"]["loss"].size() == 1);
  coordinator.instance = "c2";  // another coordinator has another history
  CHECK(Json::parse(get(coordinator, "/api/v1/runs/job7/series" + since).body)["series"]["loss"].size() == 2);
  for (const char* strange :
       {"?since=", "?since=x", "?since=c1.x", "?since=c1.-5", "?since=.", "?since=c1.99999999999999999999"})
    CHECK(Json::parse(
              get(coordinator, std::string("/api/v1/runs/job7/series") + strange).body)["series"]["loss"]
              .size() == 2);
}

TEST_CASE("the ranks beside each other and the life are with the curves, each told once") {
  Coordinator coordinator;
  History& history = coordinator.views[0].history;
  history.spend(&kGoodputKinds[2], 10000);
  history.add_column({980, 1400, -1}, 3, 30000);
  history.spend(nullptr, 40000);
  const Json first = Json::parse(get(coordinator, "/api/v1/runs/job7/series").body);
  CHECK(first["windows"] == Json({{kWall - 30, 3, {0.98, 1.4, nullptr}}}));
  CHECK(first["life"] == Json({{"loading", kWall - 50}, {nullptr, kWall - 20}}));
  const Json later = Json::parse(
      get(coordinator, "/api/v1/runs/job7/series?since=" + first["since"].get<std::string>()).body);
  CHECK(later["windows"].empty());
  CHECK(later["life"].empty());
}

TEST_CASE("the config is told as it was resolved, of a program its words; garbage is none") {
  Coordinator coordinator;
  coordinator.views[0].config = R"({"train":{"learning_rate":0.05}})";
  const Json told = Json::parse(get(coordinator, "/api/v1/runs/job7/config").body);
  CHECK(told["config"]["train"]["learning_rate"] == 0.05);
  CHECK(told["version"] == "0.1.0");
  CHECK(told["command"].empty());
  coordinator.views[0].config = "{\"a";
  coordinator.views[0].command = {"train.py", "--lr", "1"};
  const Json other = Json::parse(get(coordinator, "/api/v1/runs/job7/config").body);
  CHECK(other["config"].is_null());
  CHECK(other["command"] == Json({"train.py", "--lr", "1"}));
  CHECK(get(coordinator, "/api/v1/runs/job7/config", false).status == 403);
}

TEST_CASE("the last words of a worker that failed are with its event") {
  Coordinator coordinator;
  History& history = coordinator.views[0].history;
  WorkerOutcome first;
  first.rank = 2;
  first.stderr_tail = {"a", "b"};
  first.error = "no such file";
  history.tell_failure("rank 2 failed", &first, 1, 10000);
  history.tell_failure("node1 was lost", nullptr, 1, 20000);
  const Json events = Json::parse(get(coordinator, "/api/v1/runs/job7/events").body)["events"];
  CHECK(events[0]["rank"] == 2);
  CHECK(events[0]["words"] == "no such file\na\nb");
  CHECK_FALSE(events[1].contains("rank"));
}

TEST_CASE("a stream begins with all there is, then has what is new, and goes on after a break") {
  Coordinator coordinator;
  History& history = coordinator.views[0].history;
  history.add(logged(10, 2.5), 1, 30000);
  const HttpReply begun = get(coordinator, "/api/v1/stream?run=job7");
  CHECK(begun.type == "text/event-stream");
  EventStream stream = *begun.stream;
  const std::string first = next_events(&stream, coordinator.site(), kWall);
  CHECK(first.find("event: point\ndata: {\"anew\":true,\"series\":{\"loss\":[[10,2.5,") != std::string::npos);
  CHECK(first.find("event: status\nid: c1.4\ndata: {\"version\"") != std::string::npos);
  CHECK(first.ends_with("}\n\n"));
  const std::string idle = next_events(&stream, coordinator.site(), kWall);
  CHECK(idle.starts_with("event: status\n"));
  CHECK(idle.find("event: point") == std::string::npos);
  history.tell("failure", "rank 1 was killed", 1, 50000);
  const std::string news = next_events(&stream, coordinator.site(), kWall);
  CHECK(news.find("event: event\ndata: {\"anew\":false,\"events\":[{\"kind\":\"failure\"") !=
        std::string::npos);

  const HttpRequest again{
      .method = "GET", .target = "/api/v1/stream?run=job7", .host = "localhost", .last_event_id = "c1.4"};
  EventStream resumed = *answer(again, true, coordinator.site(), kWall).stream;
  const std::string rest = next_events(&resumed, coordinator.site(), kWall);
  CHECK(rest.find("event: point") == std::string::npos);
  CHECK(rest.find("rank 1 was killed") != std::string::npos);
  coordinator.views.clear();
  CHECK(next_events(&resumed, coordinator.site(), kWall).empty());
}

TEST_CASE("a target is taken apart, however strange") {
  const Target target = parse_target("/a%2Fb?x=1+2&y=%41%zz&x=3&&=v&flag");
  CHECK(target.path == "/a/b");
  CHECK(target.parameter("x") == "1 2");
  CHECK(target.parameter("y") == "A%zz");
  CHECK(target.parameter("flag").empty());
  CHECK(target.parameter("none").empty());
  CHECK(parse_target("/%").path == "/%");
  CHECK(parse_target("?").parameters.empty());
}

}  // namespace dtrun::rendezvous::routes_test
