// Training with a teacher: one result for any division of the work, and no other teacher than the one that it
// began with.
#include "tests/worker/trainer/jobs.h"

namespace dtrun::worker::distillation_test {
namespace {

// A job with a trained teacher of another type beside it.
struct School : Job {
  School() {
    JobConfig teacher = config("teacher");
    teacher.model.type = ModelType::kMlp;
    teacher.model.hidden_sizes = {48};
    teacher.train.num_train_epochs = 1;
    run_job(teacher, 1);
  }
  JobConfig student(const std::string& output) const {
    JobConfig student = config(output);
    student.train.distill_from = (directory.path() / "teacher").string();
    return student;
  }
};

std::string fault_of(const JobConfig& config) {
  const WorkerError error = refusal(config);
  CHECK(error.exit_code() == kExitConfig);
  return error.what();
}

}  // namespace

TEST_CASE("a student's bytes are the same for any number of workers and lanes, and after a stop or a kill") {
  const School school;
  run_job(school.student("1x1"), 1);
  const std::string model = school.model("1x1");
  const auto wanted = losses(school.metrics("1x1"));
  for (const auto& [world, lanes] : {std::pair{1, 2}, {2, 1}, {3, 2}}) {
    const std::string output = std::to_string(world) + "x" + std::to_string(lanes);
    CAPTURE(output);
    run_job(school.student(output), world, lanes);
    CHECK(school.model(output) == model);
    CHECK(losses(school.metrics(output)) == wanted);
  }
  stop_run(school.student("stopped"), 2, 8);
  CHECK(run_job(school.student("stopped"), 3) > 0);
  CHECK(school.model("stopped") == model);
  kill_run(school.student("killed"), school.directory / "store", 3, 16);
  CHECK(run_job(school.student("killed"), 2, 1, 2) >= 5);
  CHECK(school.model("killed") == model);

  run_job(school.config("alone"), 1);
  JobConfig unheard = school.student("unheard");
  unheard.train.distill_alpha = 0;
  run_job(unheard, 2);
  CHECK(school.model("unheard") == school.model("alone"));
  CHECK(school.model("alone") != model);
}

TEST_CASE(
    "another teacher, one of other classes, one that is gone and one that differs by rank are refused") {
  const School school;
  JobConfig config = school.student("run");
  config.train.num_train_epochs = 1;
  run_job(config, 1);
  const std::string state = read_text(school.directory / "run/checkpoints/step-00000010/trainer_state.json");
  const fs::path file = fs::path(*config.train.distill_from) / "model.safetensors";
  CHECK_MESSAGE(contains(state, "\"path\": \"" + file.string() + "\""), state);

  const fs::path checkpoint = fs::path(*config.train.distill_from) / "checkpoints/step-00000005";
  config.train.num_train_epochs = 2;
  JobConfig other = config;
  other.train.distill_from = checkpoint.string();
  const std::string fault = fault_of(other);
  CHECK_MESSAGE(contains(fault, "/train/distill_from: the checkpoint of step 10 had another teacher, " +
                                    file.string() + " with sha256 "),
                fault);
  CHECK_MESSAGE(contains(fault, "Bring that one back, or choose another output_dir"), fault);

  // The same bytes elsewhere are the same teacher.
  fs::create_directories(school.directory / "moved");
  for (const char* name : {"model.safetensors", "config.json"})
    fs::copy_file(fs::path(*config.train.distill_from) / name, school.directory / "moved" / name);
  JobConfig moved = config;
  moved.train.distill_from = (school.directory / "moved").string();
  CHECK(run_job(moved, 1) == 10);

  JobConfig fewer = school.student("fewer");
  fewer.data.type = DataType::kSynthetic;
  fewer.data.samples = 500;
  fewer.data.classes = 7;
  const std::string classes = fault_of(fewer);
  CHECK_MESSAGE(contains(classes, file.string() + " tells 10 classes apart, the model to train 7"), classes);

  const auto of_rank = [&](int rank) {
    JobConfig mine = school.student("two");
    if (rank == 1) mine.train.distill_from = checkpoint.string();
    return mine;
  };
  run_as_threads(2, [&](ProcessGroup& group) {
    TestLink link;
    std::string told;
    try {
      run_rank(of_rank(group.rank()), group, 1, link);
    } catch (const WorkerError& error) {
      told = error.what();
    }
    REQUIRE(contains(told, "of rank 1 is not that of rank 0: copy one teacher to all nodes"));
  });

  fs::remove(file);
  fs::remove_all(fs::path(*config.train.distill_from) / "checkpoints");
  CHECK(contains(refusal(config).what(), "/train/distill_from: "));
}

}  // namespace dtrun::worker::distillation_test
