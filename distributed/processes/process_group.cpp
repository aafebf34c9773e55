// SPDX-License-Identifier: Apache-2.0
#include "distributed/processes/process_group.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "common/errors.hpp"
#include "distributed/execution/rank_failure.hpp"

namespace tilescope {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kTurn{10};  // between two looks at the others

std::string reason() { return std::strerror(errno); }

bool readable(int socket, milliseconds wait) {
  pollfd entry{.fd = socket, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, static_cast<int>(wait.count())) > 0;
}

void send_at_once(int socket) {
  const int yes = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

/// A socket that is closed with something unread takes back what was sent last, which says who failed.
void read_to_the_end(int socket) {
  constexpr milliseconds kLongest{200};
  shutdown(socket, SHUT_WR);
  const auto deadline = Clock::now() + kLongest;
  char unread[4096];
  while (Clock::now() < deadline) {
    if (readable(socket, kTurn) && recv(socket, unread, sizeof unread, 0) <= 0) return;
  }
}

/// A socket connected to rank 0, or -1: it does not listen yet.
int connect_once(const ProcessPlace& place) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = AF_INET;
  const int code = getaddrinfo(place.host.c_str(), std::to_string(place.port).c_str(), &hints, &found);
  if (code != 0)
    throw BadInput("MASTER_ADDR", place.host, std::string("must name a host: ") + gai_strerror(code));
  int connected = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, 0);
  if (connected >= 0 && connect(connected, found->ai_addr, found->ai_addrlen) != 0) {
    close(connected);
    connected = -1;
  }
  freeaddrinfo(found);
  return connected;
}

int listen_on(int port, int ranks) {
  const int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      listen(listening, ranks) == 0)
    return listening;
  const std::string why = reason();
  close(listening);
  throw BadInput("TILESCOPE_PORT", std::to_string(port), "must be free where rank 0 runs: " + why);
}

}  // namespace

ProcessGroup::ProcessGroup(const ProcessPlace& place, milliseconds limit)
    : place_(place),
      limit_(limit),
      sockets_(static_cast<std::size_t>(place.ranks), -1),
      stalled_(static_cast<std::size_t>(place.ranks)) {
  if (place_.ranks > 1) place_.rank == 0 ? accept_all() : connect_to_first();
}

ProcessGroup::~ProcessGroup() {
  for (const int socket : sockets_) {
    if (socket < 0) continue;
    if (ended_) read_to_the_end(socket);
    close(socket);
  }
}

void ProcessGroup::accept_all() {
  const int listening = listen_on(place_.port, place_.ranks);
  const Deadline deadline = Clock::now() + limit_;
  for (int missing = place_.ranks - 1; missing > 0; --missing) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    const int socket =
        left.count() > 0 && readable(listening, left) ? accept(listening, nullptr, nullptr) : -1;
    int rank = -1;
    if (socket >= 0 && recv(socket, &rank, sizeof rank, MSG_WAITALL) == sizeof rank && rank > 0 &&
        rank < place_.ranks && sockets_[static_cast<std::size_t>(rank)] < 0) {
      send_at_once(socket);
      sockets_[static_cast<std::size_t>(rank)] = socket;
      continue;
    }
    close(listening);
    const auto absent = std::find(sockets_.begin() + 1, sockets_.end(), -1) - sockets_.begin();
    named(static_cast<int>(absent), "did not come within " + std::to_string(limit_.count()) + " ms");
  }
  close(listening);
}

void ProcessGroup::connect_to_first() {
  const Deadline deadline = Clock::now() + limit_;
  int& socket = sockets_.front();
  while ((socket = connect_once(place_)) < 0) {
    if (Clock::now() > deadline)
      named(0, "cannot be reached at " + place_.host + ":" + std::to_string(place_.port));
    std::this_thread::sleep_for(kTurn);
  }
  send_at_once(socket);
  if (::send(socket, &place_.rank, sizeof place_.rank, MSG_NOSIGNAL) != sizeof place_.rank)
    named(0, "its process ended");
}

void ProcessGroup::send(int to, Kind kind, int rank, std::span<const std::byte> data) {
  const Head head{kind, rank, static_cast<std::int64_t>(data.size())};
  for (auto part : {std::as_bytes(std::span(&head, 1)), data}) {
    while (!part.empty()) {
      const ssize_t sent =
          ::send(sockets_[static_cast<std::size_t>(to)], part.data(), part.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) named(to, "its process ended");
      part = part.subspan(static_cast<std::size_t>(sent));
    }
  }
}

void ProcessGroup::read(int from, std::span<std::byte> data) {
  while (!data.empty()) {
    const ssize_t got = recv(sockets_[static_cast<std::size_t>(from)], data.data(), data.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) named(from, "its process ended");
    data = data.subspan(static_cast<std::size_t>(got));
  }
}

void ProcessGroup::look_at(int from) {
  const int socket = sockets_[static_cast<std::size_t>(from)];
  if (socket < 0 || !readable(socket, milliseconds(0))) return;
  Head head{};
  const ssize_t seen = recv(socket, &head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
  if (seen == 0 || (seen < 0 && errno != EAGAIN && errno != EINTR)) named(from, "its process ended");
  if (seen < static_cast<ssize_t>(sizeof head) || head.kind == Kind::values) return;
  const std::vector<std::byte> text = receive(from);
  const std::string why(reinterpret_cast<const char*>(text.data()), text.size());
  if (head.kind == Kind::failure) named(head.rank, why);
  stalled_[static_cast<std::size_t>(from)] = true;
  name_the_silent(why);
}

void ProcessGroup::check() {
  for (int rank = 0; rank < place_.ranks; ++rank) look_at(rank);
}

void ProcessGroup::await_readable(int from) {
  const Deadline deadline = Clock::now() + limit_;
  while (!readable(sockets_[static_cast<std::size_t>(from)], kTurn)) {
    check();
    if (Clock::now() > deadline) named(from, "said nothing for " + std::to_string(limit_.count()) + " ms");
  }
  look_at(from);
}

std::vector<std::byte> ProcessGroup::receive(int from) {
  Head head{};
  read(from, std::as_writable_bytes(std::span(&head, 1)));
  std::vector<std::byte> data(static_cast<std::size_t>(head.size));
  read(from, data);
  return data;
}

void ProcessGroup::reduce_bytes(std::span<std::byte> values,
                                const std::function<void(const std::byte* more)>& fold) {
  if (place_.rank > 0) {
    send(0, Kind::values, place_.rank, values);
    await_readable(0);
    const std::vector<std::byte> all = receive(0);
    std::copy(all.begin(), all.end(), values.begin());
    return;
  }
  for (int rank = 1; rank < place_.ranks; ++rank) {
    await_readable(rank);
    fold(receive(rank).data());
  }
  for (int rank = 1; rank < place_.ranks; ++rank) send(rank, Kind::values, 0, values);
}

void ProcessGroup::named(int rank, const std::string& why) {
  const bool first = !std::exchange(ended_, true);
  for (int other = 1; first && place_.rank == 0 && other < place_.ranks; ++other) {
    if (other == rank || sockets_[static_cast<std::size_t>(other)] < 0) continue;
    try {
      send(other, Kind::failure, rank, std::as_bytes(std::span(why)));
    } catch (const RankFailure&) {  // has ended as well
    }
  }
  throw RankFailure(rank, why);
}

void ProcessGroup::fail(const std::string& why) noexcept {
  if (std::exchange(ended_, true)) return;
  try {
    for (int other = 0; other < place_.ranks; ++other) {
      if (sockets_[static_cast<std::size_t>(other)] >= 0)
        send(other, Kind::failure, place_.rank, std::as_bytes(std::span(why)));
    }
  } catch (const std::exception&) {  // whoever does not hear it finds this process ended
  }
}

void ProcessGroup::stalled(const std::string& why) {
  stalled_[static_cast<std::size_t>(place_.rank)] = true;
  if (place_.rank == 0) name_the_silent(why);
  send(0, Kind::stall, place_.rank, std::as_bytes(std::span(why)));
  const Deadline deadline = Clock::now() + limit_;
  while (Clock::now() < deadline) {
    check();
    std::this_thread::sleep_for(kTurn);
  }
  named(0, why);
}

/// Rank 0: all others that are alive wait as well, and say so when their time is over.
void ProcessGroup::name_the_silent(const std::string& why) {
  stalled_.front() = true;
  const Deadline deadline = Clock::now() + limit_ / 2;
  while (Clock::now() < deadline) {
    for (int rank = 1; rank < place_.ranks; ++rank) {
      if (!stalled_[static_cast<std::size_t>(rank)] &&
          readable(sockets_[static_cast<std::size_t>(rank)], milliseconds(0))) {
        stalled_[static_cast<std::size_t>(rank)] = true;
      }
    }
    std::this_thread::sleep_for(kTurn);
  }
  const auto silent = std::find(stalled_.begin(), stalled_.end(), false) - stalled_.begin();
  named(silent < place_.ranks ? static_cast<int>(silent) : 0, why);
}

}  // namespace tilescope
