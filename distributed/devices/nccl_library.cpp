// SPDX-License-Identifier: Apache-2.0
#include "distributed/devices/nccl_library.hpp"

#include <cstdlib>

#include "common/errors.hpp"
#include "gpu/launch/device.hpp"

#ifdef TILESCOPE_HAS_NCCL
#include <dlfcn.h>
#include <nccl.h>
#endif

namespace tilescope {

#ifdef TILESCOPE_HAS_NCCL
namespace {

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
  std::vector<ncclComm_t> comms;

  template <typename Function>
  Function* find(const char* name) const {
    void* const symbol = dlsym(library, name);
    if (symbol == nullptr) throw MachineLacks(std::string("libnccl has no ") + name);
    return reinterpret_cast<Function*>(symbol);
  }
  decltype(&ncclGetVersion) get_version = find<decltype(ncclGetVersion)>("ncclGetVersion");
  decltype(&ncclCommInitAll) comm_init_all = find<decltype(ncclCommInitAll)>("ncclCommInitAll");
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
};

NcclRanks::NcclRanks(int ranks) : state_(std::make_unique<State>()) {
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  // Messages up to this many bytes a channel (16 KiB; 512 KiB in all) would go by the protocol LL, which
  // sends a flag beside each word: twice the bytes. Who has set it wants it.
  setenv("NCCL_P2P_LL_THRESHOLD", "0", 0);
  state_->comms.resize(static_cast<std::size_t>(ranks));
  state_->check(state_->comm_init_all(state_->comms.data(), ranks, nullptr), "starting NCCL");
  connect();
}

/// NCCL connects two ranks when they first exchange something, and whoever comes first waits inside the call,
/// which nothing ends if the other has failed. So all exchange a few bytes while all are there.
void NcclRanks::connect() {
  constexpr std::int64_t kBytes = 256;
  const int ranks = static_cast<int>(state_->comms.size());
  std::vector<DeviceBuffer> memory;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int rank = 0; rank < ranks; ++rank) {
    check_cuda(cudaSetDevice(rank), "choosing a device");
    memory.emplace_back("first exchange", 2 * kBytes * ranks);
    streams.push_back(std::make_unique<Stream>());
  }
  begin_group();
  for (int rank = 0; rank < ranks; ++rank) {
    for (int other = 0; other < ranks; ++other) {
      if (other == rank) continue;
      const cudaStream_t stream = streams[static_cast<std::size_t>(rank)]->get();
      auto* const own = static_cast<std::byte*>(memory[static_cast<std::size_t>(rank)].data());
      send(rank, other, own + kBytes * other, kBytes, stream);
      receive(rank, other, own + kBytes * (ranks + other), kBytes, stream);
    }
  }
  end_group();
  for (int rank = 0; rank < ranks; ++rank) {
    check_cuda(cudaSetDevice(rank), "choosing a device");
    streams[static_cast<std::size_t>(rank)]->synchronize("connecting NCCL's ranks");
    memory[static_cast<std::size_t>(rank)] = {};
  }
}

NcclRanks::~NcclRanks() {
  for (const ncclComm_t comm : state_->comms) {
    if (comm != nullptr) state_->comm_destroy(comm);
  }
}

std::string NcclRanks::version() const {
  int code = 0;
  state_->check(state_->get_version(&code), "asking for NCCL's version");
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." +
         std::to_string(code % 100);
}

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

void NcclRanks::connect() {}
NcclRanks::NcclRanks(int) {
  throw MachineLacks(
      "this build has no NCCL: build where nccl.h is found; --transport copy-engine needs none");
}
NcclRanks::~NcclRanks() = default;
std::string NcclRanks::version() const { return ""; }
void NcclRanks::begin_group() {}
void NcclRanks::end_group() {}
void NcclRanks::send(int, int, const void*, std::size_t, cudaStream_t) {}
void NcclRanks::receive(int, int, void*, std::size_t, cudaStream_t) {}
void NcclRanks::check(int) {}
void NcclRanks::abort(int) noexcept {}
#endif

}  // namespace tilescope
