#include "worker/config/tool_request.h"

#include <doctest/doctest.h>

namespace dtrun::tool_request_test {

using namespace dtrun::worker;
using Words = std::vector<std::string>;

namespace {

// The request as dtrun-worker reads it.
template <typename Request>
Request handed_over(const Request& request) {
  Words arguments = arguments_of(request);
  REQUIRE(arguments.front() == Request::kTool);
  arguments.erase(arguments.begin());
  const auto read = request_of<Request>(arguments);
  REQUIRE(read);
  return *read;
}

}  // namespace

TEST_CASE("a request arrives as it was made, whatever bytes its texts and words have") {
  const PrepareRequest prepare = handed_over(PrepareRequest{.directory = "d\xff\n\"",
                                                            .tokenizer = "t\xc3\xa9",
                                                            .shard_tokens = 2147483647,
                                                            .val_fraction = 0.1,
                                                            .files = std::string("\0x", 2),
                                                            .threads = 3,
                                                            .words = {"a", "", "\xfe"}});
  CHECK(prepare.directory == "d\xff\n\"");
  CHECK(prepare.tokenizer == "t\xc3\xa9");
  CHECK(prepare.eos_token == "<|endoftext|>");
  CHECK(prepare.shard_tokens == 2147483647);
  CHECK(prepare.val_fraction == 0.1);
  CHECK(prepare.files == std::string("\0x", 2));
  CHECK(prepare.threads == 3);
  CHECK(prepare.words == Words{"a", "", "\xfe"});

  const SampleRequest sample = handed_over(
      SampleRequest{.run = "r", .prompt = "\x80", .temperature = 1.0 / 3, .seed = 999999999999999999});
  CHECK(sample.prompt == "\x80");
  CHECK(sample.max_new_tokens == 256);
  CHECK(sample.temperature == 1.0 / 3);
  CHECK(sample.seed == 999999999999999999);

  CHECK(handed_over(ProfileRequest{.config = "c", .gpu = 3}).gpu == 3);
  CHECK(handed_over(ExportRequest{.run = "r", .evaluate = true}).evaluate);
  const ProfileRequest profile = handed_over(ProfileRequest{.config = "c", .json = true, .words = {"a=1"}});
  CHECK_FALSE(profile.gpu);
  CHECK(profile.json);
  CHECK(profile.words == Words{"a=1"});
}

TEST_CASE("what dtrun did not write is no request") {
  CHECK_FALSE(request_of<SampleRequest>({}));
  CHECK_FALSE(request_of<SampleRequest>({"run"}));
  CHECK_FALSE(request_of<SampleRequest>({R"({"run": "r"})"}));
  CHECK_FALSE(request_of<ProfileRequest>({R"({"config": 1})"}));
}

}  // namespace dtrun::tool_request_test
