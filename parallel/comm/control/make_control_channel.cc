#include "parallel/comm/control/make_control_channel.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/random_bytes.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/tls/shared_key_tls.h"
#include "parallel/comm/control/acceptor.h"
#include "parallel/comm/control/linked_channel.h"
#include "parallel/comm/control/shm_link.h"
#include "parallel/comm/control/tcp_socket.h"
#include "parallel/comm/gather_strings.h"

namespace skein::comm {
namespace {

constexpr size_t kCookieBytes = 16;

// How one rank is found by the others.
struct Address {
  HostIdentity host;
  int32_t pid = 0;
  // Of the leader only:
  int32_t segment_fd = -1;
  int32_t port = 0;
  std::string cookie;  // says that we reached the segment that we looked for
  std::string key;     // of what goes over TCP
  std::vector<std::string> ips;
};

std::string Encode(const Address& address) {
  ByteWriter writer;
  writer.Put(std::string_view(address.host.name));
  writer.Put(std::string_view(address.host.boot_id));
  writer.Put(address.pid);
  writer.Put(address.segment_fd);
  writer.Put(address.port);
  writer.Put(std::string_view(address.cookie));
  writer.Put(std::string_view(address.key));
  writer.Put(static_cast<uint64_t>(address.ips.size()));
  for (const std::string& ip : address.ips) writer.Put(std::string_view(ip));
  return writer.Take();
}

absl::StatusOr<Address> Decode(std::string_view bytes) {
  ByteReader reader(bytes);
  Address address;
  uint64_t ips = 0;
  reader.Get(address.host.name);
  reader.Get(address.host.boot_id);
  reader.Get(address.pid);
  reader.Get(address.segment_fd);
  reader.Get(address.port);
  reader.Get(address.cookie);
  reader.Get(address.key);
  reader.Get(ips);
  while (reader.ok() && address.ips.size() < ips) reader.Get(address.ips.emplace_back());
  if (!reader.Done()) return absl::InternalError("a rank's control address is malformed");
  return address;
}

// As which a follower connects.
std::string Identity(int rank) { return absl::StrCat("rank ", rank); }

// One rank's part in setting up a channel. Each step ends with all ranks knowing whether all went
// well, so that none waits for another that gave up.
class Setup {
 public:
  Setup(Communicator& group, const ControlOptions& options)
      : group_(group), options_(options), deadline_(absl::Now() + options.connect_timeout) {}

  absl::StatusOr<std::unique_ptr<ControlChannel>> Run();

 private:
  bool leads() const { return group_.rank() == 0; }
  absl::Status Offer();         // the leader makes its segment and listens; all exchange addresses
  absl::Status Reach();         // followers attach or connect
  absl::Status ConnectLinks();  // both ends make their links
  absl::Status LeaderLinks();
  absl::Status FollowerLinks();
  absl::Status AddShmLink(int peer, Ring out, Ring in);
  absl::Status StartTcp(std::vector<int> peers, std::vector<SecureSocket> connections);
  // A collective call: the first rank's error, on all ranks.
  absl::Status Agree(const absl::Status& mine);

  Communicator& group_;
  const ControlOptions options_;
  const absl::Time deadline_;
  Wiring wiring_;
  Address mine_;
  std::unique_ptr<Acceptor> acceptor_;  // the leader's
  std::vector<Address> addresses_;      // [size]
  SecureSocket connection_;             // of a follower, to the leader
  std::vector<bool> by_tcp_;            // [size]
};

absl::Status Setup::Agree(const absl::Status& mine) {
  const std::string text = mine.ok() ? "" : mine.ToString();
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> texts, GatherStrings(group_, text));
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (texts[rank].empty()) continue;
    return absl::UnavailableError(absl::StrCat("rank ", rank, " could not set up its part of the ",
                                               "control channel: ", texts[rank]));
  }
  return absl::OkStatus();
}

absl::Status Setup::Offer() {
  const auto offer = [this]() -> absl::Status {
    if (!std::has_single_bit(options_.ring_bytes)) {
      return absl::InvalidArgumentError("ring_bytes must be a power of two");
    }
    if (options_.host.has_value()) {
      mine_.host = *options_.host;
    } else {
      SKEIN_ASSIGN_OR_RETURN(mine_.host, ReadHostIdentity());
    }
    mine_.pid = getpid();
    if (!leads()) return absl::OkStatus();
    SKEIN_ASSIGN_OR_RETURN(mine_.cookie, RandomHex(kCookieBytes));
    SKEIN_ASSIGN_OR_RETURN(mine_.key, RandomBytes(kSharedKeyBytes));
    SKEIN_ASSIGN_OR_RETURN(wiring_.segment,
                           SharedSegment::Create(group_.size(), options_.ring_bytes, mine_.cookie));
    mine_.segment_fd = wiring_.segment->fd();
    Acceptor::Options options = {.key = mine_.key, .ports = options_.ports};
    for (int rank = 1; rank < group_.size(); ++rank) options.identities.push_back(Identity(rank));
    SKEIN_ASSIGN_OR_RETURN(acceptor_, Acceptor::Start(std::move(options)));
    mine_.port = acceptor_->port();
    SKEIN_ASSIGN_OR_RETURN(mine_.ips, HostAddresses());
    return absl::OkStatus();
  };
  SKEIN_RETURN_IF_ERROR(Agree(offer()));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> encoded,
                         GatherStrings(group_, Encode(mine_)));
  for (int rank = 0; rank < group_.size(); ++rank) {
    SKEIN_ASSIGN_OR_RETURN(Address address, Decode(encoded[rank]));
    wiring_.rank_names.push_back(absl::StrCat("rank ", rank, " on host ", address.host.name));
    addresses_.push_back(std::move(address));
  }
  return absl::OkStatus();
}

absl::Status Setup::Reach() {
  absl::Status reached;
  if (!leads()) {
    const Address& leader = addresses_[0];
    if (leader.host == mine_.host) {
      auto segment = SharedSegment::Attach(leader.pid, leader.segment_fd, group_.size(),
                                           options_.ring_bytes, leader.cookie);
      if (segment.ok()) wiring_.segment = *std::move(segment);
    }
    if (wiring_.segment == nullptr) {
      auto connected =
          Connect(leader.ips, leader.port, leader.key, Identity(group_.rank()), deadline_);
      reached = Annotate(connected.status(), absl::StrCat("reaching ", wiring_.rank_names[0]));
      if (connected.ok()) connection_ = *std::move(connected);
    }
  }
  SKEIN_RETURN_IF_ERROR(Agree(reached));
  const char by_tcp = wiring_.segment == nullptr ? 1 : 0;
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                         GatherStrings(group_, std::string_view(&by_tcp, 1)));
  for (const std::string& text : all) by_tcp_.push_back(text[0] != 0);
  return absl::OkStatus();
}

absl::Status Setup::AddShmLink(int peer, Ring out, Ring in) {
  ShmLinkEnd end = {out, in, &wiring_.segment->bell(peer), addresses_[peer].pid,
                    wiring_.rank_names[peer]};
  SKEIN_ASSIGN_OR_RETURN(std::unique_ptr<Link> link, MakeShmLink(std::move(end)));
  wiring_.links[peer] = link.get();
  wiring_.shm.push_back(std::move(link));
  return absl::OkStatus();
}

absl::Status Setup::StartTcp(std::vector<int> peers, std::vector<SecureSocket> connections) {
  std::vector<TcpLinkSet::Peer> ends;
  for (size_t i = 0; i < peers.size(); ++i) {
    ends.push_back({std::move(connections[i]), wiring_.rank_names[peers[i]]});
  }
  SKEIN_ASSIGN_OR_RETURN(wiring_.tcp,
                         TcpLinkSet::Start(std::move(ends), *wiring_.bell, options_.silence));
  for (size_t i = 0; i < peers.size(); ++i) {
    wiring_.links[peers[i]] = &wiring_.tcp->link(static_cast<int>(i));
  }
  return absl::OkStatus();
}

absl::Status Setup::LeaderLinks() {
  std::vector<int> peers;
  std::vector<SecureSocket> connections;
  std::vector<std::string> identities;
  for (int rank = 1; rank < group_.size(); ++rank) {
    if (by_tcp_[rank]) {
      peers.push_back(rank);
      identities.push_back(Identity(rank));
      continue;
    }
    SKEIN_RETURN_IF_ERROR(
        AddShmLink(rank, wiring_.segment->ring_to(rank), wiring_.segment->ring_from(rank)));
  }
  SKEIN_ASSIGN_OR_RETURN(auto connected, acceptor_->Take(identities, deadline_));
  acceptor_ = nullptr;  // nobody else is to come
  if (peers.empty()) return absl::OkStatus();
  for (const std::string& name : identities) connections.push_back(std::move(connected.at(name)));
  return StartTcp(std::move(peers), std::move(connections));
}

absl::Status Setup::FollowerLinks() {
  if (!by_tcp_[group_.rank()]) {
    const int rank = group_.rank();
    return AddShmLink(0, wiring_.segment->ring_from(rank), wiring_.segment->ring_to(rank));
  }
  std::vector<SecureSocket> connections;
  connections.push_back(std::move(connection_));
  return StartTcp({0}, std::move(connections));
}

absl::Status Setup::ConnectLinks() {
  wiring_.links.assign(group_.size(), nullptr);
  if (wiring_.segment != nullptr) {
    wiring_.bell = &wiring_.segment->bell(group_.rank());
  } else {
    wiring_.own_bell = std::make_unique<Bell>();
    wiring_.bell = wiring_.own_bell.get();
  }
  SKEIN_RETURN_IF_ERROR(Agree(leads() ? LeaderLinks() : FollowerLinks()));
  if (wiring_.segment != nullptr) wiring_.segment->CloseFile();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ControlChannel>> Setup::Run() {
  wiring_.rank = group_.rank();
  wiring_.size = group_.size();
  wiring_.group = std::string(group_.name());
  SKEIN_RETURN_IF_ERROR(Offer());
  SKEIN_RETURN_IF_ERROR(Reach());
  SKEIN_RETURN_IF_ERROR(ConnectLinks());
  return MakeLinkedChannel(std::move(wiring_));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlChannel>> MakeControlChannel(Communicator& group,
                                                                   const ControlOptions& options) {
  return Setup(group, options).Run();
}

}  // namespace skein::comm
