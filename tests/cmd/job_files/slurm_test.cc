#include "cmd/job_files/slurm.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/files.h"

namespace dtrun::cmd::slurm_test {

using test::contains;

TEST_CASE("a batch script has what was asked for, and no line of what was not") {
  const std::string script =
      slurm_script({.name = "mnist",
                    .nodes = {4, 4},
                    .max_restarts = 10,
                    .options = {"--log_dir=my logs"},
                    .words = {"/home/ada/it's.json", "train.max_steps=3", "data.path=a b"}});
  CHECK(script.starts_with("#!/bin/bash\n"));
  for (const char* line :
       {"\n#SBATCH --job-name=mnist\n", "\n#SBATCH --nodes=4\n",
        "dtrun --max_restarts 10 --shutdown_timeout 290 '--log_dir=my logs' '/home/ada/it'\\''s.json' "
        "train.max_steps=3 'data.path=a b'\n"})
    CHECK_MESSAGE(contains(script, line), line);
  for (const char* word : {"gpu", "--time", "--partition", "--no-kill", "@s"})
    CHECK_MESSAGE(!contains(script, word), word);
}

TEST_CASE("a job's name is a word that sbatch takes") {
  const auto line_of = [](const std::string& name) {
    const std::string script = slurm_script({.name = name, .words = {"/c.json"}});
    const std::size_t at = script.find("\n#SBATCH --job-name=") + 1;
    return script.substr(at, script.find('\n', at) - at);
  };
  CHECK(line_of("a b") == "#SBATCH --job-name=a-b");
  CHECK(line_of("x\n#SBATCH --exclusive") == "#SBATCH --job-name=x--SBATCH---exclusive");
  CHECK(line_of("it's.v2") == "#SBATCH --job-name=it-s.v2");
  CHECK(line_of("ü") == "#SBATCH --job-name=--");
}

TEST_CASE("a time limit is one of those that sbatch takes") {
  for (const char* good :
       {"0", "90", "90:30", "1:30:00", "2-0", "2-12", "2-12:30", "2-12:30:15", "UNLIMITED"})
    CHECK_MESSAGE(is_slurm_time(good), good);
  for (const char* bad : {"", "nonsense", "1h", "1:", ":1", "1::2", "1:2:3:4", "1-", "-1", "1-2-3", "1:2-3",
                          "1-2:3:4:5", "1 ", "1234567890"})
    CHECK_FALSE_MESSAGE(is_slurm_time(bad), bad);
}

TEST_CASE("what stands in a line of #SBATCH is one word") {
  for (const char* good : {"gpu", "gpu,cpu", "a100-80g", "A_1.x"}) CHECK_MESSAGE(is_slurm_word(good), good);
  for (const char* bad : {"", "a b", "a\n#SBATCH --exclusive", "a;b", "$(id)", "a'"})
    CHECK_FALSE_MESSAGE(is_slurm_word(bad), bad);
}

TEST_CASE("a range of nodes is asked for as one, and GPUs have a worker each") {
  const std::string script = slurm_script({.name = "mnist",
                                           .nodes = {2, 4},
                                           .gpus = 8,
                                           .time = "2:00:00",
                                           .partition = "a100",
                                           .words = {"/c.json"}});
  CHECK_FALSE(contains(script, "#SBATCH --ntasks"));
  for (const char* line :
       {"\n#SBATCH --nodes=2-4\n", "\n#SBATCH --gpus-per-node=8\n", "\n#SBATCH --time=2:00:00\n",
        "\n#SBATCH --partition=a100\n", "\n#SBATCH --signal=USR1@300\n", "\n#SBATCH --no-kill\n",
        "\nsrun --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 dtrun --nnodes 2:4 --max_restarts 0 "
        "--shutdown_timeout 290 "
        "--nproc_per_node gpu /c.json\n"})
    CHECK_MESSAGE(contains(script, line), line);
}

}  // namespace dtrun::cmd::slurm_test
