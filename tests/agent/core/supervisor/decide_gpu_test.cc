// Workers on GPUs: a failure is told before the driver is asked for the GPU's part in it, and processes start
// once those that ended hold no GPU's memory any more.
#include <csignal>

#include "tests/agent/core/supervisor/scenario.h"

namespace dtrun::agent::test::decide_gpu_test {

namespace {

Settings on_gpus(Settings settings) {
  settings.has_gpu_driver = true;
  return settings;
}

// In the first generation; both workers' processes have started.
void start(Scenario& s) {
  s.joins();
  s.happens(event::GpusFree{});
}

TEST_CASE("a failure is told first; the last word on the generation has the driver's answer") {
  Scenario s(on_gpus(external()));
  start(s);
  CHECK(s.exits(0, 0, SIGABRT) == Trace{"failure r2 signal 6", "ask gpu of #0", "signal 15"});
  CHECK(s.exits(1, 0, SIGTERM) == Trace{});
  CHECK(s.happens(event::GpuFound{.serial = 0, .trouble = "GPU 0: Xid 79"}) ==
        Trace{"stopped [r2 signal 6] [r3 signal 15 collateral]"});
  CHECK(s.state.workers.all[0].outcome.gpu == "GPU 0: Xid 79");
  CHECK(s.state.generation.reported->gpu == "GPU 0: Xid 79");
}

TEST_CASE("an answer that comes before the other workers have ended holds nothing up") {
  Scenario s(on_gpus(external()));
  start(s);
  s.exits(0, 1);
  CHECK(s.happens(event::GpuFound{.serial = 0, .trouble = ""}) == Trace{});
  CHECK(s.exits(1, 0, SIGTERM) == Trace{"stopped [r2 code 1] [r3 signal 15 collateral]"});
}

TEST_CASE("no driver is asked of a worker that succeeded, never ran, or only followed") {
  Scenario followed(on_gpus(builtin()));
  start(followed);
  CHECK(followed.exits(0, dtrun::kExitWorkerPeerLost) ==
        Trace{"failure r2 code 76 collateral", "abort", "signal 15"});
  Scenario never_ran(on_gpus(external(1)));
  start(never_ran);
  CHECK(never_ran.exits(0, 127, 0, true) ==
        Trace{"failure r2 code 127 final", "stopped [r2 code 127 final]"});
  Scenario succeeded(on_gpus(external(1)));
  start(succeeded);
  CHECK(succeeded.exits(0, 0) == Trace{"finished g1"});
}

TEST_CASE("of workers that hang each GPU is asked for, once") {
  Scenario s(on_gpus(external()));
  start(s);
  event::HangFound hang{.generation = 1, .hung = {}};
  hang.hung.emplace_back().signal = SIGKILL;
  CHECK(s.happens(hang) == Trace{"failure r2 signal 9", "ask gpu of #0"});
  s.happens(event::GpuFound{.serial = 0, .trouble = "GPU 0: Xid 62"});
  CHECK(s.exits(0, 0, SIGKILL) == Trace{"signal 15"});
  CHECK(s.state.workers.all[0].outcome.gpu == "GPU 0: Xid 62");
}

TEST_CASE("processes start once the GPUs are free, and nobody waits twice") {
  Scenario s(on_gpus(external()));
  CHECK(s.joins() == Trace{"join g0", "await gpus", "start g1 with the same workers", "heartbeat"});
  CHECK(s.happens(event::GpusFree{.note = "GPU 0 still holds memory"}) ==
        Trace{"warm up #0 (local 0, r2) #1 (local 1, r3)"});
  CHECK(printed(s, "GPU 0 still holds memory"));
  CHECK(s.happens(event::GpusFree{}) == Trace{});
}

TEST_CASE("workers that wait for a GPU end by the signal that would have ended their processes") {
  Scenario s(on_gpus(external()));
  s.joins();
  CHECK(s.happens(event::StopOrder{.generation = 1, .reason = "because"}) ==
        Trace{"signal 15", "stopped [r2 signal 15 collateral] [r3 signal 15 collateral]"});
  CHECK(s.happens(event::GpusFree{}) == Trace{});
}

TEST_CASE("workers that wait for a GPU start with the ranks of the generation that began meanwhile") {
  Scenario s(on_gpus(external()));
  s.joins();
  CHECK(s.assigned(2) == Trace{"signal 15", "stopped [r2 signal 15 collateral] [r3 signal 15 collateral]",
                               "start g2 with the same workers", "heartbeat"});
  CHECK(s.happens(event::GpusFree{}) == Trace{"warm up #2 (local 0, r2) #3 (local 1, r3)"});
}

}  // namespace

}  // namespace dtrun::agent::test::decide_gpu_test
