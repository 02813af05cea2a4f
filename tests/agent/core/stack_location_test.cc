// The place where a worker stands, from output of the kernel, py-spy 0.4 and gdb 13 for real workers.
#include "agent/core/stack_location.h"

#include <doctest/doctest.h>

#include <string>

namespace dtrun::stack_location_test {

using namespace dtrun::agent;

namespace {

const KernelWait kFutex{.state = 'S', .call = "futex", .channel = "futex_do_wait", .file = ""};
const KernelWait kSleep{.state = 'S', .call = "clock_nanosleep", .channel = "hrtimer_nanosleep", .file = ""};

constexpr char kAllReduce[] =
    "Process 24798: /venv/bin/python -u train.py late\n"
    "Python v3.11.7 (/root/.pyenv/versions/3.11.7/bin/python3.11)\n"
    "\n"
    "Thread 24805 (idle): \"Thread-1\"\n"
    "    wait (/usr/lib/python3.11/threading.py:320)\n"
    "    other (/home/me/job/other.py:1)\n"
    "Thread 24798 (idle): \"MainThread\"\n"
    "    all_reduce (/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:4181)\n"
    "    _exception_logger.<locals>.wrapper "
    "(/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py:83)\n"
    "    main (/home/me/job/train.py:16)\n"
    "    <module> (/home/me/job/train.py:18)\n";

constexpr char kSleeping[] =
    "Process 24799: python3 -u train.py\nPython v3.11.2 (/usr/bin/python3.11)\n\n"
    "Thread 24799 (idle): \"MainThread\"\n"
    "    load_batch (loader.py:3)\n"
    "    main (train.py:12)\n"
    "    <module> (train.py:18)\n";

std::string stack(const std::string& frames) { return "Thread 1 (idle): \"MainThread\"\n" + frames; }

StackLocation python(const KernelWait& wait, const std::string& dump) {
  return stack_location_of(wait, frames_of_py_spy(dump), {});
}

StackLocation native(const KernelWait& wait, const std::string& dump) {
  return stack_location_of(wait, {}, frames_of_gdb(dump, 4711));
}

KernelWait reads(const std::string& file, char state = 'S') {
  return {.state = state, .call = "read", .channel = "", .file = file};
}

}  // namespace

TEST_CASE(
    "in Python it is the user's line, and what that calls: decorators and private functions are left out") {
  const StackLocation reduces = python(kFutex, kAllReduce);
  CHECK(reduces.where == "all_reduce at train.py:16");
  CHECK(reduces.activity == Activity::kWaitsForPeers);
  const std::string lib = "/venv/lib/python3.11/site-packages/torch/";
  const StackLocation backward =
      python(kFutex, stack("    _engine_run_backward (" + lib + "autograd/graph.py:824)\n    backward (" +
                           lib + "autograd/__init__.py:347)\n    Tensor.backward (" + lib +
                           "_tensor.py:581)\n    main (train.py:20)\n"));
  CHECK(backward.where == "Tensor.backward at train.py:20");
  CHECK(backward.activity == Activity::kWaits);
  const StackLocation loads =
      python({.state = 'S', .call = "poll", .channel = "", .file = ""},
             stack("    _try_get_data (" + lib + "utils/data/dataloader.py:1133)\n    __next__ (" + lib +
                   "utils/data/dataloader.py:630)\n    main (train.py:9)\n"));
  CHECK(loads.where == "__next__ at train.py:9");
  CHECK(loads.activity == Activity::kElsewhere);
}

TEST_CASE("where the user's own line waits the kernel says for what") {
  const StackLocation sleeps = python(kSleep, kSleeping);
  CHECK(sleeps.where == "sleep at loader.py:3");
  CHECK(sleeps.activity == Activity::kElsewhere);
  CHECK(python(reads("/dev/pts/3"), kSleeping).where == "read of the terminal at loader.py:3");
  CHECK(python(reads("pipe:[4711]"), kSleeping).where == "read of a pipe at loader.py:3");
  CHECK(python(kFutex, kSleeping).where == "wait at loader.py:3");
  CHECK(python(kFutex, kSleeping).activity == Activity::kWaits);
}

TEST_CASE("a program of packages only stands at its outermost line") {
  const std::string frames =
      "    get (/usr/lib/python3.11/queue.py:171)\n    run "
      "(/usr/lib/python3/dist-packages/tool/__main__.py:7)\n";
  CHECK(python(kFutex, stack(frames)).where == "get at __main__.py:7");
}

TEST_CASE("who computes is not taken for one that waits, also in a collective") {
  KernelWait busy = kFutex;
  busy.computes = true;
  const StackLocation stack_location = python(busy, kAllReduce);
  CHECK(stack_location.where == "computing in all_reduce at train.py:16");
  CHECK(stack_location.activity == Activity::kComputes);
  CHECK(native(busy, "").where == "computing");
}

TEST_CASE("without a tool the kernel's word is all") {
  CHECK(native(kSleep, "").where == "sleep (clock_nanosleep)");
  CHECK(native(kSleep, "").activity == Activity::kElsewhere);
  CHECK(native(kFutex, "").where == "wait (futex)");
  CHECK(native(kFutex, "").activity == Activity::kWaits);
  CHECK(native(reads("/data/shard 7"), "").where == "read of /data/shard 7");
  CHECK(native(reads("/data/x"), "").activity == Activity::kElsewhere);
  CHECK(native(reads("socket:[99]"), "").where == "read of a socket");
  CHECK(native(reads("socket:[99]"), "").activity == Activity::kWaits);
  CHECK(native(reads("/nfs/x", 'D'), "").where == "wait for a disk or file system (/nfs/x)");
  CHECK(native(reads("/nfs/x", 'D'), "").activity == Activity::kElsewhere);
  CHECK(native({.state = 'T', .call = "", .channel = "", .file = ""}, "").where == "stopped (by a signal)");
  CHECK(native({.state = 'S', .call = "", .channel = "do_x", .file = ""}, "").where == "wait (do_x)");
  CHECK(native({}, "").where == "wait");
}

TEST_CASE("of gdb's frames the main thread's first one counts that is neither libc's nor Python's") {
  const std::string torch =
      "Thread 2 (LWP 4712 \"gloo\"):\n#0  0x00007f in epoll_wait () from /lib/x86_64-linux-gnu/libc.so.6\n"
      "Thread 1 (LWP 4711 \"python\"):\n"
      "#0  __futex_abstimed_wait_common64 (private=..., op=...) at ./nptl/futex-internal.c:57\n"
      "#4  ___pthread_cond_wait (cond=..., mutex=...) at ./nptl/pthread_cond_wait.c:618\n"
      "#5  0x00007fce7dea741d in std::condition_variable::wait(std::unique_lock<std::mutex>&) () from "
      "/lib/x86_64-linux-gnu/libstdc++.so.6\n";
  CHECK(native(kFutex, torch +
                           "#6  0x00007fcdf35e9d9b in c10d::Work::wait(std::chrono::duration<long>) () from "
                           "/venv/torch/lib/libtorch_cpu.so\n")
            .where == "wait in c10d::Work::wait");
  const StackLocation bare =
      native(kFutex, torch +
                         "#6  0x00007ffcc36e20e0 in ?? ()\n#7  0x00007fcdf35e9d9b in ?? () from "
                         "/venv/torch/lib/libtorch_cpu.so\n");
  CHECK(bare.where == "wait in libtorch_cpu.so");
  CHECK(bare.activity == Activity::kWaits);
  const std::string sleeping =
      "Thread 1 (LWP 4711 \"python\"):\n"
      "#0  0x00007f8aeb2ed545 in __GI___clock_nanosleep (clock_id=...) at "
      "../sysdeps/unix/sysv/linux/clock_nanosleep.c:48\n";
  CHECK(native(kSleep,
               sleeping + "#1  0x00007f8aeb715ada in pysleep (timeout=...) at ./Modules/timemodule.c:2159\n")
            .where == "sleep in pysleep");
  CHECK(native(kSleep,
               sleeping + "#2  0x01 in PyObject_Vectorcall (callable=...) at Objects/call.c:299\n#3  0x02 in "
                          "mine () from /x/mine.so\n")
            .where == "sleep (clock_nanosleep)");
}

TEST_CASE("the built-in trainer's exchange is a wait for peers, unless the worker was stopped there") {
  const KernelWait stopped{.state = 'T', .call = "futex", .channel = "do_signal_stop", .file = ""};
  const std::string begin = "Thread 1 (Thread 0x7f47f50a1000 (LWP 4711) \"dtrun-worker\"):\n";
  const std::string library =
      "#0  syscall () at ../sysdeps/unix/sysv/linux/x86_64/syscall.S:38\n"
      "#1  0x000055fb3a42e29d in wait<dtrun::worker::Lambda> () at "
      "/usr/include/c++/12/condition_variable:102\n";
  for (const char* const place :
       {"#2  0x000055fb3a43 in sleep_for_news (news=..., seen=...) at "
        "worker/collective/shared_memory_transport.cc:51\n",
        "#2  0x000055fb3a43 in dtrun::worker::SharedMemoryTransport::wait_for<dtrun::X> (this=..., rank=...) "
        "at "
        "n.cc:150\n",
        "#2  0x000055fb3a43 in dtrun::worker::SharedMemoryTransport::announce (this=..., word=...) at "
        "n.cc:137\n"}) {
    CAPTURE(place);
    CHECK(native(kFutex, begin + library + place).activity == Activity::kWaitsForPeers);
    CHECK(native(stopped, begin + library + place).activity == Activity::kElsewhere);
    CHECK(native(stopped, begin + library + place).where.starts_with("stopped in "));
  }
  CHECK(native(kFutex, begin + library + "#2  0x55 in dtrun::worker::BackgroundSaver::run () at b.cc:40\n")
            .activity == Activity::kWaits);
}

TEST_CASE("what is no dump has no frames, and no place is longer than a line") {
  for (const char* text : {"", "Error: Failed to find python version from target process\n", "#", "#x y\n",
                           "    (\n    )\n", "Thread \n", "Thread 1 (LWP 4711)\n#0\n#0  0x1\n#0  \n"}) {
    CHECK(frames_of_py_spy(text).empty());
    CHECK(frames_of_gdb(text, 4711).empty());
  }
  CHECK(frames_of_gdb("Thread 1 (LWP 47110 \"x\"):\n#0  f ()\n", 4711).empty());
  CHECK(python(kFutex, stack("    f (" + std::string(900, 'x') + ".py:1)\n")).where.size() <= 160);
}

}  // namespace dtrun::stack_location_test
