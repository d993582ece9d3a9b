#include "worker/probe/group_plan.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

namespace skein::worker {
namespace {

std::vector<int> HostsOf(const comm::MpiRuntime& mpi) {
  std::vector<int> hosts;
  for (int rank = 0; rank < mpi.size(); ++rank) hosts.push_back(mpi.host_of(rank));
  return hosts;
}

bool IsPowerOfTwo(int value) { return (value & (value - 1)) == 0; }

}  // namespace

Places::Places(std::vector<int> host_of_rank) : host(std::move(host_of_rank)) {
  for (const int of : host) {
    if (of >= hosts()) of_hosts.resize(of + 1);
    local.push_back(of_hosts[of]++);
  }
}

Places::Places(const comm::MpiRuntime& mpi) : Places(HostsOf(mpi)) {}

int Places::most_local() const { return *std::max_element(of_hosts.begin(), of_hosts.end()); }

std::vector<int> Places::GroupSizes() const {
  std::vector<int> sizes;
  for (int size = 2; size <= most_local(); ++size) {
    const bool divides = std::any_of(of_hosts.begin(), of_hosts.end(),
                                     [size](int ranks) { return ranks % size == 0; });
    if (divides || IsPowerOfTwo(size)) sizes.push_back(size);
  }
  return sizes;
}

std::vector<AcrossShape> Places::GroupsAcross() const {
  std::vector<AcrossShape> shapes;
  const int least = *std::min_element(of_hosts.begin(), of_hosts.end());
  for (int count = 2; count <= hosts(); ++count) {
    if (count != hosts() && !IsPowerOfTwo(count)) continue;
    shapes.push_back({count, 1});
    if (least > 1 && least == most_local()) shapes.push_back({count, least});
  }
  return shapes;
}

int Places::FirstOf(int of_host) const {
  return static_cast<int>(std::find(host.begin(), host.end(), of_host) - host.begin());
}

int PartnerIn(int round, int at, int count) {
  // The circle method: the last seat stays, the others move on. One too many meets nobody.
  const int seats = count + count % 2;
  if (round >= seats - 1) return -1;
  int other = round;
  if (at != seats - 1) {
    other = ((2 * round - at) % (seats - 1) + seats - 1) % (seats - 1);
    if (other == at) other = seats - 1;
  }
  return other < count ? other : -1;
}

Seat SeatOnHost(const Places& places, int rank, int size, bool one_group) {
  const int at = places.local[rank];
  const int groups = places.of_hosts[places.host[rank]] / size;
  if (at >= (one_group ? std::min(groups, 1) : groups) * size) return {};
  return {places.host[rank] * places.most_local() + at / size, at % size};
}

Seat SeatAcross(const Places& places, int rank, const AcrossShape& shape) {
  const int host = places.host[rank], at = places.local[rank];
  const int group = host / shape.hosts;
  if (at >= shape.ranks_per_host || (group + 1) * shape.hosts > places.hosts()) return {};
  return {group, host % shape.hosts * shape.ranks_per_host + at};
}

Seat SeatInPair(const Places& places, int rank, int round) {
  const int host = places.host[rank], at = places.local[rank];
  const int other = PartnerIn(round, at, places.of_hosts[host]);
  if (other < 0) return {};
  return {host * places.most_local() + std::min(at, other), at < other ? 0 : 1};
}

plan::Plan PlanOf(int ranks, int size, bool stages, absl::FunctionRef<Seat(int rank)> seat_of) {
  plan::Plan plan;
  plan.layout.dp_size = ranks;  // more than there are: idle ranks have one each
  (stages ? plan.layout.pp_size : plan.layout.tp_size) = size;
  std::map<int, int32_t> groups;  // to their numbers, below those of idle ranks
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const Seat seat = seat_of(rank);
    plan::RankPlan& of = plan.ranks.emplace_back();
    of.rank = rank;
    const auto next = static_cast<int32_t>(groups.size());
    of.dp_rank = seat.group < 0 ? ranks + rank : groups.emplace(seat.group, next).first->second;
    (stages ? of.pp_rank : of.tp_rank) = seat.place;
  }
  return plan;
}

}  // namespace skein::worker
