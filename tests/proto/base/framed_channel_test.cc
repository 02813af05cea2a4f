#include "proto/base/framed_channel.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "proto/launch.pb.h"

namespace dtrun::framed_channel_test {

using launch::ToHost;

namespace {

ToHost signal(int number) {
  ToHost message;
  message.mutable_signal()->set_number(number);
  return message;
}

struct Ends {
  Ends() { REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0); }
  ~Ends() {
    for (const int fd : fds) close(fd);
  }
  int fds[2];
};

TEST_CASE("messages come out as they were written, and the end of the stream after them") {
  Ends ends;
  REQUIRE(write_all(ends.fds[0], frame_of(signal(1)) + frame_of(signal(15))));
  shutdown(ends.fds[0], SHUT_WR);
  MessageReader<ToHost> messages;
  REQUIRE(messages.read_from(ends.fds[1]) == Portion::kBytes);
  CHECK(messages.next().value()->signal().number() == 1);
  CHECK(messages.next().value()->signal().number() == 15);
  CHECK_FALSE(messages.next().value());
  CHECK(messages.read_from(ends.fds[1]) == Portion::kEnd);
}

TEST_CASE("a non-blocking descriptor with nothing to read is not at its end") {
  Ends ends;
  fcntl(ends.fds[1], F_SETFL, O_NONBLOCK);
  MessageReader<ToHost> messages;
  CHECK(messages.read_from(ends.fds[1]) == Portion::kNoneYet);
}

TEST_CASE("one message can be read without a byte of the next") {
  Ends ends;
  REQUIRE(write_all(ends.fds[0], frame_of(signal(1)) + "rest"));
  MessageReader<ToHost> messages;
  while (!messages.next().value()) REQUIRE(messages.read_next_from(ends.fds[1]) == Portion::kBytes);
  char rest[16];
  CHECK(std::string(rest, static_cast<std::size_t>(read(ends.fds[1], rest, sizeof rest))) == "rest");
}

TEST_CASE("a frame that holds no message is an error, as one that is too long") {
  for (const std::string& bytes : {std::string("\x01\0\0\0\xff", 5), std::string("\xff\xff\xff\xff")}) {
    MessageReader<ToHost> messages;
    messages.push(bytes);
    const auto message = messages.next();
    REQUIRE_FALSE(message.ok());
    CHECK(message.status().exit_code() == kExitSoftware);
  }
}

TEST_CASE("a socket that nobody reads any more says so, without a signal") {
  Ends ends;
  shutdown(ends.fds[1], SHUT_RDWR);
  CHECK_FALSE(write_all(ends.fds[0], frame_of(signal(1))));
}

}  // namespace

}  // namespace dtrun::framed_channel_test
