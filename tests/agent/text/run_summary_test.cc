#include "agent/text/run_summary.h"

#include <doctest/doctest.h>

namespace dtrun::run_summary_test {

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
  CHECK(summary_text(completion(), {9.44, 0, 0, {}}) ==
        "done: 469 steps, test accuracy 82.5 %, loss 0.483, model in runs/x/model.safetensors\n"
        "  9.4 s in all, 8.2 s of it training: 7,353 samples/s, 17.4 ms a step\n"
        "  of a step's time: 81 % math, 12 % waiting for gradients, 0 % waiting for data, 7 % other");
  Completion on_gpu = completion();
  on_gpu.memory = {.peak = std::uint64_t{61} << 30, .total = std::uint64_t{140} << 30};
  CHECK(summary_text(on_gpu, {9.44, 1, 0, {}})
            .ends_with("7 % other\n  GPU memory: peak 61.0 GiB of 140 GiB\n  1 restart"));
}

TEST_CASE("after a restart the times are the last generation's, and what was done again is told") {
  Completion done = completion();
  done.first_step = 400;
  done.training_seconds = 138;
  const std::string text = summary_text(done, {3723, 1, 2, {.steps_redone = 57}});
  CHECK(text.find(
            "\n  1 h 02 min in all, 2 min 18 s of it training since the last interruption: 7,353 samples/s, "
            "2.00 s a step\n") != std::string::npos);
  CHECK(text.ends_with("other\n  1 restart, 2 membership changes; at least 57 steps done again"));
  CHECK(summary_text(done, {3723, 2, 0, {.steps_redone = 1}})
            .ends_with("\n  2 restarts; at least 1 step done again"));
  CHECK(summary_text(done, {3723, 0, 1, {}}).ends_with("\n  1 membership change"));
}

TEST_CASE("a run that had nothing left to train makes no rates up") {
  Completion done = completion();
  done.first_step = done.step;
  done.training_seconds = 0;
  CHECK(summary_text(done, {0.5, 0, 0, {}}) ==
        "done: 469 steps, test accuracy 82.5 %, loss 0.483, model in runs/x/model.safetensors\n"
        "  0.5 s in all");
}

TEST_CASE("another program's end is worth a line only after restarts") {
  CHECK(program_summary_text({12.34, 0, 0, {}}).empty());
  CHECK(program_summary_text({12.34, 0, 3, {}}).empty());
  CHECK(program_summary_text({12.34, 2, 0, {}}) == "done: 12.3 s in all, 2 restarts");
  CHECK(program_summary_text({62, 1, 1, {}}) == "done: 1 min 02 s in all, 1 restart, 1 membership change");
}

TEST_CASE("the summary tells goodput") {
  const Goodput spent{.training = 93.44, .redone = 2.5, .steps_redone = 57};
  const std::string text = summary_text(completion(), {9.44, 1, 0, spent});
  CHECK(text.ends_with("other\n  " + goodput_text(spent) + "\n  1 restart; at least 57 steps done again"));
}

}  // namespace dtrun::run_summary_test
