#include "parallel/comm/mpi/mpi_runtime.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/status_macros.h"
#include "base/status_util.h"
#include "parallel/comm/gather_strings.h"
#include "parallel/comm/host_identity.h"
#include "parallel/comm/mpi/end_with_parent.h"
#include "parallel/comm/mpi/mpi_communicator.h"
#include "parallel/comm/mpi/mpi_wire.h"

namespace skein::comm {

MpiRuntime::MpiRuntime(std::unique_ptr<MpiWire> wire) : wire_(std::move(wire)) {}
MpiRuntime::~MpiRuntime() = default;

absl::StatusOr<std::unique_ptr<MpiRuntime>> MpiRuntime::Create(const MpiOptions& options) {
  if (options.end_with_parent) SKEIN_RETURN_IF_ERROR(EndWithParent());
  SKEIN_ASSIGN_OR_RETURN(std::unique_ptr<MpiWire> wire, MpiWire::Start());
  std::unique_ptr<MpiRuntime> runtime(new MpiRuntime(std::move(wire)));
  std::vector<int> ranks(runtime->wire_->size());
  std::iota(ranks.begin(), ranks.end(), 0);
  SKEIN_ASSIGN_OR_RETURN(
      runtime->world_,
      MakeMpiCommunicator(*runtime->wire_, {"world", ranks, runtime->wire_->rank(), 0}));
  Communicator& world = *runtime->world_;
  world.set_timeout(options.startup_timeout);
  // Every rank hears from every other, so that all segments are mapped, before any name goes.
  SKEIN_RETURN_IF_ERROR(Annotate(runtime->FindHosts(), "starting MPI"));
  SKEIN_RETURN_IF_ERROR(runtime->wire_->HideSegments());
  absl::StatusOr<HostBells> bells = HostBells::Connect(world, runtime->host_of_rank_);
  if (!bells.ok()) return Annotate(bells.status(), "starting MPI");
  runtime->wire_->set_bells(*std::move(bells));
  world.set_timeout(absl::InfiniteDuration());
  return runtime;
}

absl::Status MpiRuntime::FindHosts() {
  SKEIN_ASSIGN_OR_RETURN(const HostIdentity host, ReadHostIdentity());
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> names, GatherStrings(*world_, host.name));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> boot_ids,
                         GatherStrings(*world_, host.boot_id));
  std::vector<HostIdentity> hosts;
  for (int rank = 0; rank < size(); ++rank) {
    const HostIdentity theirs = {names[rank], boot_ids[rank]};
    const auto known = std::find(hosts.begin(), hosts.end(), theirs);
    host_of_rank_.push_back(static_cast<int>(known - hosts.begin()));
    if (known == hosts.end()) hosts.push_back(theirs);
  }
  return absl::OkStatus();
}

int MpiRuntime::local_rank() const {
  const auto begin = host_of_rank_.begin();
  return static_cast<int>(std::count(begin, begin + rank(), host_of(rank())));
}

int MpiRuntime::local_size() const {
  return static_cast<int>(std::count(host_of_rank_.begin(), host_of_rank_.end(), host_of(rank())));
}

absl::StatusOr<std::unique_ptr<Communicator>> MpiRuntime::Split(int color, int key,
                                                                std::string name) {
  struct Choice {
    int color;
    int key;
  };
  const Choice mine = {color, key};
  std::vector<Choice> choices(size());
  SKEIN_RETURN_IF_ERROR(world_->AllGather(ConstView{&mine, DType::kU8, 1, sizeof(mine)},
                                          {choices.data(), DType::kU8, size(), sizeof(mine)},
                                          kHostStream));
  // All groups of one split may share a context: no two ranks are together in two of them.
  const int context = next_context_++;
  if (color < 0) return nullptr;
  MpiGroup group = {std::move(name), {}, 0, context};
  for (int rank = 0; rank < size(); ++rank) {
    if (choices[rank].color == color) group.world_ranks.push_back(rank);
  }
  std::stable_sort(group.world_ranks.begin(), group.world_ranks.end(),
                   [&](int a, int b) { return choices[a].key < choices[b].key; });
  group.rank =
      static_cast<int>(std::find(group.world_ranks.begin(), group.world_ranks.end(), rank()) -
                       group.world_ranks.begin());
  return MakeMpiCommunicator(*wire_, std::move(group));
}

}  // namespace skein::comm
