// NCCL as it is opened, met and left, over a library that moves nothing: no GPU is needed.
#include "parallel/comm/nccl/nccl_group.h"

#include <dlfcn.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/fake_device.h"
#include "parallel/comm/inprocess/inprocess.h"
#include "parallel/comm/nccl/fake_nccl.h"
#include "parallel/comm/nccl/nccl_library.h"

namespace skein::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Fake(const std::string& kind) { return "parallel/comm/nccl/fake_" + kind + ".so"; }

TEST(OpenNcclLibrary, TheFirstThatIsThereCounts) {
  SKEIN_EXPECT_OK(OpenNcclLibrary({"libskein_absent.so.2", "/nowhere/a.so", Fake("nccl")}));
  EXPECT_FALSE(OpenNcclLibrary({Fake("old"), Fake("nccl")}).ok());
}

TEST(OpenNcclLibrary, WhatCannotBeUsedIsNamed) {
  EXPECT_THAT(OpenNcclLibrary({"libskein_absent.so.2", "/nowhere/a.so"}),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("there is no NCCL: "), HasSubstr("libskein_absent.so.2"))));
  const std::string text = ::testing::TempDir() + "/text.so";
  std::ofstream(text) << "no library\n";
  EXPECT_THAT(OpenNcclLibrary({text}), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                HasSubstr("NCCL cannot be opened: " + text)));
  EXPECT_THAT(
      OpenNcclLibrary({Fake("old")}),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("NCCL is of version 2.27.7, older than this was built for, 2.28")));
  EXPECT_THAT(OpenNcclLibrary({Fake("lacking")}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("NCCL has no nccl")));
}

TEST(OpenNcclLibrary, AnotherPatchOfTheVersionWillDo) {
  SKEIN_EXPECT_OK(OpenNcclLibrary({Fake("patch")}));
}

class NcclGroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKEIN_ASSERT_OK_AND_ASSIGN(nccl_, OpenNcclLibrary({Fake("nccl")}));
    void* const handle = dlopen(Fake("nccl").c_str(), RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(handle, nullptr);
    fake_ = static_cast<FakeNccl*>(dlsym(handle, "fake_nccl"));
    ASSERT_NE(fake_, nullptr);
  }
  void TearDown() override {
    fake_->init_waits = false;
    fake_->end_waits = false;
    fake_->id_code = 0;
    fake_->init_code = 0;
    fake_->refused_rank = -1;
    fake_->async_code = 0;
  }

  // Both ranks of a pair at once.
  using Made = absl::StatusOr<std::unique_ptr<NcclGroup>>;
  std::vector<Made> Make(absl::Duration timeout, int most_blocks = 0) {
    hosts_ = MakeInProcessGroup(2, "tp of replica 0");
    std::vector<Made> made(2);
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        made[i] = NcclGroup::Create(nccl_, *hosts_[i], i == 0 ? "rank 4 on a" : "rank 5 on b",
                                    events_, timeout, most_blocks);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return made;
  }
  static bool Soon(const std::atomic<int>& value, int wanted) {
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    while (value < wanted && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
    return value == wanted;
  }

  NcclFunctions nccl_;
  FakeNccl* fake_ = nullptr;
  const std::shared_ptr<FakeEvents> events_ = std::make_shared<FakeEvents>();
  std::vector<std::unique_ptr<Communicator>> hosts_;
  const Patience patience_;
  int handle_ = 0;
  const Stream stream_ = {&handle_};
  const Call call_ = {.operation = Operation::kAllReduce, .number = 812, .bytes = 12};
};

TEST_F(NcclGroupTest, KernelsHaveAsManyBlocksAsAreAsked) {
  for (const int most : {2, 0}) {
    for (const Made& made : Make(absl::Seconds(10), most)) SKEIN_ASSERT_OK(made);
    EXPECT_EQ(fake_->most_blocks, most);
  }
}

TEST_F(NcclGroupTest, RanksMeetUseTheGroupAndEndTogether) {
  const int inits = fake_->inits, ends = fake_->destroys, aborts = fake_->aborts;
  {
    std::vector<Made> made = Make(absl::Seconds(10));
    SKEIN_ASSERT_OK(made[0]);
    SKEIN_ASSERT_OK(made[1]);
    EXPECT_EQ(fake_->inits, inits + 2);
    EXPECT_EQ(fake_->blocking_inits, fake_->inits);
    EXPECT_EQ(events_->selected, 2);
    NcclGroup& group = **made[1];
    SKEIN_EXPECT_OK(group.Check());
    EXPECT_FALSE(group.SumsAsTree());
    uint16_t data[6] = {};
    SKEIN_EXPECT_OK(group.AllReduce(call_, {data, DType::kBF16, 2, 3}, stream_, patience_));
    EXPECT_EQ(fake_->elements, 6);
    EXPECT_EQ(fake_->bf16_sums, 1);
    SKEIN_EXPECT_OK(group.AllReduce(call_, {data, DType::kF32, 1, 3}, stream_, patience_));
    EXPECT_EQ(fake_->elements, 3);
    EXPECT_EQ(fake_->bf16_sums, 1);
    EXPECT_EQ(fake_->sums, 2);
    SKEIN_EXPECT_OK(group.AllReduce(call_, {data, DType::kF16, 2, 3}, stream_, patience_));
    EXPECT_EQ(fake_->f16_sums, 1);
    EXPECT_THAT(group.AllReduce(call_, {data, DType::kU8, 2, 3}, stream_, patience_),
                StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("BF16 and F16, not U8")));
    const Call send = {.operation = Operation::kSend, .peer = 0, .number = 1};
    SKEIN_EXPECT_OK(group.Send(send, ConstView{data, DType::kBF16, 2, 3}, stream_, patience_));
    EXPECT_EQ(fake_->sent_bytes, 12);
    EXPECT_EQ(fake_->sent_to, 0);
    EXPECT_EQ(group.Others(send), "rank 4 on a");
    const Call receive = {.operation = Operation::kReceive, .peer = 1, .number = 1};
    SKEIN_EXPECT_OK((*made[0])->Receive(receive, {data, DType::kBF16, 2, 3}, stream_, patience_));
    EXPECT_EQ(fake_->received_from, 1);
    EXPECT_EQ((*made[0])->Others(call_), "rank 5 on b");
    EXPECT_EQ(events_->selected, 2 + 5);  // by each call, whichever thread makes it
  }
  EXPECT_EQ(events_->selected, 2 + 5 + 2);
  EXPECT_EQ(fake_->finalizes, fake_->destroys);
  EXPECT_EQ(fake_->destroys, ends + 2);
  EXPECT_EQ(fake_->aborts, aborts);
}

TEST_F(NcclGroupTest, ARankThatNeverComesIsNamedByTheDeadline) {
  fake_->init_waits = true;
  const absl::Time begin = absl::Now();
  const std::vector<Made> made = Make(absl::Milliseconds(300));
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(300));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  EXPECT_THAT(made[0], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                "NCCL for 'tp of replica 0': ncclCommInitRankConfig of rank 4 on "
                                "a, with rank 5 on b, was not over within 300ms"));
  EXPECT_THAT(made[1], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                HasSubstr("of rank 5 on b, with rank 4 on a, was not over")));
}

// They meet on the host before.
TEST_F(NcclGroupTest, ARankThatIsNotEvenThereIsNamed) {
  const int inits = fake_->inits;
  auto hosts = MakeInProcessGroup(2, "tp");
  EXPECT_THAT(NcclGroup::Create(nccl_, *hosts[0], "rank 4 on a", events_, absl::Milliseconds(50)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "NCCL for 'tp': rank 1 never entered all-gather 1 of 'tp' within 50ms"));
  EXPECT_EQ(fake_->inits, inits);
}

// NCCL would leave the others waiting for a rank that it refuses.
TEST_F(NcclGroupTest, ARankThatIsRefusedEndsItForAllAtOnce) {
  fake_->init_code = ncclSystemError;
  fake_->init_waits = true;
  for (const int refused : {0, 1}) {
    fake_->refused_rank = refused;
    const absl::Time begin = absl::Now();
    const std::vector<Made> made = Make(absl::Minutes(2));
    EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
    for (const Made& rank : made) {
      EXPECT_THAT(rank, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 absl::StrCat("NCCL for 'tp of replica 0': ",
                                              refused == 0 ? "rank 4 on a" : "rank 5 on b",
                                              ": ncclCommInitRankConfig: some error: the last "
                                              "error")));
    }
    // By way of the hosts they go on.
    std::thread other([&] { SKEIN_EXPECT_OK(hosts_[1]->Barrier(kHostStream)); });
    SKEIN_EXPECT_OK(hosts_[0]->Barrier(kHostStream));
    other.join();
  }
  // Who comes through after all has nobody to exchange with.
  const int aborts = fake_->aborts;
  fake_->init_waits = false;
  EXPECT_TRUE(Soon(fake_->aborts, aborts + 2));
}

TEST_F(NcclGroupTest, ARankThatIsThroughLeavesWithOneThatIsRefused) {
  fake_->init_code = ncclInvalidUsage;
  fake_->refused_rank = 1;
  const int aborts = fake_->aborts, finalizes = fake_->finalizes;
  const std::vector<Made> made = Make(absl::Minutes(2));
  for (const Made& rank : made) {
    EXPECT_THAT(rank,
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("rank 5 on b: nccl")));
  }
  EXPECT_TRUE(Soon(fake_->aborts, aborts + 1));
  EXPECT_EQ(fake_->finalizes, finalizes);
}

TEST_F(NcclGroupTest, AGroupThatGetsNoIdIsNone) {
  fake_->id_code = ncclSystemError;
  const int inits = fake_->inits;
  const std::vector<Made> made = Make(absl::Minutes(2));
  for (const Made& rank : made) {
    EXPECT_THAT(rank, StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("rank 4 on a: ncclGetUniqueId: some error")));
  }
  EXPECT_EQ(fake_->inits, inits);
}

TEST_F(NcclGroupTest, ALostPeerIsNamed) {
  std::vector<Made> made = Make(absl::Seconds(10));
  SKEIN_ASSERT_OK(made[0]);
  fake_->async_code = ncclRemoteError;
  EXPECT_THAT((*made[0])->Check(),
              StatusIs(absl::StatusCode::kUnavailable,
                       "NCCL for 'tp of replica 0', with rank 5 on b: remote process exited: the "
                       "last error"));
  fake_->async_code = 0;
}

TEST_F(NcclGroupTest, AnAbortHappensOnceAndEndsAllElse) {
  std::vector<Made> made = Make(absl::Seconds(10));
  SKEIN_ASSERT_OK(made[0]);
  SKEIN_ASSERT_OK(made[1]);
  const int aborts = fake_->aborts, sums = fake_->sums, finalizes = fake_->finalizes;
  (*made[0])->Abort();
  (*made[0])->Abort();
  EXPECT_TRUE(Soon(fake_->aborts, aborts + 1));
  float data = 0;
  EXPECT_THAT((*made[0])->AllReduce(call_, {&data, DType::kF32, 1, 1}, stream_, patience_),
              StatusIs(absl::StatusCode::kCancelled,
                       "NCCL in all-reduce 812 of 'tp of replica 0', with rank 5 on b was "
                       "aborted"));
  EXPECT_EQ(fake_->sums, sums);
  made[0] = nullptr;
  EXPECT_EQ(fake_->finalizes, finalizes);
  made[1] = nullptr;
  EXPECT_EQ(fake_->finalizes, finalizes + 1);
  EXPECT_EQ(fake_->aborts, aborts + 1);
}

// An error of a Communicator's call reaches the group.
TEST_F(NcclGroupTest, ACommunicatorThatFailsAborts) {
  std::vector<Made> made = Make(absl::Seconds(10));
  SKEIN_ASSERT_OK(made[0]);
  const int aborts = fake_->aborts;
  hosts_[0]->UseDevice(*std::move(made[0]), events_);
  fake_->async_code = ncclRemoteError;
  EXPECT_THAT(hosts_[0]->Check(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 5 on b")));
  EXPECT_THAT(hosts_[0]->Check(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 5 on b")));
  EXPECT_TRUE(Soon(fake_->aborts, aborts + 1));
}

TEST_F(NcclGroupTest, AnEndThatNobodyJoinsIsAnAbort) {
  std::vector<Made> made = Make(absl::Seconds(10));
  SKEIN_ASSERT_OK(made[0]);
  const int aborts = fake_->aborts, finalizes = fake_->finalizes, destroys = fake_->destroys;
  fake_->end_waits = true;
  const absl::Time begin = absl::Now();
  made[0] = nullptr;
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
  EXPECT_EQ(fake_->aborts, aborts + 1);  // and over: the process may end
  // The end goes on meanwhile, and frees nothing again.
  EXPECT_EQ(fake_->finalizes, finalizes + 1);
  fake_->end_waits = false;
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_EQ(fake_->destroys, destroys);
  made[1] = nullptr;
  EXPECT_EQ(fake_->destroys, destroys + 1);
}

}  // namespace
}  // namespace skein::comm
