#include "parallel/comm/call.h"

#include "base/test_util.h"
#include "gtest/gtest.h"

namespace skein::comm {
namespace {

using absl::StatusCode;

TEST(Call, IsNamed) {
  EXPECT_EQ(DescribeCall({Operation::kAllReduce, 0, 812, 64}, "tp of replica 0"),
            "all-reduce 812 of 'tp of replica 0'");
  EXPECT_EQ(DescribeCall({Operation::kBroadcast, 2, 7, 64}, "world"),
            "broadcast 7 from rank 2 of 'world'");
  EXPECT_EQ(DescribeCall({Operation::kSend, 1, 3, 64}, "pp"), "send 3 to rank 1 of 'pp'");
}

TEST(Call, IsBlamed) {
  const Call call = {Operation::kAllReduce, 0, 812, 64};
  EXPECT_THAT(NeverEntered({5}, call, "tp of replica 0", absl::Seconds(2)),
              StatusIs(StatusCode::kDeadlineExceeded,
                       "rank 5 never entered all-reduce 812 of 'tp of replica 0' within 2s"));
  EXPECT_THAT(NeverFinished({1, 3}, call, "tp", absl::Milliseconds(50)),
              StatusIs(StatusCode::kDeadlineExceeded,
                       "ranks 1, 3 entered all-reduce 812 of 'tp' but did not finish it within "
                       "50ms"));
  EXPECT_THAT(Mismatch(0, call, 2, {Operation::kBroadcast, 1, 812, 8}, "tp"),
              StatusIs(StatusCode::kFailedPrecondition,
                       "ranks of 'tp' disagree: rank 0 entered all-reduce 812 of 64 bytes, rank 2 "
                       "entered broadcast 812 from rank 1 of 8 bytes"));
}

TEST(Call, PartsCoverEverythingOnce) {
  for (int64_t count : {0, 1, 7, 8, 9, 1000}) {
    for (int size : {1, 2, 3, 5, 8}) {
      int64_t next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Range part = PartOf(count, rank, size);
        EXPECT_EQ(part.begin, next);
        EXPECT_LE(part.size(), count / size + 1);
        EXPECT_GE(part.size(), count / size);
        next = part.end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(Call, NamesOfOperationsAreReadBack) {
  for (const Operation operation :
       {Operation::kAllReduce, Operation::kAllGather, Operation::kBroadcast, Operation::kBarrier,
        Operation::kSend, Operation::kReceive}) {
    EXPECT_EQ(ParseOperation(OperationName(operation)), operation);
  }
  EXPECT_EQ(ParseOperation("all-reduc"), std::nullopt);
  EXPECT_EQ(ParseOperation("unknown operation"), std::nullopt);
}

TEST(Call, ArgumentsAreChecked) {
  SKEIN_EXPECT_OK(CheckAllGather(3, 12, 4, "g"));
  EXPECT_THAT(CheckAllGather(3, 11, 4, "g"),
              StatusIs(StatusCode::kInvalidArgument, testing::HasSubstr("11 bytes, not 4 ranks")));
  SKEIN_EXPECT_OK(CheckSum(DType::kF32, DType::kF32, "g"));
  EXPECT_THAT(CheckSum(DType::kF16, DType::kF32, "g"),
              StatusIs(StatusCode::kUnimplemented,
                       "all-reduce of 'g': this transport adds F32, not F16: "
                       "convert before the call"));
  SKEIN_EXPECT_OK(CheckRank(0, 4, -1, "root", "g"));
  for (int rank : {-1, 4, 2}) {
    EXPECT_THAT(CheckRank(rank, 4, 2, "receiver", "g"),
                StatusIs(StatusCode::kInvalidArgument, testing::HasSubstr("cannot be receiver")));
  }
}

}  // namespace
}  // namespace skein::comm
