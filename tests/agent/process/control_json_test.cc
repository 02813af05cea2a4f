#include "agent/process/control_json.h"

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>

#include "proto/core/contract.h"
#include "proto/core/exit_codes.h"

namespace dtrun::agent::control_json_test {
namespace {

control::FromWorker read(const std::string& line) {
  const auto message = from_json_line(line);
  REQUIRE_MESSAGE(message.ok(), message.status().message());
  return message.value();
}

TEST_CASE("every message of a program comes out of its line of JSON") {
  const auto hello = read(R"({"hello": {"protocol": 7, "pid": 12, "outlives": true}})").hello();
  CHECK(hello.protocol() == 7);
  CHECK(hello.pid() == 12);
  CHECK(hello.outlives());
  const auto ready = read(R"({"ready": {"step": 5, "torn": true, "error": "why"}})").ready();
  CHECK(ready.step() == 5);
  CHECK(ready.torn());
  CHECK(ready.error() == "why");
  CHECK_FALSE(read(R"({"ready": {}})").ready().has_step());
  const auto kv = read(R"({"kv":{"id":"3","op":"GET","key":"a\nb","value":"AP8=","timeout_ms":250}})").kv();
  CHECK(kv.id() == 3);
  CHECK(kv.op() == control::KvRequest::GET);
  CHECK(kv.key() == "a\nb");
  CHECK(kv.value() == std::string("\0\xff", 2));
  CHECK(kv.timeout_ms() == 250);
  const auto fault = read(R"({"fault": {"exit_code": 3, "message": "why"}})").fault();
  CHECK(fault.exit_code() == 3);
  CHECK(fault.message() == "why");
}

TEST_CASE("progress from a shell needs only the step") {
  const auto short_one = read(R"({"progress":{"step":5}})");
  CHECK(short_one.progress().step() == 5);
  CHECK(short_one.progress().phase() == training::Progress::TRAINING);
  CHECK_FALSE(short_one.progress().has_loss());
  CHECK(short_one.pulse() == 0);
  const auto whole =
      read(R"({"progress": {"phase": "LOADING", "step": 6, "loss": 2, "first_step": 4}, "pulse": 8})");
  CHECK(whole.progress().phase() == training::Progress::LOADING);
  CHECK(whole.progress().loss() == 2);
  CHECK(whole.progress().first_step() == 4);
  CHECK(whole.pulse() == 8);
}

TEST_CASE("what is not known is skipped, null is absent, and what is wrong is told in one line") {
  CHECK(read(R"({"hello": {"pid": 3, "colour": "red"}, "later": {}})").hello().pid() == 3);
  CHECK(read(R"({"later": {"a": 1}})").body_case() == control::FromWorker::BODY_NOT_SET);
  CHECK_FALSE(read(R"({"progress": {"loss": null}})").progress().has_loss());
  for (const char* line : {R"({"progress": {"step": "five"}})", R"({"kv": {"value": 5}})", R"({"ready": 5})",
                           "", "[]", "{", "5", "{\"a\":", "{\"fault\": {\"message\": \"\xff\x1b\"}"}) {
    const auto message = from_json_line(line);
    REQUIRE_FALSE(message.ok());
    CHECK(message.status().exit_code() == kExitSoftware);
    CHECK(message.status().message().starts_with("control protocol: a line with no message of a worker: "));
    CHECK(message.status().message().find_first_of("\n\x1b\xff") == std::string::npos);
  }
}

TEST_CASE("the agent's messages are one line each") {
  control::FromAgent message;
  message.mutable_hello_ack()->set_protocol(7);
  CHECK(to_json_line(message) == "{\"hello_ack\":{\"protocol\":7,\"outlives\":false,\"unit_file\":\"\"}}\n");
  control::Start& start = *message.mutable_start();
  start.set_world_size(3);
  start.set_generation(9);
  start.set_address("10.0.0.7");
  CHECK(to_json_line(message) ==
        "{\"start\":{\"rank\":0,\"world_size\":3,\"local_rank\":0,\"generation\":\"9\",\"address\":\"10.0.0."
        "7\"}}\n");
  message.mutable_stop()->set_kind(control::Stop::PAUSE_AFTER_STEP);
  message.mutable_stop()->set_reason("a\nb");
  CHECK(to_json_line(message) ==
        "{\"stop\":{\"kind\":\"PAUSE_AFTER_STEP\",\"reason\":\"a\\nb\",\"leaves\":false}}\n");
  control::KvReply& kv = *message.mutable_kv();
  kv.set_id(4);
  kv.set_ok(true);
  kv.set_value(std::string("\0\xff", 2));
  CHECK(to_json_line(message) == "{\"kv\":{\"id\":\"4\",\"ok\":true,\"error\":\"\",\"value\":\"AP8=\"}}\n");
}

TEST_CASE("the Python package speaks the agent's version") {
  std::ifstream file(DTRUN_SOURCE_DIR "/worker/kit/python/dtrun/_control.py");
  std::stringstream text;
  text << file.rdbuf();
  CHECK(text.str().find("\nPROTOCOL = " + std::to_string(kControlProtocol) + " ") != std::string::npos);
}

}  // namespace
}  // namespace dtrun::agent::control_json_test
