// SPDX-License-Identifier: Apache-2.0
#include "distributed/devices/nccl_library.hpp"

#include <cstdlib>
#include <future>
#include <thread>

#include "common/errors.hpp"
#include "distributed/processes/process_group.hpp"
#include "gpu/launch/device.hpp"

#ifdef TILESCOPE_HAS_NCCL
#include <dlfcn.h>
#include <nccl.h>
#endif

namespace tilescope {

#ifdef TILESCOPE_HAS_NCCL
namespace {

constexpr std::chrono::seconds kToConnect{60};

/// The library that TILESCOPE_NCCL names, or the one that the loader finds.
void* open_nccl() {
  const char* const named = std::getenv("TILESCOPE_NCCL");
  void* const library = dlopen(named != nullptr ? named : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  throw MachineLacks(std::string("NCCL cannot be loaded (") + dlerror() +
                     "); TILESCOPE_NCCL can name libnccl.so.2, and --transport copy-engine needs none");
}

}  // namespace

struct NcclRanks::State {
  void* library = open_nccl();
  std::vector<ncclComm_t> comms;  // by rank; null: of another process
  std::vector<int> devices;       // by rank

  template <typename Function>
  Function* find(const char* name) const {
    void* const symbol = dlsym(library, name);
    if (symbol == nullptr) throw MachineLacks(std::string("libnccl has no ") + name);
    return reinterpret_cast<Function*>(symbol);
  }
  decltype(&ncclCommInitAll) comm_init_all = find<decltype(ncclCommInitAll)>("ncclCommInitAll");
  decltype(&ncclGetUniqueId) unique_id = find<decltype(ncclGetUniqueId)>("ncclGetUniqueId");
  decltype(&ncclCommInitRank) comm_init_rank = find<decltype(ncclCommInitRank)>("ncclCommInitRank");
  decltype(&ncclCommDestroy) comm_destroy = find<decltype(ncclCommDestroy)>("ncclCommDestroy");
  decltype(&ncclCommAbort) comm_abort = find<decltype(ncclCommAbort)>("ncclCommAbort");
  decltype(&ncclCommGetAsyncError) async_error =
      find<decltype(ncclCommGetAsyncError)>("ncclCommGetAsyncError");
  decltype(&ncclGetErrorString) error_string = find<decltype(ncclGetErrorString)>("ncclGetErrorString");
  decltype(&ncclGroupStart) group_start = find<decltype(ncclGroupStart)>("ncclGroupStart");
  decltype(&ncclGroupEnd) group_end = find<decltype(ncclGroupEnd)>("ncclGroupEnd");
  decltype(&ncclSend) send = find<decltype(ncclSend)>("ncclSend");
  decltype(&ncclRecv) receive = find<decltype(ncclRecv)>("ncclRecv");

  void check(ncclResult_t result, const char* what) const {
    if (result != ncclSuccess) throw DeviceError(std::string(what) + ": " + error_string(result));
  }
  ncclComm_t comm(int rank) const { return comms[static_cast<std::size_t>(rank)]; }

  State(int ranks) : comms(static_cast<std::size_t>(ranks)), devices(static_cast<std::size_t>(ranks)) {
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    // Messages up to this many bytes a channel (16 KiB; 512 KiB in all) would go by the protocol LL, which
    // sends a flag beside each word: twice the bytes. Who has set it wants it.
    setenv("NCCL_P2P_LL_THRESHOLD", "0", 0);
  }
  ~State() {
    for (const ncclComm_t comm : comms) {
      if (comm != nullptr) comm_destroy(comm);
    }
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  template <typename Visitor>
  void for_each_own(Visitor&& visit) const {
    for (std::size_t rank = 0; rank < comms.size(); ++rank) {
      if (comms[rank] == nullptr) continue;
      check_cuda(cudaSetDevice(devices[rank]), "choosing a device");
      visit(static_cast<int>(rank));
    }
  }

  /// NCCL connects two ranks when they first exchange something, and whoever comes first waits inside the
  /// call, which nothing ends if the other has failed. So all exchange a few bytes while all are there.
  void connect() const {
    constexpr std::size_t kBytes = 256;
    const std::size_t ranks = comms.size();
    std::vector<DeviceBuffer> memory(ranks);
    std::vector<std::unique_ptr<Stream>> streams(ranks);
    for_each_own([&](int rank) {
      memory[static_cast<std::size_t>(rank)] =
          DeviceBuffer("first exchange", static_cast<std::int64_t>(2 * kBytes * ranks));
      streams[static_cast<std::size_t>(rank)] = std::make_unique<Stream>();
    });
    check(group_start(), "ncclGroupStart");
    for_each_own([&](int rank) {
      const cudaStream_t stream = streams[static_cast<std::size_t>(rank)]->get();
      auto* const own = static_cast<std::byte*>(memory[static_cast<std::size_t>(rank)].data());
      for (std::size_t other = 0; other < ranks; ++other) {
        const int peer = static_cast<int>(other);
        if (peer == rank) continue;
        check(send(own + kBytes * other, kBytes, ncclInt8, peer, comm(rank), stream), "ncclSend");
        check(receive(own + kBytes * (ranks + other), kBytes, ncclInt8, peer, comm(rank), stream),
              "ncclRecv");
      }
    });
    check(group_end(), "ncclGroupEnd");
    for_each_own([&](int rank) {
      streams[static_cast<std::size_t>(rank)]->synchronize("connecting NCCL's ranks");
      memory[static_cast<std::size_t>(rank)] = {};
    });
  }
};

NcclRanks::NcclRanks(int ranks) : state_(std::make_shared<State>(ranks)) {
  for (int rank = 0; rank < ranks; ++rank) state_->devices[static_cast<std::size_t>(rank)] = rank;
  state_->check(state_->comm_init_all(state_->comms.data(), ranks, nullptr), "starting NCCL");
  state_->connect();
}

/// NCCL's calls wait for all ranks: a thread makes them, and this one looks after the other processes
/// meanwhile.
NcclRanks::NcclRanks(ProcessGroup& processes, int device)
    : state_(std::make_shared<State>(processes.ranks())) {
  ncclUniqueId id{};
  if (processes.rank() == 0) state_->check(state_->unique_id(&id), "ncclGetUniqueId");
  processes.reduce(std::span(reinterpret_cast<std::uint8_t*>(&id), sizeof id), std::bit_or<std::uint8_t>());
  const int rank = processes.rank(), ranks = processes.ranks();
  std::promise<void> done;
  std::future<void> connected = done.get_future();
  std::thread([state = state_, id, rank, ranks, device, done = std::move(done)]() mutable {
    try {
      check_cuda(cudaSetDevice(device), "choosing a device");
      state->devices[static_cast<std::size_t>(rank)] = device;
      state->check(state->comm_init_rank(&state->comms[static_cast<std::size_t>(rank)], ranks, id, rank),
                   "starting NCCL");
      state->connect();
      done.set_value();
    } catch (...) {
      done.set_exception(std::current_exception());
    }
  }).detach();
  const auto deadline = std::chrono::steady_clock::now() + kToConnect;
  while (connected.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready) {
    processes.check();
    if (std::chrono::steady_clock::now() > deadline) processes.stalled("did not connect by NCCL");
  }
  try {
    connected.get();
  } catch (const std::exception& error) {
    processes.fail(error.what());
    throw;
  }
}

NcclRanks::~NcclRanks() = default;

void NcclRanks::begin_group() { state_->check(state_->group_start(), "ncclGroupStart"); }
void NcclRanks::end_group() { state_->check(state_->group_end(), "ncclGroupEnd"); }

void NcclRanks::send(int rank, int to, const void* data, std::size_t bytes, cudaStream_t stream) {
  state_->check(state_->send(data, bytes, ncclInt8, to, state_->comm(rank), stream), "ncclSend");
}

void NcclRanks::receive(int rank, int from, void* data, std::size_t bytes, cudaStream_t stream) {
  state_->check(state_->receive(data, bytes, ncclInt8, from, state_->comm(rank), stream), "ncclRecv");
}

void NcclRanks::check(int rank) {
  ncclResult_t error = ncclSuccess;
  state_->check(state_->async_error(state_->comm(rank), &error), "asking for NCCL's state");
  if (error != ncclInProgress) state_->check(error, "NCCL");
}

void NcclRanks::abort(int rank) noexcept {
  ncclComm_t& comm = state_->comms[static_cast<std::size_t>(rank)];
  if (comm != nullptr) state_->comm_abort(comm);
  comm = nullptr;
}
#else
struct NcclRanks::State {};

namespace {

[[noreturn]] void refuse() {
  throw MachineLacks(
      "this build has no NCCL: build where nccl.h is found; --transport copy-engine needs none");
}

}  // namespace

NcclRanks::NcclRanks(int) { refuse(); }
NcclRanks::NcclRanks(ProcessGroup&, int) { refuse(); }
NcclRanks::~NcclRanks() = default;
void NcclRanks::begin_group() {}
void NcclRanks::end_group() {}
void NcclRanks::send(int, int, const void*, std::size_t, cudaStream_t) {}
void NcclRanks::receive(int, int, void*, std::size_t, cudaStream_t) {}
void NcclRanks::check(int) {}
void NcclRanks::abort(int) noexcept {}
#endif

}  // namespace tilescope
