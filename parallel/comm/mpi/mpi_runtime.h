// MPI for one process: started, shared by the groups made from it, and ended.
//
// MPI runs at MPI_THREAD_SERIALIZED: one thread at a time calls the runtime and its groups (the
// engine's), not always the one that created it. Only Communicator::Abort is for any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "parallel/comm/communicator.h"

namespace skein::comm {

class MpiWire;

struct MpiOptions {
  // The kernel kills this rank when mpirun (or its daemon) ends; see EndWithParent.
  bool end_with_parent = true;
  // How long the ranks may take to find each other once MPI_Init has returned.
  absl::Duration startup_timeout = absl::Minutes(1);
};

class MpiRuntime {
 public:
  // Starts MPI, meets all ranks, and removes the names of Open MPI's files in /dev/shm, so that a
  // kill leaves none. At most once in a process. Blocks until every rank has called it.
  static absl::StatusOr<std::unique_ptr<MpiRuntime>> Create(const MpiOptions& options = {});

  // Ends MPI, which waits for all ranks, unless a failed call left something in flight: then it
  // only returns, and mpirun ends the job when this process exits. Groups are to be gone.
  ~MpiRuntime();
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  int rank() const { return world_->rank(); }
  int size() const { return world_->size(); }

  // Hosts are numbered by their first rank.
  int host_of(int rank) const { return host_of_rank_[rank]; }
  int local_rank() const;  // among the ranks of this host
  int local_size() const;  // their number

  // All ranks, named "world".
  Communicator& world() { return *world_; }

  // A collective call of all ranks: those that give the same color form a group, ordered by key,
  // then by rank. Null where color < 0. The runtime outlives the group. Costs one all-gather of
  // the world; groups are cheap, since all share MPI_COMM_WORLD and differ by their tags.
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key, std::string name);

 private:
  explicit MpiRuntime(std::unique_ptr<MpiWire> wire);
  absl::Status FindHosts();

  std::unique_ptr<MpiWire> wire_;
  std::unique_ptr<Communicator> world_;
  std::vector<int> host_of_rank_;  // [size]
  int next_context_ = 1;
};

}  // namespace skein::comm
