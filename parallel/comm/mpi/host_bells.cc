#include "parallel/comm/mpi/host_bells.h"

#include <unistd.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/random_bytes.h"
#include "base/status_macros.h"
#include "parallel/comm/gather_strings.h"

namespace skein::comm {
namespace {

constexpr size_t kCookieBytes = 16;

using MemoryOr = absl::StatusOr<std::unique_ptr<SharedMemory>>;

// How the other ranks find it: "PID FD COOKIE".
struct Offer {
  std::unique_ptr<SharedMemory> memory;
  std::string address;
};
absl::StatusOr<Offer> MakeOffer(size_t bytes) {
  Offer offer;
  SKEIN_ASSIGN_OR_RETURN(const std::string cookie, RandomHex(kCookieBytes));
  SKEIN_ASSIGN_OR_RETURN(offer.memory, SharedMemory::Create(bytes, cookie));
  offer.address = absl::StrCat(getpid(), " ", offer.memory->fd(), " ", cookie);
  return offer;
}

MemoryOr Accept(std::string_view address, size_t bytes) {
  const std::vector<std::string> parts = absl::StrSplit(std::string(address), ' ');
  int pid = 0, fd = 0;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &pid) || !absl::SimpleAtoi(parts[1], &fd)) {
    return absl::NotFoundError("no memory is offered");
  }
  return SharedMemory::Attach(pid, fd, bytes, parts[2]);
}

}  // namespace

absl::StatusOr<HostBells> HostBells::Connect(Communicator& world,
                                             absl::Span<const int> host_of_rank) {
  std::vector<int> ranks;  // of this host
  for (int rank = 0; rank < world.size(); ++rank) {
    if (host_of_rank[rank] == host_of_rank[world.rank()]) ranks.push_back(rank);
  }
  const size_t bytes = ranks.size() * sizeof(Bell);
  const bool leads = ranks.front() == world.rank();
  Offer offer;
  if (leads && ranks.size() > 1) {
    // Without it, ranks sleep by the clock.
    if (absl::StatusOr<Offer> made = MakeOffer(bytes); made.ok()) offer = *std::move(made);
  }
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> offers,
                         GatherStrings(world, offer.address));
  HostBells bells;
  bells.memory_ = std::move(offer.memory);
  if (!leads) {
    if (MemoryOr found = Accept(offers[ranks.front()], bytes); found.ok()) {
      bells.memory_ = *std::move(found);
    }
  }
  SKEIN_RETURN_IF_ERROR(world.Barrier(kHostStream));
  if (bells.memory_ == nullptr) return bells;
  bells.memory_->CloseFile();
  bells.bells_.resize(world.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    bells.bells_[ranks[i]] = reinterpret_cast<Bell*>(bells.memory_->data()) + i;
  }
  bells.own_ = bells.bells_[world.rank()];
  return bells;
}

}  // namespace skein::comm
