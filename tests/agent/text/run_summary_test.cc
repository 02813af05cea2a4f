#include "agent/text/run_summary.h"

#include <doctest/doctest.h>

using namespace dtrun;
using namespace dtrun::agent;

namespace {

Completion completion() {
  Completion done;
  done.step = 469;
  done.loss = 0.483;
  done.accuracy = 0.825;
  done.model_path = "runs/x/model.safetensors";
  done.training_seconds = 8.16;
  done.samples_per_second = 7353;
  done.math = 0.808;
  done.wait_gradients = 0.122;
  done.wait_data = 0.004;
  done.other = 0.066;
  return done;
}

}  // namespace

TEST_CASE("the final line tells what was reached and where the model lies") {
  CHECK(done_line({2345, 0.3021, 0.8912, "runs/x/model.safetensors"}) ==
        "done: 2345 steps, test accuracy 89.1 %, loss 0.302, model in runs/x/model.safetensors");
  CHECK(done_line({10, 1.5}) == "done: 10 steps, loss 1.500");
  CHECK(done_line({10, 1.5, {}, "o/model"}, "node1") ==
        "done: 10 steps, loss 1.500, model in o/model on node1");
}

TEST_CASE("a run without trouble: what was reached, how long it took, where a step's time went") {
  CHECK(summary_text(completion(), {9.44, 0, 0, 0}) ==
        "done: 469 steps, test accuracy 82.5 %, loss 0.483, model in runs/x/model.safetensors\n"
        "  9.4 s in all, 8.2 s of it training: 7,353 samples/s, 17.4 ms a step\n"
        "  of a step's time: 81 % math, 12 % waiting for gradients, 0 % waiting for data, 7 % other");
  Completion on_gpu = completion();
  on_gpu.memory = {.peak = std::uint64_t{61} << 30, .total = std::uint64_t{140} << 30};
  CHECK(summary_text(on_gpu, {9.44, 1, 0, 0})
            .ends_with("7 % other\n  GPU memory: peak 61.0 GiB of 140 GiB\n  1 restart"));
}

TEST_CASE("after a restart the times are the last generation's, and what was done again is told") {
  Completion done = completion();
  done.first_step = 400;
  done.training_seconds = 138;
  const std::string text = summary_text(done, {3723, 1, 2, 57});
  CHECK(text.find(
            "\n  1 h 02 min in all, 2 min 18 s of it training since the last interruption: 7,353 samples/s, "
            "2.00 s a step\n") != std::string::npos);
  CHECK(text.ends_with("other\n  1 restart, 2 membership changes; at least 57 steps done again"));
  CHECK(summary_text(done, {3723, 2, 0, 1}).ends_with("\n  2 restarts; at least 1 step done again"));
  CHECK(summary_text(done, {3723, 0, 1, 0}).ends_with("\n  1 membership change"));
}

TEST_CASE("a run that had nothing left to train makes no rates up") {
  Completion done = completion();
  done.first_step = done.step;
  done.training_seconds = 0;
  CHECK(summary_text(done, {0.5, 0, 0, 0}) ==
        "done: 469 steps, test accuracy 82.5 %, loss 0.483, model in runs/x/model.safetensors\n"
        "  0.5 s in all");
}

TEST_CASE("another program's end is worth a line only after restarts") {
  CHECK(program_summary_text({12.34, 0, 0, 0}).empty());
  CHECK(program_summary_text({12.34, 0, 3, 0}).empty());
  CHECK(program_summary_text({12.34, 2, 0, 0}) == "done: 12.3 s in all, 2 restarts");
  CHECK(program_summary_text({62, 1, 1, 0}) == "done: 1 min 02 s in all, 1 restart, 1 membership change");
}

TEST_CASE("a generation that never goes back behind another has done nothing again") {
  StepsRedone steps;
  steps.begin_generation(0);
  steps.progressed(500, 501);  // of an earlier run's checkpoint
  steps.progressed(500, 900);
  CHECK(steps.count() == 0);
  steps.begin_generation(0);
  steps.progressed(900, 1000);
  CHECK(steps.count() == 0);
}

TEST_CASE("each step that an earlier generation had trained counts once for every time it is trained again") {
  StepsRedone steps;
  steps.begin_generation(0);
  steps.progressed(0, 120);
  steps.begin_generation(0);
  CHECK(steps.count() == 0);
  steps.progressed(100, 105);
  CHECK(steps.count() == 5);
  steps.begin_generation(0);  // it died before it was where the first had been
  steps.progressed(100, 110);
  CHECK(steps.count() == 15);
  steps.progressed(100, 400);
  CHECK(steps.count() == 25);  // 101 to 105, and 101 to 120
  steps.begin_generation(0);
  steps.progressed(350, 500);
  CHECK(steps.count() == 75);
}

TEST_CASE(
    "a generation that never trained changes nothing, and a node that came late is told how far it was") {
  StepsRedone steps;
  steps.begin_generation(0);
  steps.progressed(0, 50);
  steps.begin_generation(0);
  steps.begin_generation(0);
  steps.progressed(40, 60);
  CHECK(steps.count() == 10);
  StepsRedone late;
  late.begin_generation(300);
  late.progressed(250, 400);
  CHECK(late.count() == 50);
}
