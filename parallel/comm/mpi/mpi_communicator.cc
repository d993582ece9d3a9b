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

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MpiWire& wire, MpiGroup group)
      : Communicator(group.name, group.rank, static_cast<int>(group.world_ranks.size())),
        link_(wire, std::move(group), patience()),
        exchange_(std::in_place, link_),
        messages_(std::in_place, link_) {}

 private:
  bool DoSumsAsTree() const override { return true; }
  absl::Status DoAllReduce(const Call& call, View data, Stream) override;
  absl::Status DoAllGather(const Call& call, ConstView in, View out, Stream) override;
  absl::Status DoBroadcast(const Call& call, View data, Stream) override;
  absl::Status DoBarrier(const Call& call, Stream) override {
    return exchange_->Run(call, std::vector<Parcel>(size()));
  }
  absl::Status DoSend(const Call& call, ConstView data, Stream) override {
    return messages_->Send(call, HostBytes(data));
  }
  absl::Status DoReceive(const Call& call, View data, Stream) override {
    return messages_->Receive(call, HostBytes(data));
  }
  absl::Status DoProgress() override { return messages_->Progress(); }
  absl::Status DoFlush(int to) override { return messages_->Flush(to); }
  void DoFail() override {
    messages_.reset();
    exchange_.reset();
  }

  absl::Status SumDirectly(const Call& call, absl::Span<float> data);
  absl::Status SumByParts(const Call& call, absl::Span<float> data);
  // out[part] = the sum of this rank's part of all ranks' inputs.
  absl::Status SumPart(const Call& call, absl::Span<const float> in, absl::Span<float> out);
  // out[count] = the sum of the floats that the last exchange brought.
  void SumReceived(absl::Span<float> out);

  MpiLink link_;
  // Gone once a call failed: the wire has what MPI may still use of them.
  std::optional<MpiExchange> exchange_;
  std::optional<MpiMessages> messages_;
};

absl::Status MpiCommunicator::DoAllReduce(const Call& call, View data, Stream) {
  SKEIN_RETURN_IF_ERROR(CheckSum(data.dtype, DType::kF32, name()));
  if (size() == 1) return absl::OkStatus();
  const absl::Span<float> floats(static_cast<float*>(data.data), data.elements());
  const bool direct = AsBytes(floats).size() * (size() - 1) <= kInlineBytes;
  return direct ? SumDirectly(call, floats) : SumByParts(call, floats);
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

absl::Status MpiCommunicator::DoAllGather(const Call& call, ConstView in, View out, Stream) {
  const ConstBytes bytes = HostBytes(in);
  SKEIN_RETURN_IF_ERROR(exchange_->Run(call, std::vector<Parcel>(size(), {bytes, bytes.size()})));
  for (int peer = 0; peer < size(); ++peer) {
    CopyBytes(exchange_->Received(peer), HostBytes(out).data() + peer * bytes.size());
  }
  return absl::OkStatus();
}

absl::Status MpiCommunicator::DoBroadcast(const Call& call, View data, Stream) {
  const int root = call.peer;
  const Bytes bytes = HostBytes(data);
  std::vector<Parcel> parcels(size());
  if (rank() == root) {
    for (Parcel& parcel : parcels) parcel.out = bytes;
  } else {
    parcels[root].in_bytes = bytes.size();
  }
  SKEIN_RETURN_IF_ERROR(exchange_->Run(call, parcels));
  if (rank() != root) CopyBytes(exchange_->Received(root), bytes.data());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> MakeMpiCommunicator(MpiWire& wire, MpiGroup group) {
  if (group.context > wire.largest_tag() / MpiLink::kLanes - 1) {
    return absl::OutOfRangeError("too many groups were made: MPI has no tag left");
  }
  return std::make_unique<MpiCommunicator>(wire, std::move(group));
}

}  // namespace skein::comm
