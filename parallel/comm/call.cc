#include "parallel/comm/call.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace skein::comm {
namespace {

absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

std::string NameRanks(const std::vector<int>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

// "send 3 to rank 1".
std::string NameCall(const Call& call) {
  const std::string numbered =
      absl::StrCat(ToAbsl(OperationName(call.operation)), " ", call.number);
  switch (call.operation) {
    case Operation::kBroadcast:
    case Operation::kReceive:
      return absl::StrCat(numbered, " from rank ", call.peer);
    case Operation::kSend:
      return absl::StrCat(numbered, " to rank ", call.peer);
    default:
      return numbered;
  }
}

}  // namespace

std::string_view OperationName(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return "all-reduce";
    case Operation::kAllGather:
      return "all-gather";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kSend:
      return "send";
    case Operation::kReceive:
      return "receive";
  }
  return "unknown operation";
}

std::optional<Operation> ParseOperation(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(Operation::kReceive); ++i) {
    if (OperationName(static_cast<Operation>(i)) == name) return static_cast<Operation>(i);
  }
  return std::nullopt;
}

std::string DescribeCall(const Call& call, std::string_view group) {
  return absl::StrCat(NameCall(call), " of '", ToAbsl(group), "'");
}

absl::Status NeverEntered(const std::vector<int>& ranks, const Call& call, std::string_view group,
                          absl::Duration timeout) {
  return absl::DeadlineExceededError(absl::StrCat(NameRanks(ranks), " never entered ",
                                                  DescribeCall(call, group), " within ",
                                                  absl::FormatDuration(timeout)));
}

absl::Status NeverFinished(const std::vector<int>& ranks, const Call& call, std::string_view group,
                           absl::Duration timeout) {
  return absl::DeadlineExceededError(
      absl::StrCat(NameRanks(ranks), " entered ", DescribeCall(call, group),
                   " but did not finish it within ", absl::FormatDuration(timeout)));
}

absl::Status Mismatch(int rank, const Call& call, int peer, const Call& peer_call,
                      std::string_view group) {
  return absl::FailedPreconditionError(
      absl::StrCat("ranks of '", ToAbsl(group), "' disagree: rank ", rank, " entered ",
                   NameCall(call), " of ", call.bytes, " bytes, rank ", peer, " entered ",
                   NameCall(peer_call), " of ", peer_call.bytes, " bytes"));
}

Range PartOf(int64_t count, int rank, int size) {
  const int64_t each = count / size;
  const int64_t larger = count % size;  // the first parts hold one element more
  const int64_t begin = rank * each + std::min<int64_t>(rank, larger);
  return {begin, begin + each + (rank < larger ? 1 : 0)};
}

absl::Status CheckAllGather(size_t in_bytes, size_t out_bytes, int size, std::string_view group) {
  if (out_bytes == in_bytes * size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("all-gather of '", ToAbsl(group),
                                                 "': the result holds ", out_bytes, " bytes, not ",
                                                 size, " ranks * ", in_bytes));
}

absl::Status CheckSum(DType dtype, DType known, std::string_view group) {
  if (dtype == known) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "all-reduce of '", ToAbsl(group), "': this transport adds ", ToAbsl(DTypeName(known)),
      ", not ", ToAbsl(DTypeName(dtype)), ": convert before the call"));
}

absl::Status CheckRank(int rank, int size, int other_than, std::string_view what,
                       std::string_view group) {
  if (rank >= 0 && rank < size && rank != other_than) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " cannot be ", ToAbsl(what),
                                                 " in '", ToAbsl(group), "' of ", size, " ranks",
                                                 rank == other_than ? ": it is the caller" : ""));
}

}  // namespace skein::comm
