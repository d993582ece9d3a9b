// Shared by the implementations of Communicator: names for calls, and errors that say which rank is
// to blame when a call fails or ranks entered different ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/range.h"

namespace skein::comm {

enum class Operation : uint8_t {
  kAllReduce,
  kAllGather,
  kBroadcast,
  kBarrier,
  kSend,  // sends and receives are numbered per pair and direction
  kReceive,
};

std::string_view OperationName(Operation operation);  // "all-reduce"
std::optional<Operation> ParseOperation(std::string_view name);

inline bool IsMessage(Operation operation) {
  return operation == Operation::kSend || operation == Operation::kReceive;
}
// True if Call::peer has a meaning.
inline bool HasPeer(Operation operation) {
  return IsMessage(operation) || operation == Operation::kBroadcast;
}

// One call, as every rank of the group must have entered it.
struct Call {
  Operation operation = Operation::kBarrier;
  int32_t peer = 0;    // a broadcast's root, a send's receiver, a receive's sender
  int64_t number = 0;  // from 1
  int64_t bytes = 0;   // of one rank's input

  friend bool operator==(const Call&, const Call&) = default;
};

// "all-reduce 812 of 'tp of replica 0'", "send 3 to rank 1 of 'pp of replica 0'".
std::string DescribeCall(const Call& call, std::string_view group);

// DeadlineExceeded: "rank 5 never entered all-reduce 812 of 'tp of replica 0' within 2s".
absl::Status NeverEntered(const std::vector<int>& ranks, const Call& call, std::string_view group,
                          absl::Duration timeout);

// DeadlineExceeded: "rank 5 entered all-reduce 812 of 'tp of replica 0' but did not finish it
// within 2s".
absl::Status NeverFinished(const std::vector<int>& ranks, const Call& call, std::string_view group,
                           absl::Duration timeout);

// FailedPrecondition that tells which calls both ranks entered.
absl::Status Mismatch(int rank, const Call& call, int peer, const Call& peer_call,
                      std::string_view group);

// The part of `count` elements that rank `rank` of `size` sums; parts differ by one element.
Range PartOf(int64_t count, int rank, int size);

// InvalidArgument, naming group and sizes, unless the arguments fit together.
absl::Status CheckAllGather(size_t in_bytes, size_t out_bytes, int size, std::string_view group);
// Unimplemented, saying what to do instead, unless the transport adds elements of this dtype.
absl::Status CheckSum(DType dtype, DType known, std::string_view group);
// `what` says what the rank is: "root of a broadcast"; `other_than` < 0 allows every rank.
absl::Status CheckRank(int rank, int size, int other_than, std::string_view what,
                       std::string_view group);

}  // namespace skein::comm
