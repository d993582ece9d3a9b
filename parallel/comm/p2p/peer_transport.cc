#include "parallel/comm/p2p/peer_transport.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/stream.h"
#include "base/view.h"
#include "parallel/comm/gather_strings.h"

namespace skein::comm {
namespace {

class SumsOverMemory final : public DeviceTransport {
 public:
  SumsOverMemory(std::unique_ptr<PeerSums> sums, std::unique_ptr<DeviceTransport> rest,
                 std::vector<std::string> members, int64_t most_bytes)
      : sums_(std::move(sums)),
        rest_(std::move(rest)),
        members_(std::move(members)),
        most_bytes_(most_bytes) {}
  // The rest's end is the ranks' common one: all have closed before one's memory goes.
  ~SumsOverMemory() override {
    sums_->Close();
    rest_ = nullptr;
  }

  absl::Status BeginStep(int64_t step, uint32_t order, Stream stream) override {
    SKEIN_RETURN_IF_ERROR(sums_->BeginStep(step, order, stream));
    return rest_->BeginStep(step, order, stream);
  }
  // By size alone, which is every rank's.
  absl::Status AllReduce(const Call& call, View data, Stream stream,
                         const Patience& patience) override {
    return Takes(data) ? sums_->Sum(data, stream) : rest_->AllReduce(call, data, stream, patience);
  }
  const PeerMemory* PeersOf(const View& data) const override {
    return Takes(data) ? &sums_->memory() : nullptr;
  }
  absl::Status Send(const Call& call, ConstView data, Stream stream,
                    const Patience& patience) override {
    return rest_->Send(call, data, stream, patience);
  }
  absl::Status Receive(const Call& call, View data, Stream stream,
                       const Patience& patience) override {
    return rest_->Receive(call, data, stream, patience);
  }
  absl::Status Check() override {
    const std::optional<PeerSums::Disagreement> other = sums_->Disagrees();
    if (!other.has_value()) return rest_->Check();
    return absl::FailedPreconditionError(absl::StrCat(members_[other->rank], " makes ", other->seen,
                                                      ", where this rank makes ", other->expected,
                                                      ": they follow unlike orders"));
  }
  std::string Others(const Call& call) const override {
    const std::optional<PeerSums::Wait> wait = sums_->Waiting();
    if (IsMessage(call.operation) || !wait.has_value()) return rest_->Others(call);
    const auto name = [this](std::string* out, int rank) { out->append(members_[rank]); };
    return absl::StrCat(absl::StrJoin(wait->ranks, ", ", name), " in ", wait->sum);
  }
  bool SumsAsTree() const override { return rest_->SumsAsTree(); }  // large ones
  void Abort() override {
    sums_->Abort();
    rest_->Abort();
  }

 private:
  bool Takes(const View& data) const { return data.bytes() <= most_bytes_ && sums_->Takes(data); }

  const std::unique_ptr<PeerSums> sums_;
  std::unique_ptr<DeviceTransport> rest_;
  const std::vector<std::string> members_;  // by rank
  const int64_t most_bytes_;
};

// The first rank's reason; empty where none has one.
absl::StatusOr<std::string> Agree(Communicator& group, const std::string& why_not) {
  SKEIN_ASSIGN_OR_RETURN(const std::optional<RankText> first, FirstText(group, why_not));
  return first ? absl::StrCat("rank ", first->rank, " of the group: ", first->text) : "";
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// A first sum, which tells whether what devices write comes through.
absl::Status TrySum(const PeerEnd& end) {
  PeerSums& sums = **end.sums;
  SKEIN_ASSIGN_OR_RETURN(void* const data, end.timer->Memory(sums.most_bytes()));
  SKEIN_RETURN_IF_ERROR(
      end.timer->Capture([&] { return sums.Sum({data, DType::kF32, 1, 2}, end.timer->stream()); }));
  const absl::Time deadline = absl::Now() + end.timeout;
  const absl::Status status = end.timer
                                  ->Replay([&]() -> absl::Status {
                                    if (absl::Now() < deadline) return absl::OkStatus();
                                    return absl::DeadlineExceededError(
                                        absl::StrCat("a first sum over peer memory was not over "
                                                     "within ",
                                                     absl::FormatDuration(end.timeout)));
                                  })
                                  .status();
  if (!status.ok()) sums.Abort();
  return status;
}

// Sets how large sums may be, as rank 0 measures.
absl::Status FindCrossover(Communicator& group, const PeerEnd& end, PeerTransport& made) {
  PeerSums& sums = **end.sums;
  made.most_bytes = sums.most_bytes();
  if (end.timer == nullptr) return absl::OkStatus();
  SKEIN_ASSIGN_OR_RETURN(made.why_not, Agree(group, Message(TrySum(end))));
  if (!made.why_not.empty()) return absl::OkStatus();
  auto times = TimeSums(group, sums, *made.transport, *end.timer, end.timeout);
  if (!times.ok()) {
    sums.Abort();
    made.transport->Abort();
    return times.status();
  }
  made.times = *std::move(times);
  int64_t limits[] = {CrossoverOf(made.times), OneShotOf(made.times)};
  SKEIN_RETURN_IF_ERROR(group.Broadcast({limits, DType::kU8, 1, sizeof(limits)}, 0, kHostStream));
  made.most_bytes = limits[0];
  made.one_shot_bytes = limits[1];
  sums.set_one_shot_bytes(made.one_shot_bytes);
  if (made.most_bytes == 0) {
    made.why_not = absl::StrCat("it is slower at all sizes: ", DescribeTimes(made.times));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> OpenPeerSums(Communicator& group, const std::string& host,
                                         const absl::StatusOr<std::unique_ptr<PeerSums>>& sums) {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> hosts, GatherStrings(group, host));
  if (std::any_of(hosts.begin(), hosts.end(), [&](const auto& of) { return of != host; })) {
    return "the group's ranks are on several hosts";
  }
  SKEIN_ASSIGN_OR_RETURN(const std::string lacks, Agree(group, Message(sums.status())));
  if (!lacks.empty()) return lacks;
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> handles,
                         GatherStrings(group, (*sums)->handle()));
  SKEIN_ASSIGN_OR_RETURN(std::string why_not, Agree(group, Message((*sums)->Open(handles))));
  if (!why_not.empty()) SKEIN_RETURN_IF_ERROR(ClosePeerSums(group, **sums));
  return why_not;
}

absl::Status ClosePeerSums(Communicator& group, PeerSums& sums) {
  sums.Close();
  return group.Barrier(kHostStream);
}

absl::StatusOr<PeerTransport> MakePeerTransport(Communicator& group, PeerEnd end,
                                                std::unique_ptr<DeviceTransport> rest) {
  PeerTransport made = {.transport = std::move(rest)};
  SKEIN_ASSIGN_OR_RETURN(made.why_not, OpenPeerSums(group, end.host, end.sums));
  if (!made.why_not.empty()) return made;
  SKEIN_ASSIGN_OR_RETURN(std::vector<std::string> members, GatherStrings(group, end.self));
  SKEIN_RETURN_IF_ERROR(FindCrossover(group, end, made));
  if (!made.why_not.empty()) {
    SKEIN_RETURN_IF_ERROR(ClosePeerSums(group, **end.sums));
    return made;
  }
  made.transport = std::make_unique<SumsOverMemory>(*std::move(end.sums), std::move(made.transport),
                                                    std::move(members), made.most_bytes);
  return made;
}

}  // namespace skein::comm
