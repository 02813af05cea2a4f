#include "proto/core/framing.h"

#include <doctest/doctest.h>

#include <vector>

namespace dtrun::framing_test {
namespace {

// All whole payloads that the reader has.
std::vector<std::string> drain(FrameReader* reader) {
  std::vector<std::string> payloads;
  for (;;) {
    auto next = reader->next();
    REQUIRE_MESSAGE(next.ok(), next.status().message());
    if (!next.value()) return payloads;
    payloads.push_back(*next.value());
  }
}

std::string frames_of(const std::vector<std::string>& payloads) {
  std::string bytes;
  for (const std::string& payload : payloads) append_frame(payload, &bytes);
  return bytes;
}

std::string length_prefix(std::uint32_t length) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(length >> shift);
  return bytes;
}

const std::vector<std::string> kPayloads = {"one", "", std::string("\0\xff\n", 3), std::string(300, 'x')};

TEST_CASE("a frame is a 4-byte little-endian length and the payload") {
  CHECK(frames_of({"ab"}) == std::string("\2\0\0\0ab", 6));
  CHECK(frames_of({std::string(258, 'x')}).substr(0, 4) == std::string("\2\1\0\0", 4));
}

TEST_CASE("frames come out whole, wherever the stream was cut") {
  const std::string bytes = frames_of(kPayloads);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    FrameReader reader;
    reader.push(std::string_view(bytes).substr(0, cut));
    auto payloads = drain(&reader);
    reader.push(std::string_view(bytes).substr(cut));
    for (std::string& payload : drain(&reader)) payloads.push_back(std::move(payload));
    CHECK(payloads == kPayloads);
    CHECK(reader.pending() == 0);
  }
}

TEST_CASE("frames come out whole when bytes come one at a time") {
  FrameReader reader;
  std::vector<std::string> payloads;
  for (char byte : frames_of(kPayloads)) {
    reader.push({&byte, 1});
    for (std::string& payload : drain(&reader)) payloads.push_back(std::move(payload));
  }
  CHECK(payloads == kPayloads);
}

TEST_CASE("bytes of an unfinished frame are pending") {
  FrameReader reader;
  reader.push(frames_of({"one", "two"}).substr(0, 10));
  CHECK(drain(&reader).size() == 1);
  CHECK(reader.pending() == 3);
}

TEST_CASE("a reader says how many bytes the next frame lacks") {
  FrameReader reader;
  CHECK(reader.missing() == 4);
  const std::string one = frames_of({"one"});
  reader.push(one.substr(0, 3));
  CHECK(reader.missing() == 1);
  reader.push(one.substr(3, 1));
  CHECK(reader.missing() == 3);
  reader.push(one.substr(4));
  CHECK(drain(&reader) == std::vector<std::string>{"one"});
  CHECK(reader.missing() == 4);
}

TEST_CASE("the longest frame passes, a longer one is an error that stays") {
  FrameReader longest;
  longest.push(frames_of({std::string(kMaxFrame, 'x')}));
  CHECK(drain(&longest)[0].size() == kMaxFrame);

  for (const std::uint32_t length : {static_cast<std::uint32_t>(kMaxFrame) + 1, 0xffffffffu}) {
    FrameReader reader;
    reader.push(length_prefix(length));
    for (int call = 0; call < 2; ++call) {
      const auto result = reader.next();
      REQUIRE_FALSE(result.ok());
      CHECK(result.status().exit_code() == kExitSoftware);
      CHECK(result.status().message() == "control protocol: a frame of " + std::to_string(length) +
                                             " bytes, at most 16777216 are allowed");
      reader.push("more");
    }
  }
}

TEST_CASE("many small frames in one push all come out in order") {
  constexpr int kFrames = 100000;
  std::string bytes;
  for (int i = 0; i < kFrames; ++i) append_frame(std::to_string(i), &bytes);
  FrameReader reader;
  reader.push(bytes);
  const auto payloads = drain(&reader);
  REQUIRE(payloads.size() == kFrames);
  for (int i = 0; i < kFrames; i += 1000) CHECK(payloads[static_cast<std::size_t>(i)] == std::to_string(i));
}

TEST_CASE("a stream that begins with a brace has lines, where lines are allowed") {
  const std::string bytes = "{\"a\": 1}\n\n{2}\nrest";
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    FrameReader reader(FrameReader::Takes::kLinesToo);
    CHECK_FALSE(reader.form());
    reader.push(std::string_view(bytes).substr(0, cut));
    auto payloads = drain(&reader);
    reader.push(std::string_view(bytes).substr(cut));
    for (std::string& payload : drain(&reader)) payloads.push_back(std::move(payload));
    CHECK(payloads == std::vector<std::string>{"{\"a\": 1}", "", "{2}"});
    CHECK(reader.form() == FrameReader::Form::kLines);
    CHECK(reader.pending() == 4);
  }
  FrameReader frames;
  frames.push(bytes);
  CHECK(frames.form() == FrameReader::Form::kFrames);
  CHECK_FALSE(frames.next().ok());
  FrameReader other(FrameReader::Takes::kLinesToo);
  other.push(frames_of(kPayloads));
  CHECK(drain(&other) == kPayloads);
}

TEST_CASE("a first frame whose length begins as a line does is a frame, wherever the stream was cut") {
  for (const std::size_t size : {0x7bu, 0x117bu, 0x227bu, 0x227bu + 0x220000u}) {
    const std::vector<std::string> payloads{std::string(size, 'x'), "two"};
    const std::string bytes = frames_of(payloads);
    REQUIRE(bytes.front() == '{');
    for (std::size_t cut = 0; cut <= 8; ++cut) {
      FrameReader reader(FrameReader::Takes::kLinesToo);
      reader.push(std::string_view(bytes).substr(0, cut));
      CHECK(drain(&reader).empty());
      CHECK(reader.form().has_value() == (cut >= 4));
      reader.push(std::string_view(bytes).substr(cut));
      CHECK(reader.form() == FrameReader::Form::kFrames);
      CHECK(drain(&reader) == payloads);
    }
  }
}

TEST_CASE("a line has a limit, with an end and without one") {
  FrameReader endless(FrameReader::Takes::kLinesToo), ended(FrameReader::Takes::kLinesToo);
  endless.push("{" + std::string(kMaxFrame - 1, 'x'));
  CHECK(drain(&endless).empty());
  endless.push("\n{");
  CHECK(drain(&endless).front().size() == kMaxFrame);
  endless.push(std::string(kMaxFrame, 'x'));
  CHECK_FALSE(endless.next().ok());
  ended.push("{" + std::string(kMaxFrame, 'x') + "\n");
  for (int again = 0; again < 2; ++again) CHECK_FALSE(ended.next().ok());
}

}  // namespace
}  // namespace dtrun::framing_test
