#include "parallel/comm/tracked_communicator.h"

#include <utility>
#include <vector>

namespace skein::comm {
namespace {

class TrackedCommunicator final : public Communicator {
 public:
  TrackedCommunicator(std::unique_ptr<Communicator> inner, OperationTracker::Group* group)
      : inner_(std::move(inner)), group_(group), sent_(inner_->size()), received_(inner_->size()) {
    inner_->set_pulse(&group->pulse());
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view name() const override { return inner_->name(); }
  void set_timeout(absl::Duration timeout) override { inner_->set_timeout(timeout); }
  int64_t calls() const override { return inner_->calls(); }
  void Abort(absl::Status why) override { inner_->Abort(std::move(why)); }

  absl::Status AllReduce(absl::Span<float> data, Stream stream) override {
    const Entered entered(group_, Collective(Operation::kAllReduce));
    return inner_->AllReduce(data, stream);
  }
  absl::Status AllGather(absl::Span<const std::byte> in, absl::Span<std::byte> out,
                         Stream stream) override {
    const Entered entered(group_, Collective(Operation::kAllGather));
    return inner_->AllGather(in, out, stream);
  }
  absl::Status ReduceScatter(absl::Span<const float> in, absl::Span<float> out,
                             Stream stream) override {
    const Entered entered(group_, Collective(Operation::kReduceScatter));
    return inner_->ReduceScatter(in, out, stream);
  }
  absl::Status Broadcast(absl::Span<std::byte> data, int root, Stream stream) override {
    const Entered entered(group_, Collective(Operation::kBroadcast, root));
    return inner_->Broadcast(data, root, stream);
  }
  absl::Status Send(absl::Span<const std::byte> data, int to, Stream stream) override {
    const Entered entered(group_, Message(Operation::kSend, to, sent_));
    return inner_->Send(data, to, stream);
  }
  absl::Status Receive(absl::Span<std::byte> data, int from, Stream stream) override {
    const Entered entered(group_, Message(Operation::kReceive, from, received_));
    return inner_->Receive(data, from, stream);
  }
  absl::Status Progress() override { return inner_->Progress(); }  // nothing that others wait in
  absl::Status Flush(int to) override {
    if (!Knows(to)) return inner_->Flush(to);
    const Entered entered(group_, {.operation = Operation::kSend, .peer = to, .number = sent_[to]});
    return inner_->Flush(to);
  }
  absl::Status Barrier(Stream stream) override {
    const Entered entered(group_, Collective(Operation::kBarrier));
    return inner_->Barrier(stream);
  }

 private:
  using Entered = OperationTracker::Group::Entered;

  // A rank that does not exist is for `inner` to refuse.
  bool Knows(int peer) const { return peer >= 0 && peer < size(); }
  Call Collective(Operation operation, int root = 0) const {
    return {.operation = operation, .peer = Knows(root) ? root : 0, .number = inner_->calls() + 1};
  }
  Call Message(Operation operation, int peer, std::vector<int64_t>& numbers) {
    if (!Knows(peer)) peer = rank();
    return {.operation = operation, .peer = peer, .number = ++numbers[peer]};
  }

  const std::unique_ptr<Communicator> inner_;
  OperationTracker::Group* const group_;
  std::vector<int64_t> sent_;  // by receiver
  std::vector<int64_t> received_;
};

}  // namespace

std::unique_ptr<Communicator> Track(std::unique_ptr<Communicator> inner,
                                    OperationTracker::Group* group) {
  return std::make_unique<TrackedCommunicator>(std::move(inner), group);
}

}  // namespace skein::comm
