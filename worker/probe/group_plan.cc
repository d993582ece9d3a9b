#include "worker/probe/group_plan.h"

#include <algorithm>
#include <cstdint>

namespace skein::worker {

Places::Places(const comm::MpiRuntime& mpi) {
  std::vector<int> count;
  for (int rank = 0; rank < mpi.size(); ++rank) {
    const int of = mpi.host_of(rank);
    if (of >= static_cast<int>(count.size())) count.resize(of + 1);
    host.push_back(of);
    local.push_back(count[of]++);
  }
  hosts = static_cast<int>(count.size());
  least_local = *std::min_element(count.begin(), count.end());
}

int Places::FirstOf(int of_host) const {
  return static_cast<int>(std::find(host.begin(), host.end(), of_host) - host.begin());
}

int PartnerIn(int round, int at, int count) {
  // The circle method: the last seat stays, the others move on. One too many meets nobody.
  const int seats = count + count % 2;
  int other = round;
  if (at != seats - 1) {
    other = ((2 * round - at) % (seats - 1) + seats - 1) % (seats - 1);
    if (other == at) other = seats - 1;
  }
  return other < count ? other : -1;
}

Seat SeatOnHost(const Places& places, int rank, int size, int groups) {
  const int at = places.local[rank];
  if (at >= groups * size) return {};
  return {places.host[rank] * groups + at / size, at % size};
}

plan::Plan PlanOf(int ranks, int size, bool stages, absl::FunctionRef<Seat(int rank)> seat_of) {
  plan::Plan plan;
  plan.layout.dp_size = ranks;  // more than there are: idle ranks have one each
  (stages ? plan.layout.pp_size : plan.layout.tp_size) = size;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const Seat seat = seat_of(rank);
    plan::RankPlan& of = plan.ranks.emplace_back();
    of.rank = rank;
    of.dp_rank = seat.group < 0 ? ranks + rank : seat.group;
    (stages ? of.pp_rank : of.tp_rank) = seat.place;
  }
  return plan;
}

}  // namespace skein::worker
