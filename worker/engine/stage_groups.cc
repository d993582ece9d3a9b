#include "worker/engine/stage_groups.h"

#include "base/status_macros.h"
#include "base/stream.h"
#include "base/view.h"
#include "kernels/ops/batch_digest.h"

namespace skein::worker {
namespace {

class GroupCollectives final : public kernels::Collectives {
 public:
  explicit GroupCollectives(const StageGroups& groups) : groups_(groups) {}
  void BeginBatch(const kernels::Batch& batch) override {
    if (groups_.tp == nullptr) return;
    groups_.tp->set_step(batch.step, groups_.tp->uses_device() ? kernels::DigestOf(batch) : 0);
  }
  absl::Status AllReduce(View data, Stream stream) override {
    return groups_.tp->AllReduce(data, stream);
  }
  absl::Status AllGather(ConstView in, View out, Stream stream) override {
    return groups_.tp->AllGather(in, out, stream);
  }
  absl::Status Progress() override {
    for (comm::Communicator* const group : {groups_.next, groups_.tokens}) {
      if (group != nullptr) SKEIN_RETURN_IF_ERROR(group->Progress());
    }
    return absl::OkStatus();
  }

  bool RunOnDevice() const override { return groups_.tp != nullptr && groups_.tp->uses_device(); }
  absl::Status CaptureAllReduce(View data, Stream stream) override {
    return groups_.tp->CaptureAllReduce(data, stream);
  }
  const PeerMemory* PeersOf(const View& data) const override {
    return groups_.tp == nullptr ? nullptr : groups_.tp->PeersOf(data);
  }
  absl::Status AllReduceBy(View data, Stream stream,
                           absl::FunctionRef<absl::Status()> give) override {
    return groups_.tp->AllReduceBy(data, stream, give);
  }
  absl::Status Replay(int64_t sums, Stream stream,
                      absl::FunctionRef<absl::Status()> launch) override {
    return groups_.tp->Replay(sums, stream, launch);
  }
  // Hops, too: a batch waits for its input.
  absl::Status Check() override {
    for (comm::Communicator* const group : {groups_.tp, groups_.previous, groups_.next}) {
      if (group != nullptr) SKEIN_RETURN_IF_ERROR(group->Check());
    }
    return absl::OkStatus();
  }

 private:
  const StageGroups groups_;
};

}  // namespace

std::vector<comm::Communicator*> StageGroups::All() const {
  std::vector<comm::Communicator*> all;
  for (comm::Communicator* const group : {tp, previous, next, tokens}) {
    if (group != nullptr) all.push_back(group);
  }
  return all;
}

std::unique_ptr<kernels::Collectives> MakeCollectives(const StageGroups& groups) {
  if (groups.All().empty()) return nullptr;
  return std::make_unique<GroupCollectives>(groups);
}

}  // namespace skein::worker
