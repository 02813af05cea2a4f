// The same ids as Hugging Face's tokenizers, on real text in many languages and on what patterns find odd.
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/torch/torch_jobs.h"
#include "tests/worker/tokenizer/cases.h"

namespace dtrun::tokenizers_test {

using namespace dtrun::test;

TEST_CASE("text has the ids that Hugging Face's tokenizers gives it") {
  if (const std::string why = why_no_torch_with("tokenizers"); !why.empty()) return skip(why);
  const std::string python = python_with_torch();
  const Folder folder;
  std::vector<std::string> argv{python, kScripts + "bpe_cases.py", folder.path().string()};
  const std::filesystem::path fortunes = "/usr/share/games/fortunes";
  if (std::filesystem::exists(fortunes)) {
    for (const auto& file : std::filesystem::directory_iterator(fortunes))
      if (file.path().extension() == ".u8") argv.push_back(file.path().string());
  }
  for (const auto& file : std::filesystem::directory_iterator(DTRUN_SOURCE_DIR "/docs"))
    argv.push_back(file.path().string());
  std::sort(argv.begin() + 3, argv.end());
  Process theirs(argv);
  REQUIRE_MESSAGE(theirs.wait(kLong) == 0, theirs.err());
  for (const char* name :
       {"small", "large", "prefix", "added", "prefix_added", "llama3", "qwen2", "files", "strings"}) {
    CAPTURE(name);
    CHECK(dtrun::worker::check_cases(folder / name) > 3000);
  }
}

}  // namespace dtrun::tokenizers_test
