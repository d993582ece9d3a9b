#include "worker/bench/device_comm_bench.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/device_timer.h"
#include "base/dtype.h"
#include "base/peer_sums.h"
#include "base/status_macros.h"
#include "base/stream.h"
#include "base/units.h"
#include "base/view.h"
#include "kernels/cuda/cuda_events.h"
#include "kernels/cuda/cuda_peer_sums.h"
#include "kernels/cuda/cuda_timer.h"
#include "parallel/comm/device_transport.h"
#include "parallel/comm/gather_strings.h"
#include "parallel/comm/nccl/nccl_transport.h"
#include "parallel/comm/p2p/crossover.h"
#include "parallel/comm/p2p/peer_transport.h"

namespace skein::worker {
namespace {

// From a row of 4,096 to what long prompts exchange.
constexpr int64_t kSizes[] = {int64_t{8} << 10,   int64_t{64} << 10, int64_t{256} << 10,
                              int64_t{512} << 10, int64_t{1} << 20,  int64_t{8} << 20,
                              int64_t{64} << 20};
constexpr int64_t kMostBytes = int64_t{64} << 20;
// Larger messages take long enough for fewer of them.
constexpr int64_t kManyBytes = int64_t{1} << 20;
constexpr absl::Duration kBudget = absl::Milliseconds(100);

class DeviceCommBench {
 public:
  DeviceCommBench(comm::Communicator& group, const DeviceCommBenchOptions& options)
      : group_(group), options_(options) {}

  absl::Status Run() {
    SKEIN_RETURN_IF_ERROR(OpenPeers());
    SKEIN_RETURN_IF_ERROR(OpenNccl());
    SKEIN_ASSIGN_OR_RETURN(timer_, kernels::MakeCudaTimer(options_.gpu));
    SKEIN_ASSIGN_OR_RETURN(memory_, timer_->Memory(kMostBytes));
    if (sums_ != nullptr) SKEIN_RETURN_IF_ERROR(TimeCopy());
    if (nccl_ != nullptr) {
      // First messages connect ranks, which is nothing for a graph.
      SKEIN_RETURN_IF_ERROR(SumOverNccl(kSizes[0]));
      SKEIN_RETURN_IF_ERROR(HopOverNccl(kSizes[0]));
    }
    for (const int64_t bytes : kSizes) {
      if (nccl_ != nullptr) SKEIN_RETURN_IF_ERROR(TimeNccl(bytes));
      if (sums_ != nullptr) SKEIN_RETURN_IF_ERROR(TimePeers(bytes));
    }
    return Close();
  }

  void Abort() {
    if (sums_ != nullptr) sums_->Abort();
    if (nccl_ != nullptr) nccl_->Abort();
  }

 private:
  absl::Status OpenPeers() {
    auto made = kernels::MakeCudaPeerSums(options_.gpu, group_.rank(), group_.size());
    SKEIN_ASSIGN_OR_RETURN(const std::string why_not,
                           comm::OpenPeerSums(group_, options_.host, made));
    if (why_not.empty()) {
      sums_ = *std::move(made);
    } else {
      options_.note(absl::StrCat("peer memory: none, ", why_not));
    }
    return absl::OkStatus();
  }

  absl::Status OpenNccl() {
    SKEIN_ASSIGN_OR_RETURN(const std::optional<comm::RankText> reason,
                           comm::FirstText(group_, std::string(comm::OpenNccl().message())));
    if (reason) {
      options_.note(absl::StrCat("NCCL: none, rank ", reason->rank, ": ", reason->text));
      return absl::OkStatus();
    }
    SKEIN_ASSIGN_OR_RETURN(std::shared_ptr<DeviceEvents> events,
                           kernels::MakeCudaEvents(options_.gpu));
    SKEIN_ASSIGN_OR_RETURN(nccl_,
                           comm::MakeNcclTransport(group_, absl::StrCat("rank ", group_.rank()),
                                                   std::move(events), options_.timeout));
    return absl::OkStatus();
  }

  Stream stream() const { return timer_->stream(); }
  View Array(int64_t bytes) const {  // zeros, which stay so
    return {memory_, DType::kBF16, 1, bytes / 2};
  }
  double CarriedBySum(int64_t bytes) const {
    const double ranks = group_.size();
    return 2 * (ranks - 1) / ranks * static_cast<double>(bytes);
  }

  absl::Status Time(DeviceCommBenchOptions::Row row, absl::FunctionRef<absl::Status()> give,
                    int messages = 1) {
    SKEIN_ASSIGN_OR_RETURN(
        const comm::InGraph timed,
        comm::TimeInGraph(
            group_, *timer_,
            {.calls = row.message_bytes <= kManyBytes ? 16 : 4,
             .budget = kBudget,
             .timeout = options_.timeout},
            [this] { return nccl_ == nullptr ? absl::OkStatus() : nccl_->Check(); }, give));
    row.seconds = timed.seconds / messages;
    row.samples = timed.samples;
    options_.add(row);
    return absl::OkStatus();
  }

  // All ranks at once, as in sums.
  absl::Status TimeCopy() {
    const int64_t bytes = sums_->memory_bytes();
    SKEIN_RETURN_IF_ERROR(
        Time({.name = absl::StrCat("copy to the next rank of ", FormatBytes(bytes)),
              .message_bytes = bytes,
              .carried = static_cast<double>(bytes),
              .is_copy = true},
             [&] { return sums_->CopyToNext(stream()); }));
    return group_.Barrier(kHostStream);  // a sum comes behind all copies
  }

  absl::Status TimeNccl(int64_t bytes) {
    SKEIN_RETURN_IF_ERROR(
        Time({.name = absl::StrCat("all-reduce of ", FormatBytes(bytes), ", NCCL"),
              .message_bytes = bytes,
              .carried = CarriedBySum(bytes)},
             [&] { return SumOverNccl(bytes); }));
    return Time(
        {.name = absl::StrCat("hop of ", FormatBytes(bytes), ", NCCL"),
         .message_bytes = bytes,
         .carried = static_cast<double>(bytes)},
        [&] { return HopOverNccl(bytes); }, /*messages=*/2);
  }

  absl::Status SumOverNccl(int64_t bytes) {
    return nccl_->AllReduce({.operation = comm::Operation::kAllReduce, .bytes = bytes},
                            Array(bytes), stream(), patience_);
  }
  // To and fro, between ranks 0 and 1.
  absl::Status HopOverNccl(int64_t bytes) {
    if (group_.rank() > 1) return absl::OkStatus();
    const View array = Array(bytes);
    const int other = 1 - group_.rank();
    const auto receive = [&] {
      return nccl_->Receive({.operation = comm::Operation::kReceive, .peer = other}, array,
                            stream(), patience_);
    };
    if (group_.rank() == 1) SKEIN_RETURN_IF_ERROR(receive());
    SKEIN_RETURN_IF_ERROR(nccl_->Send({.operation = comm::Operation::kSend, .peer = other}, array,
                                      stream(), patience_));
    return group_.rank() == 1 ? absl::OkStatus() : receive();
  }

  absl::Status TimePeers(int64_t bytes) {
    if (bytes > sums_->most_bytes()) return absl::OkStatus();
    using Shots = PeerSums::Shots;
    for (const auto& [shots, name] :
         {std::pair{Shots::kOne, "one shot"}, {Shots::kTwo, "two shots"}}) {
      if (shots == Shots::kOne && bytes > sums_->most_one_shot_bytes()) continue;
      SKEIN_RETURN_IF_ERROR(
          Time({.name = absl::StrCat("all-reduce of ", FormatBytes(bytes), ", peers, ", name),
                .message_bytes = bytes,
                .carried = CarriedBySum(bytes)},
               [&, shots = shots] { return sums_->Sum(Array(bytes), stream(), shots); }));
    }
    return absl::OkStatus();
  }

  absl::Status Close() {
    timer_ = nullptr;  // with its graph
    return sums_ == nullptr ? absl::OkStatus() : comm::ClosePeerSums(group_, *sums_);
  }

  comm::Communicator& group_;
  const DeviceCommBenchOptions& options_;
  std::unique_ptr<PeerSums> sums_;
  std::unique_ptr<comm::DeviceTransport> nccl_;
  std::unique_ptr<DeviceTimer> timer_;
  void* memory_ = nullptr;
  const comm::Patience patience_;
};

}  // namespace

absl::Status TimeDeviceComm(comm::Communicator& group, const DeviceCommBenchOptions& options) {
  DeviceCommBench bench(group, options);
  const absl::Status status = bench.Run();
  if (!status.ok()) bench.Abort();
  return status;
}

}  // namespace skein::worker
