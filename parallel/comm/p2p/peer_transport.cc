#include "parallel/comm/p2p/peer_transport.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "parallel/comm/gather_strings.h"

namespace skein::comm {
namespace {

class SumsOverMemory final : public DeviceTransport {
 public:
  SumsOverMemory(std::unique_ptr<PeerSums> sums, std::unique_ptr<DeviceTransport> rest)
      : sums_(std::move(sums)), rest_(std::move(rest)) {}
  // The rest's end is the ranks' common one: all have closed before one's memory goes.
  ~SumsOverMemory() override {
    sums_->Close();
    rest_ = nullptr;
  }

  // By size alone, which is every rank's.
  absl::Status AllReduce(const Call& call, View data, Stream stream,
                         const Patience& patience) override {
    return sums_->Takes(data) ? sums_->Sum(data, stream)
                              : rest_->AllReduce(call, data, stream, patience);
  }
  absl::Status Send(const Call& call, ConstView data, Stream stream,
                    const Patience& patience) override {
    return rest_->Send(call, data, stream, patience);
  }
  absl::Status Receive(const Call& call, View data, Stream stream,
                       const Patience& patience) override {
    return rest_->Receive(call, data, stream, patience);
  }
  absl::Status Check() override { return rest_->Check(); }
  std::string Others(const Call& call) const override { return rest_->Others(call); }
  bool SumsAsTree() const override { return rest_->SumsAsTree(); }  // large ones
  void Abort() override {
    sums_->Abort();
    rest_->Abort();
  }

 private:
  const std::unique_ptr<PeerSums> sums_;
  std::unique_ptr<DeviceTransport> rest_;
};

// The first rank's reason; empty where none has one.
absl::StatusOr<std::string> Agree(Communicator& group, const std::string& why_not) {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> all, GatherStrings(group, why_not));
  for (int rank = 0; rank < group.size(); ++rank) {
    if (!all[rank].empty()) return absl::StrCat("rank ", rank, " of the group: ", all[rank]);
  }
  return "";
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

absl::StatusOr<PeerTransport> MakePeerTransport(Communicator& group, const std::string& host,
                                                absl::StatusOr<std::unique_ptr<PeerSums>> sums,
                                                std::unique_ptr<DeviceTransport> rest) {
  PeerTransport made = {.transport = std::move(rest)};
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> hosts, GatherStrings(group, host));
  if (std::any_of(hosts.begin(), hosts.end(), [&](const auto& other) { return other != host; })) {
    made.why_not = "the group's ranks are on several hosts";
    return made;
  }
  SKEIN_ASSIGN_OR_RETURN(made.why_not, Agree(group, Message(sums.status())));
  if (!made.why_not.empty()) return made;
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> handles,
                         GatherStrings(group, (*sums)->handle()));
  SKEIN_ASSIGN_OR_RETURN(made.why_not, Agree(group, Message((*sums)->Open(handles))));
  if (made.why_not.empty()) {
    made.transport = std::make_unique<SumsOverMemory>(*std::move(sums), std::move(made.transport));
  }
  return made;
}

}  // namespace skein::comm
