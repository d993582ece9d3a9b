#include "parallel/comm/mpi/mpi_communicator.h"

#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "parallel/comm/call.h"
#include "parallel/comm/mpi/mpi_exchange.h"
#include "parallel/comm/mpi/mpi_link.h"
#include "parallel/comm/mpi/mpi_messages.h"
#include "parallel/comm/tree_sum.h"

namespace skein::comm {
namespace {

ConstBytes AsBytes(absl::Span<const float> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}

// The collectives' arithmetic, their numbers, and what a failure does to the group.
class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MpiWire& wire, MpiGroup group)
      : link_(wire, std::move(group)),
        exchange_(std::in_place, link_),
        messages_(std::in_place, link_) {}

  int rank() const override { return link_.rank(); }
  int size() const override { return link_.size(); }
  std::string_view name() const override { return link_.name(); }
  void set_timeout(absl::Duration timeout) override { link_.set_timeout(timeout); }
  void set_pulse(Pulse* pulse) override { link_.set_pulse(pulse); }
  int64_t calls() const override { return calls_; }
  void Abort(absl::Status why) override { link_.Fail(std::move(why)); }

  absl::Status AllReduce(absl::Span<float> data, Stream) override;
  absl::Status AllGather(ConstBytes in, Bytes out, Stream) override;
  absl::Status ReduceScatter(absl::Span<const float> in, absl::Span<float> out, Stream) override;
  absl::Status Broadcast(Bytes data, int root, Stream) override;
  absl::Status Barrier(Stream) override;
  absl::Status Progress() override {
    return Perform([&] { return messages_->Progress(); });
  }
  absl::Status Flush(int to) override {
    return Perform([&] { return messages_->Flush(to); });
  }
  absl::Status Send(ConstBytes data, int to, Stream) override;
  absl::Status Receive(Bytes data, int from, Stream) override;

 private:
  // Every call: does nothing when an earlier one failed; poisons the group when `body` fails.
  template <typename Body>
  absl::Status Perform(Body body);
  Call NextCall(Operation operation, size_t bytes, int peer = 0) {
    return {operation, peer, ++calls_, static_cast<int64_t>(bytes)};
  }

  absl::Status SumDirectly(const Call& call, absl::Span<float> data);
  absl::Status SumByParts(const Call& call, absl::Span<float> data);
  // out[part] = the sum of this rank's part of all ranks' inputs.
  absl::Status SumPart(const Call& call, absl::Span<const float> in, absl::Span<float> out);
  // out[count] = the sum of the floats that the last exchange brought.
  void SumReceived(absl::Span<float> out);

  MpiLink link_;
  int64_t calls_ = 0;
  // Gone once a call failed: the wire has what MPI may still use of them.
  std::optional<MpiExchange> exchange_;
  std::optional<MpiMessages> messages_;
};

template <typename Body>
absl::Status MpiCommunicator::Perform(Body body) {
  SKEIN_RETURN_IF_ERROR(link_.Enter());
  absl::Status status = body();
  if (status.ok()) return status;
  link_.Fail(std::move(status));
  messages_.reset();
  exchange_.reset();
  return link_.failure();
}

absl::Status MpiCommunicator::AllReduce(absl::Span<float> data, Stream) {
  return Perform([&]() -> absl::Status {
    const size_t bytes = AsBytes(data).size();
    const Call call = NextCall(Operation::kAllReduce, bytes);
    if (size() == 1) return absl::OkStatus();
    return bytes * (size() - 1) <= kInlineBytes ? SumDirectly(call, data) : SumByParts(call, data);
  });
}

absl::Status MpiCommunicator::SumDirectly(const Call& call, absl::Span<float> data) {
  const ConstBytes bytes = AsBytes(data);
  SKEIN_RETURN_IF_ERROR(exchange_->Run(call, std::vector<Parcel>(size(), {bytes, bytes.size()})));
  SumReceived(data);
  return absl::OkStatus();
}

absl::Status MpiCommunicator::SumByParts(const Call& call, absl::Span<float> data) {
  const Range own = PartOf(data.size(), rank(), size());
  const absl::Span<float> summed = data.subspan(own.begin, own.size());
  SKEIN_RETURN_IF_ERROR(SumPart(call, data, summed));
  std::vector<Parcel> parcels(size(), {AsBytes(summed), 0});
  for (int peer = 0; peer < size(); ++peer) {
    parcels[peer].in_bytes = PartOf(data.size(), peer, size()).size() * sizeof(float);
  }
  SKEIN_RETURN_IF_ERROR(exchange_->Run(call, parcels, /*again=*/true));
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const Range theirs = PartOf(data.size(), peer, size());
    CopyBytes(exchange_->Received(peer), reinterpret_cast<std::byte*>(data.data() + theirs.begin));
  }
  return absl::OkStatus();
}

absl::Status MpiCommunicator::SumPart(const Call& call, absl::Span<const float> in,
                                      absl::Span<float> out) {
  std::vector<Parcel> parcels(size());
  for (int peer = 0; peer < size(); ++peer) {
    const Range theirs = PartOf(in.size(), peer, size());
    parcels[peer] = {AsBytes(in.subspan(theirs.begin, theirs.size())), out.size() * sizeof(float)};
  }
  SKEIN_RETURN_IF_ERROR(exchange_->Run(call, parcels));
  SumReceived(out);
  return absl::OkStatus();
}

void MpiCommunicator::SumReceived(absl::Span<float> out) {
  std::vector<const float*> inputs(size());
  for (int peer = 0; peer < size(); ++peer) {
    inputs[peer] = reinterpret_cast<const float*>(exchange_->Received(peer).data());
  }
  TreeSum(inputs, out.size(), out.data());
}

absl::Status MpiCommunicator::ReduceScatter(absl::Span<const float> in, absl::Span<float> out,
                                            Stream) {
  return Perform([&]() -> absl::Status {
    SKEIN_RETURN_IF_ERROR(CheckReduceScatter(in.size(), out.size(), size(), name()));
    return SumPart(NextCall(Operation::kReduceScatter, AsBytes(in).size()), in, out);
  });
}

absl::Status MpiCommunicator::AllGather(ConstBytes in, Bytes out, Stream) {
  return Perform([&]() -> absl::Status {
    SKEIN_RETURN_IF_ERROR(CheckAllGather(in.size(), out.size(), size(), name()));
    SKEIN_RETURN_IF_ERROR(exchange_->Run(NextCall(Operation::kAllGather, in.size()),
                                         std::vector<Parcel>(size(), {in, in.size()})));
    for (int peer = 0; peer < size(); ++peer) {
      CopyBytes(exchange_->Received(peer), out.data() + peer * in.size());
    }
    return absl::OkStatus();
  });
}

absl::Status MpiCommunicator::Broadcast(Bytes data, int root, Stream) {
  return Perform([&]() -> absl::Status {
    SKEIN_RETURN_IF_ERROR(CheckRank(root, size(), -1, "root of a broadcast", name()));
    std::vector<Parcel> parcels(size());
    if (rank() == root) {
      for (Parcel& parcel : parcels) parcel.out = data;
    } else {
      parcels[root].in_bytes = data.size();
    }
    SKEIN_RETURN_IF_ERROR(
        exchange_->Run(NextCall(Operation::kBroadcast, data.size(), root), parcels));
    if (rank() != root) CopyBytes(exchange_->Received(root), data.data());
    return absl::OkStatus();
  });
}

absl::Status MpiCommunicator::Barrier(Stream) {
  return Perform([&] {
    return exchange_->Run(NextCall(Operation::kBarrier, 0), std::vector<Parcel>(size()));
  });
}

absl::Status MpiCommunicator::Send(ConstBytes data, int to, Stream) {
  return Perform([&] { return messages_->Send(data, to); });
}

absl::Status MpiCommunicator::Receive(Bytes data, int from, Stream) {
  return Perform([&] { return messages_->Receive(data, from); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> MakeMpiCommunicator(MpiWire& wire, MpiGroup group) {
  if (group.context > wire.largest_tag() / MpiLink::kLanes - 1) {
    return absl::OutOfRangeError("too many groups were made: MPI has no tag left");
  }
  return std::make_unique<MpiCommunicator>(wire, std::move(group));
}

}  // namespace skein::comm
