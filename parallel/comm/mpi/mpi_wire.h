// State that the groups of one process share: MPI_COMM_WORLD, and requests that failed calls left
// in flight. Included by this folder's .cc files only.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "parallel/comm/mpi/host_bells.h"

namespace skein::comm {

class MpiWire {
 public:
  // Starts MPI, whose polls yield where they find nothing, whatever the environment says; see
  // MpiRuntime::Create.
  static absl::StatusOr<std::unique_ptr<MpiWire>> Start();
  // Ends MPI if nothing is in flight.
  ~MpiWire();

  int rank() const { return rank_; }
  int size() const { return size_; }
  int largest_tag() const { return largest_tag_; }

  // Removes the names of Open MPI's files in /dev/shm, once all ranks have met.
  absl::Status HideSegments();

  // By which ranks of this host wake each other; from the start there are none.
  const HostBells& bells() const { return bells_; }
  void set_bells(HostBells bells) { bells_ = std::move(bells); }

  // Takes over requests that nobody waits for any more, and a buffer that they may still use.
  void Abandon(absl::Span<const MPI_Request> requests, std::vector<std::byte> buffer);

 private:
  MpiWire() = default;
  // True once all abandoned requests have ended.
  bool Settle(absl::Duration patience);

  int rank_ = 0;
  int size_ = 1;
  int largest_tag_ = 0;
  HostBells bells_;
  std::vector<std::string> hidden_segments_;
  std::vector<MPI_Request> abandoned_;
  std::vector<std::vector<std::byte>> buffers_;
};

}  // namespace skein::comm
