#include "agent/output/console.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <memory>

#include "proto/core/framing.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"

using namespace dtrun::agent;
using namespace dtrun::test;
using dtrun::launch::FromHost;

namespace {

// What a console says to a launcher's file: the workers' text, then "|" and dtrun's own words, one by one.
std::vector<std::string> said_through(std::uint64_t most_output, const std::function<void(Console&)>& use) {
  const Folder folder;
  const std::string file = folder.path() / "spool";
  const std::unique_ptr<std::FILE, decltype(&std::fclose)> spool(std::fopen(file.c_str(), "w"), std::fclose);
  dtrun::OutputSpec spec;
  spec.remote = dtrun::RemoteTerminal{.out_fd = fileno(spool.get()), .most_output = most_output};
  Loop loop;
  Console console(loop, spec, [](bool) {});
  use(console);
  dtrun::FrameReader frames;
  frames.push(read_text(file));
  std::vector<std::string> said;
  for (auto frame = frames.next(); frame.value(); frame = frames.next()) {
    FromHost message;
    REQUIRE(message.ParseFromString(*frame.value()));
    said.push_back(message.has_said() ? "|" + message.said().text() : message.output().text());
  }
  return said;
}

}  // namespace

TEST_CASE("over the limit of a detached job its workers are kept no more, which is told once; dtrun is") {
  const auto talk = [](Console& console) {
    console.write(Console::Stream::kOut, std::string(1u << 20, 'a'));
    console.write(Console::Stream::kErr, "one too many\n");
    console.write(Console::Stream::kOut, "another\n");
    console.tell_job("the job failed");
  };
  const auto limited = said_through(1u << 20, talk);
  REQUIRE(limited.size() == 3);
  CHECK(limited[0].size() == 1u << 20);
  CHECK(limited[1] ==
        "|the workers have said 1 MiB here, what they say from now on is not kept; --log_dir "
        "keeps all of it");
  CHECK(limited[2] == "|the job failed");
  const auto all = said_through(0, talk);
  REQUIRE(all.size() == 4);
  CHECK(all[2] == "another\n");
}
