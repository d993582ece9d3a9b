#include "coordinator/cluster/hang.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

namespace skein::coordinator {
namespace {

// Ranks always wait a moment for each other; what a heartbeat sees for longer is worth a word.
constexpr absl::Duration kMoment = absl::Milliseconds(500);

// By rank of the job.
class Ranks {
 public:
  explicit Ranks(absl::Span<const RankActivity> ranks)
      : ranks_(ranks),
        some_look_(std::any_of(ranks.begin(), ranks.end(), [](const RankActivity& rank) {
          return rank.operation.has_value() && rank.operation->still < kMoment;
        })) {}
  int32_t size() const { return static_cast<int32_t>(ranks_.size()); }
  const RankActivity& operator[](int32_t rank) const { return ranks_[rank]; }
  // Some rank waits, and has looked for the others a moment ago.
  bool some_look() const { return some_look_; }

 private:
  const absl::Span<const RankActivity> ranks_;
  const bool some_look_;
};

using comm::Operation;
using comm::OperationInProgress;

bool IsMessage(const OperationInProgress& operation) {
  return comm::IsMessage(operation.call.operation);
}

bool Is(int32_t rank, const Ranks& ranks) { return rank >= 0 && rank < ranks.size(); }

int64_t Entered(const RankActivity& rank, const std::string& group) {
  const auto found = rank.entered.find(group);
  return found == rank.entered.end() ? 0 : found->second;
}

// Where all have entered a collective and none stands still, only those inside know whose bytes are
// missing: a rank gives up 5 s after the deadline and says it. This is for when none does.
constexpr absl::Duration kOwnVerdict = absl::Seconds(10);

// A rank that waits looks for the others every millisecond, on a busy machine every few hundred.
constexpr absl::Duration kStuck = absl::Seconds(5);

// Heartbeats come twice a second. A rank that waits has looked a moment before its last one;
// whoever has not for so long may have stopped.
constexpr absl::Duration kDoubt = absl::Seconds(1);
constexpr absl::Duration kFresh = absl::Milliseconds(1500);

// Its thread has not moved inside of its call, while another rank's waits and looks: so looking is
// what those who wait do here.
bool IsStuck(const Ranks& ranks, int32_t rank) {
  const auto& operation = ranks[rank].operation;
  return operation.has_value() && operation->still >= kStuck && ranks.some_look();
}

bool InSameCollective(const RankActivity& one, const RankActivity& other) {
  const auto& a = one.operation;
  const auto& b = other.operation;
  return a.has_value() && b.has_value() && !IsMessage(*a) && a->group == b->group &&
         a->call.operation == b->call.operation && a->call.number == b->call.number;
}

// "all-reduce 812 of 'tp of replica 0, stage 1'"
std::string Name(const OperationInProgress& operation) {
  const comm::Call& call = operation.call;
  std::string name = absl::StrCat(std::string(OperationName(call.operation)), " ", call.number);
  if (comm::HasPeer(call.operation) && call.peer >= 0) {
    absl::StrAppend(&name, call.operation == Operation::kSend ? " to rank " : " from rank ",
                    call.peer);
  }
  return absl::StrCat(name, " of '", operation.group, "'");
}

// The call of `rank` that `operation`, of rank `waiter`, waits for.
std::string NameOfMissing(const OperationInProgress& operation, int32_t waiter) {
  if (operation.call.operation == Operation::kReceive) {
    return absl::StrCat("send ", operation.call.number, " to rank ", waiter, " of '",
                        operation.group, "'");
  }
  if (operation.call.operation == Operation::kSend) {
    return absl::StrCat("the receive that makes room for ", Name(operation), " from rank ", waiter);
  }
  return Name(operation);
}

std::string NameOfStep(const RankActivity& rank) {
  return rank.step.has_value() ? absl::StrCat(" (step ", *rank.step, ")") : "";
}

std::string Seconds(absl::Duration time) {
  return absl::StrFormat("%.1f s", absl::ToDoubleSeconds(time));
}

// Those that `waiter` waits for: all who have not come, and who came and are stuck.
std::vector<int32_t> Awaited(const Ranks& ranks, int32_t waiter) {
  const auto& operation = ranks[waiter].operation;
  std::vector<int32_t> awaited;
  if (!operation.has_value() || IsStuck(ranks, waiter)) return awaited;
  for (int32_t other : operation->others) {
    if (!Is(other, ranks) || other == waiter) continue;
    const bool came =
        !IsMessage(*operation) && Entered(ranks[other], operation->group) >= operation->call.number;
    const bool stuck = InSameCollective(ranks[waiter], ranks[other]) && IsStuck(ranks, other);
    if (!came || stuck) awaited.push_back(other);
  }
  return awaited;
}

// Everyone has entered the waiter's operation, and nobody is known to have left it.
bool AllAreInside(const Ranks& ranks, int32_t waiter) {
  const OperationInProgress& mine = *ranks[waiter].operation;
  return std::all_of(mine.others.begin(), mine.others.end(), [&](int32_t other) {
    return Is(other, ranks) && InSameCollective(ranks[waiter], ranks[other]);
  });
}

bool Contains(const std::vector<int32_t>& list, int32_t rank) {
  return std::find(list.begin(), list.end(), rank) != list.end();
}

// "all-reduce 7 of 'tp' (step 3) for 3.2 s", by what is waited in; directly or for one who waits.
std::string DescribeWaiters(const Ranks& ranks, int32_t culprit) {
  std::set<int32_t> held = {culprit};
  for (bool grew = true; grew;) {
    grew = false;
    for (int32_t rank = 0; rank < ranks.size(); ++rank) {
      const auto& operation = ranks[rank].operation;
      if (held.contains(rank) || !operation.has_value() || operation->elapsed < kMoment) {
        continue;
      }
      const std::vector<int32_t> awaited = Awaited(ranks, rank);
      // Of a collective that all have entered, one who was silent since may be missing.
      const bool stuck = awaited.empty() && !IsStuck(ranks, rank) && AllAreInside(ranks, rank) &&
                         Contains(operation->others, culprit);
      const bool waits = std::any_of(awaited.begin(), awaited.end(),
                                     [&](int32_t other) { return held.contains(other); });
      if (waits || stuck) grew = held.insert(rank).second;
    }
  }
  held.erase(culprit);
  std::map<std::string, std::pair<std::vector<int32_t>, absl::Duration>> places;
  for (int32_t rank : held) {
    auto& [waiting, longest] =
        places[absl::StrCat(Name(*ranks[rank].operation), NameOfStep(ranks[rank]))];
    waiting.push_back(rank);
    longest = std::max(longest, ranks[rank].operation->elapsed);
  }
  std::vector<std::string> parts;
  for (const auto& [place, who] : places) {
    const bool one = who.first.size() == 1;
    parts.push_back(absl::StrCat(one ? "rank " : "ranks ", absl::StrJoin(who.first, ", "),
                                 one ? " has" : " have", " waited in ", place, " for ",
                                 Seconds(who.second)));
  }
  return parts.empty() ? "no rank waits for it" : absl::StrJoin(parts, "; ");
}

// "in all-reduce 6 of 'tp' (step 3)", "computing step 3", "waiting for an order".
std::string DescribeWork(const RankActivity& rank) {
  if (rank.operation.has_value()) {
    return absl::StrCat("in ", Name(*rank.operation), NameOfStep(rank));
  }
  if (rank.step.has_value()) return absl::StrCat("computing step ", *rank.step);
  return "waiting for an order";
}

// A rank that gives up on its own does so 5 s after the deadline, and knows less.
constexpr absl::Duration kLastChance = absl::Seconds(4);

// What is still waited for to become certain, by the rank that has waited for longest.
struct Doubts {
  // Who is silent is named by its silence soon.
  bool silent = false;
  // Who was stuck when the waiting began is known to be by now; on a busy machine some rank always
  // looks as if it were.
  bool still = false;

  explicit Doubts(const RankActivity& longest)
      : silent(longest.operation->elapsed < longest.deadline + kLastChance),
        still(longest.operation->elapsed < kStuck + kFresh) {}
};

// Whether it is too early to say: the rank is silent, so that it is not known what it does, or may
// be stuck in its call, though not yet for long enough.
bool MayBeStuck(const RankActivity& rank, const Doubts& doubts) {
  if (doubts.silent && rank.age > kFresh) return true;
  return doubts.still && rank.operation.has_value() && rank.operation->still + rank.age >= kDoubt &&
         rank.operation->still < kStuck;
}

// The ranks at the ends of all chains of waiting that begin with `waiters`; one of these that is
// stuck is an end itself. Nothing where a rank of a chain may yet prove to be one.
std::optional<std::set<int32_t>> EndsOfChains(const Ranks& ranks, std::vector<int32_t> waiters,
                                              const Doubts& doubts) {
  std::set<int32_t> seen(waiters.begin(), waiters.end());
  std::set<int32_t> ends;
  while (!waiters.empty()) {
    const int32_t waiter = waiters.back();
    waiters.pop_back();
    if (MayBeStuck(ranks[waiter], doubts)) return std::nullopt;
    if (IsStuck(ranks, waiter)) ends.insert(waiter);
    for (int32_t other : Awaited(ranks, waiter)) {
      if (MayBeStuck(ranks[other], doubts)) return std::nullopt;
      if (Awaited(ranks, other).empty()) {
        ends.insert(other);
      } else if (seen.insert(other).second) {
        waiters.push_back(other);
      }
    }
  }
  return ends;
}

// Of the ranks that wait for `culprit` itself, the one that does for longest; -1: none.
int32_t LongestWaiter(const Ranks& ranks, int32_t culprit) {
  int32_t longest = -1;
  for (int32_t rank = 0; rank < ranks.size(); ++rank) {
    if (!Contains(Awaited(ranks, rank), culprit)) continue;
    if (longest < 0 || ranks[rank].operation->elapsed > ranks[longest].operation->elapsed) {
      longest = rank;
    }
  }
  return longest;
}

// Of the ranks at ends of chains, those that hold up `waiter` in the same way as `culprit`.
std::vector<int32_t> Accomplices(const Ranks& ranks, int32_t waiter, int32_t culprit,
                                 const std::set<int32_t>& ends) {
  std::vector<int32_t> alike;
  if (waiter < 0) return alike;
  for (int32_t other : Awaited(ranks, waiter)) {
    if (other != culprit && ends.contains(other) &&
        IsStuck(ranks, other) == IsStuck(ranks, culprit)) {
      alike.push_back(other);
    }
  }
  return alike;
}

Hang Blame(const Ranks& ranks, int32_t culprit, const std::set<int32_t>& ends,
           absl::Duration deadline) {
  const int32_t waiter = LongestWaiter(ranks, culprit);
  const std::vector<int32_t> too = Accomplices(ranks, waiter, culprit, ends);
  const std::string others =
      absl::StrCat(too.size() == 1 ? " rank " : " ranks ", absl::StrJoin(too, ", "));
  std::string why;
  if (IsStuck(ranks, culprit)) {
    const OperationInProgress& operation = *ranks[culprit].operation;
    why = absl::StrCat("it entered ", Name(operation), NameOfStep(ranks[culprit]),
                       " but has not moved for ", Seconds(operation.still));
    if (!too.empty()) absl::StrAppend(&why, ", nor ", too.size() == 1 ? "has" : "have", others);
  } else {
    why = absl::StrCat("it never entered ", NameOfMissing(*ranks[waiter].operation, waiter),
                       NameOfStep(ranks[waiter]));
    if (!too.empty()) absl::StrAppend(&why, ", nor did", others);
    absl::StrAppend(&why, "; it was last heard ", DescribeWork(ranks[culprit]));
  }
  absl::StrAppend(&why, "; ", DescribeWaiters(ranks, culprit), ", past the deadline of ",
                  Seconds(deadline));
  return {culprit, std::move(why)};
}

}  // namespace

std::optional<Hang> FindHang(absl::Span<const RankActivity> activities) {
  const Ranks ranks(activities);
  std::vector<int32_t> late;  // waiters
  int32_t latest = -1;
  for (int32_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& operation = ranks[rank].operation;
    if (!operation.has_value() || operation->elapsed <= ranks[rank].deadline) continue;
    late.push_back(rank);
    if (latest < 0 || operation->elapsed > ranks[latest].operation->elapsed) latest = rank;
  }
  if (late.empty()) return std::nullopt;
  const absl::Duration deadline = ranks[latest].deadline;
  const std::optional<std::set<int32_t>> ends = EndsOfChains(ranks, late, Doubts(ranks[latest]));
  if (!ends.has_value()) return std::nullopt;
  if (!ends->empty()) return Blame(ranks, *ends->begin(), *ends, deadline);
  // Nobody is at an end: the ranks wait in a circle, or inside of one collective.
  const std::vector<int32_t> awaited = Awaited(ranks, latest);
  if (!awaited.empty()) return Blame(ranks, awaited.front(), {}, deadline);
  if (!AllAreInside(ranks, latest)) return std::nullopt;  // some have left: others will
  if (ranks[latest].operation->elapsed <= deadline + kOwnVerdict) return std::nullopt;
  return Hang{latest, absl::StrCat("all ranks of the group have entered ",
                                   Name(*ranks[latest].operation), NameOfStep(ranks[latest]),
                                   ", and it did not end within ", Seconds(deadline))};
}

std::string DescribeLoss(absl::Span<const RankActivity> activities, int32_t rank) {
  const Ranks ranks(activities);
  return absl::StrCat("it was last heard ", DescribeWork(ranks[rank]), "; ",
                      DescribeWaiters(ranks, rank));
}

}  // namespace skein::coordinator
