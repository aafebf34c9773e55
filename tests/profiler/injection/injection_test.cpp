// SPDX-License-Identifier: Apache-2.0
// What passes between the command line and the processes of a command, and what stays when one is killed.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <pthread.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/errors.hpp"
#include "profiler/injection/event_file.hpp"
#include "profiler/injection/injected/launch_filter.hpp"
#include "profiler/injection/profile_request.hpp"
#include "profiler/injection/profiled_command.hpp"
#include "tests/paths.hpp"

using namespace tilescope;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() : path_((fs::temp_directory_path() / "tilescope-test-XXXXXX").string()) {
    REQUIRE(mkdtemp(path_.data()) != nullptr);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }
  std::string only_file() const { return fs::directory_iterator(path_)->path().string(); }

 private:
  std::string path_;
};

KernelMeasurement named(const std::string& name) {
  KernelMeasurement kernel;
  kernel.name = name;
  return kernel;
}

/// Runs `work` on a thread with the least stack that there may be.
template <class Work>
void run_on_small_stack(Work work) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 128 << 10);
  pthread_t thread;
  const auto start = [](void* argument) -> void* {
    (*static_cast<Work*>(argument))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, start, &work) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

ProfileRequest filtering(const std::string& expression, std::int64_t skip, std::int64_t count) {
  ProfileRequest request;
  request.kernel_filter = expression;
  request.skip = skip;
  request.count = count;
  return request;
}

}  // namespace

TEST_CASE("what is no file in the folder of events is passed over, and a wrong event is said") {
  const Folder folder;
  EventFile(folder.path()).end();
  REQUIRE(mkfifo((folder.path() + "/0-1.jsonl").c_str(), 0600) == 0);
  fs::create_directory(folder.path() + "/1-1.jsonl");
  std::ofstream(folder.path() + "/2-1.jsonl")
      << R"({"kernel":{"name":7}})"
      << "\n"
      << R"({"message":[]})"
      << "\n"
      << R"({"collection":null})"
      << "\n"
      << R"({"kernel":{"name":"k","launch":{"grid":[1,1,1],"block":[1,1,1]}}})"
      << "\n"
      << R"({"end":true})"
      << "\n";
  const Events events = read_events(folder.path());
  CHECK(events.processes == 2);
  CHECK(events.unfinished == 1);
  REQUIRE(events.kernels.size() == 1);
  CHECK(events.kernels[0].name == "k");
  REQUIRE(!events.messages.empty());
  CHECK(events.messages[0].starts_with("an event that a process wrote cannot be read"));
}

TEST_CASE("a request reaches the other side unchanged, and nothing else passes for one") {
  ProfileRequest request = filtering("flash.*\"fwd\\b", 3, 17);
  request.what = ProfileRequest::What::trace;
  request.folder = "/tmp/with space";
  request.metrics = "traffic,sm__inst_executed.sum";
  request.part = 2;
  request.nvtx_filter = "step \\d+";
  request.l2 = L2State::warm;
  request.communication = true;
  CHECK(parse_profile_request(to_text(request)) == request);
  CHECK(parse_profile_request(to_text(ProfileRequest{})) == ProfileRequest{});
  for (const char* text : {"", "{", "[]", "{\"what\": 1}"})
    CHECK_THROWS_AS(parse_profile_request(text), BadInput);
}

TEST_CASE("events of a process that ended and of one that was killed in the middle of a line") {
  const Folder folder;
  const CollectionFacts facts{"NVIDIA H200", "GH100", "13.0", "none", 1};
  {
    EventFile file(folder.path());
    file.collection(facts);
    file.kernel(named("first"));
    file.message("said");
    file.kernel(named("bad utf-8: \xff\n"));
    file.end();
  }
  Events events = read_events(folder.path());
  CHECK(events.processes == 1);
  CHECK(events.unfinished == 0);
  CHECK(events.collections == std::vector<CollectionFacts>{facts});
  REQUIRE(events.kernels.size() == 2);
  CHECK(events.kernels[0].name == "first");

  const std::string path = folder.only_file();
  for (auto bytes = fs::file_size(path) - 2; bytes > 5; bytes -= 5) {
    fs::resize_file(path, bytes);
    events = read_events(folder.path());
    CAPTURE(bytes);
    CHECK(events.unfinished == 1);
    CHECK(events.kernels.size() <= 2);
  }
}

TEST_CASE("files of several processes are read in the order of their starts, facts and messages once") {
  const Folder folder;
  for (const char* name : {"a", "b"}) {
    EventFile file(folder.path());
    file.message("the same");
    file.kernel(named(name));
    file.end();
  }
  const Events events = read_events(folder.path());
  CHECK(events.processes == 2);
  CHECK(events.messages.size() == 1);
  REQUIRE(events.kernels.size() == 2);
  CHECK(events.kernels[0].name == "a");
  CHECK_THROWS_AS(read_events("/nonexistent/folder"), MachineLacks);
}

TEST_CASE("the filter counts only what matches") {
  LaunchFilter filter(filtering("flash_(fwd|bwd)", 1, 2));
  const char* launches[] = {"gemm", "flash_fwd", "flash_fwd", "gemm", "void flash_bwd<1>", "flash_fwd"};
  const bool wanted[] = {false, false, true, false, true, false};
  for (std::size_t i = 0; i < std::size(launches); ++i) {
    CAPTURE(i);
    CHECK(filter.done() == (i > 4));
    CHECK(filter.wants(launches[i]) == wanted[i]);
  }
  LaunchFilter everything{ProfileRequest{}};
  CHECK(everything.wants("anything"));
  CHECK(!everything.done());
  CHECK_THROWS_AS(LaunchFilter(filtering("(", 0, 1)), std::runtime_error);
}

TEST_CASE("kernels of communication are wanted only when asked for") {
  const char* const names[] = {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                               "void ncclKernel<int>()", "my_nccl_free_kernel"};
  ProfileRequest request = filtering("nccl", 0, 10);
  LaunchFilter without(request);
  request.communication = true;
  LaunchFilter with(request);
  for (const char* name : names) {
    CAPTURE(name);
    CHECK(without.wants(name) == (name == names[2]));
    CHECK(with.wants(name));
  }
}

TEST_CASE("names of any length are searched on any stack") {
  const std::string name = "void kernel<" + std::string(200000, 'x') + ">()";
  bool found = false, missed = true;
  const auto search = [&] {
    found = LaunchFilter(filtering("k(.|_)*x>", 0, 1)).wants(name);
    missed = !LaunchFilter(filtering(".*y(x+x+)+", 0, 1)).wants(name);
  };
  run_on_small_stack(search);
  CHECK(found);
  CHECK(missed);
  CHECK_THROWS_AS(NamePattern(")("), std::runtime_error);
  CHECK(NamePattern("^a$|b").in("xb"));
  CHECK(!NamePattern("^a$").in("xa"));
}

TEST_CASE("a command that is ended takes with it all that it started, in whatever group") {
  const Folder folder;
  const std::string pids = folder.path() + "/pids";
  // A child of its own, one in a session of its own whose parent is gone, and one that does not listen.
  const std::string script = "sleep 300 & echo $! >> " + pids + "; setsid sh -c 'sleep 300 & echo $! >> " +
                             pids + "'; sh -c 'trap \"\" TERM; echo $$ >> " + pids +
                             "; while :; do sleep 1; done' & sleep 300";
  CommandOptions options;
  options.time_limit = std::chrono::seconds(1);
  const CommandOutcome outcome = run_command({"sh", "-c", script}, options);
  CHECK(outcome.timed_out);
  CHECK(outcome.signal == SIGTERM);
  std::ifstream file(pids);
  int count = 0;
  for (pid_t pid = 0; file >> pid; ++count) {
    CAPTURE(pid);
    CHECK(kill(pid, 0) != 0);
  }
  CHECK(count == 3);
}

#ifdef TILESCOPE_INJECTION_LIBRARY
TEST_CASE("a command passes on its exit code, whatever becomes of the counters") {
  setenv("TILESCOPE_INJECTION", TILESCOPE_INJECTION_LIBRARY, 1);
  CHECK(run_profiled({}, {"sh", "-c", "exit 7"}).exit_code == 7);
  CHECK(run_profiled({}, {"sh", "-c", "kill -9 $$"}).exit_code == 128 + 9);
  const CommandOutcome outcome =
      run_profiled({}, {"sh", "-c", "test -f \"$CUDA_INJECTION64_PATH\" && test -n \"$TILESCOPE_PROFILE\""});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.events.processes == 0);
  CHECK_THROWS_AS(run_profiled({}, {"no-such-command"}), BadInput);
  std::signal(SIGINT, SIG_DFL);  // a shell ignores it for what runs in its background
  // A signal to the profiler alone ends the command, not the profiler, which has a record to write.
  CHECK(run_profiled({}, {"sh", "-c", "kill -TERM $PPID; exec sleep 30"}).exit_code == 128 + 15);
  CHECK(run_profiled({}, {"sh", "-c", "trap 'exit 9' INT; kill -INT $PPID; sleep 1; sleep 1"}).exit_code ==
        9);
  CommandOptions hurried;
  hurried.time_limit = std::chrono::seconds(0);
  CHECK(run_profiled({}, {"sleep", "60"}, hurried).timed_out);
  setenv("TILESCOPE_INJECTION", "/nonexistent/library.so", 1);
  CHECK_THROWS_AS(run_profiled({}, {"true"}), BadInput);
  unsetenv("TILESCOPE_INJECTION");
}

TEST_CASE("the injected library loads into a program that knows nothing of it and never fails it") {
  const Folder folder;
  ProfileRequest request;
  request.folder = folder.path();
  setenv(kRequestVariable, to_text(request).c_str(), 1);
  void* library = dlopen(TILESCOPE_INJECTION_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  REQUIRE_MESSAGE(library != nullptr, dlerror());
  const auto initialize = reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
  REQUIRE((initialize != nullptr));
  CHECK(initialize() == 1);
  CHECK(initialize() == 1);
  const Events events = read_events(folder.path());
  CHECK(events.processes == 1);  // the second call changed nothing
  for (const std::string& message : events.messages) MESSAGE(message);
  unsetenv(kRequestVariable);
}
#endif
